#include "engine/kv_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/schedule/sequence_run.h"
#include "kernels/cpu/cache.h"

namespace pagoda {
namespace {

constexpr char kFormat[] = "pagoda-kv-1";

TensorType TensorTypeFor(kernels::ElementType type) {
  switch (type) {
    case kernels::ElementType::kFloat16:
      return TensorType::kFloat16;
    case kernels::ElementType::kBFloat16:
      return TensorType::kBFloat16;
    default:
      return TensorType::kFloat32;
  }
}

uint64_t RowBytes(const kernels::KvLayer& layer) {
  return uint64_t{layer.num_kv_heads} * layer.head_dim * kernels::ElementBytes(layer.type);
}

std::string KeysName(size_t layer) { return absl::StrCat("layers.", layer, ".keys"); }
std::string ValuesName(size_t layer) { return absl::StrCat("layers.", layer, ".values"); }

absl::Status FileError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

// A temporary sequence for reading or writing a file's KV.
class Scratch {
 public:
  Scratch(CacheClient& client, SequenceId id, const KvPools& pools)
      : client_(client), id_(id), pools_(pools) {}
  ~Scratch() {
    if (open_) RunOne<FreedSequence>(client_, FreeSequence{id_}).IgnoreError();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Returns the number of cached tokens. Their KV is in the primary tier when this returns.
  absl::StatusOr<uint32_t> Open(const NamespaceKey& name_space, std::vector<TokenId> tokens,
                                uint32_t reserved_tokens) {
    // Frees a sequence that remained because an answer was lost.
    RunOne<FreedSequence>(client_, FreeSequence{id_}).IgnoreError();
    absl::StatusOr<AddedSequence> added =
        RunOne<AddedSequence>(client_, AddSequence{.sequence = id_,
                                                   .name_space = name_space,
                                                   .tokens = std::move(tokens),
                                                   .reserved_tokens = reserved_tokens});
    if (!added.ok()) return added.status();
    open_ = true;
    TakeTables(added->tables, pools_.windows(), tables_);
    if (absl::Status waited = Wait(added->ready); !waited.ok()) return waited;
    // A failed copy has shortened the cached part.
    const absl::StatusOr<DescribedSequence> now =
        RunOne<DescribedSequence>(client_, DescribeSequence{id_});
    if (!now.ok()) return now.status();
    losses_ = now->losses;
    return losses_ == 0 ? added->matched_tokens : now->computed_tokens;
  }

  absl::Status Commit(uint32_t computed_tokens) {
    return RunOne<CommittedTokens>(client_, CommitTokens{.sequence = id_,
                                                         .computed_tokens = computed_tokens,
                                                         .known_losses = losses_})
        .status();
  }

  // The slots of the layer's window, from token 0 on; -1 for blocks that the window has passed.
  std::vector<int32_t> table(size_t layer) const {
    std::vector<int32_t> slots;
    for (const SlotIndex slot : tables_[pools_.window_index(layer)]) {
      slots.push_back(slot == kNoSlot ? -1 : static_cast<int32_t>(slot.value()));
    }
    return slots;
  }

 private:
  absl::Status Wait(Ticket ready) {
    for (;;) {
      absl::Status waited = RunOne<WaitedForTicket>(client_, WaitForTicket{ready}).status();
      if (waited.ok() || ReasonOf(waited) != Reason::kWaitTimeout) return waited;
    }
  }

  CacheClient& client_;
  const SequenceId id_;
  const KvPools& pools_;
  std::vector<std::vector<SlotIndex>> tables_;
  uint32_t losses_ = 0;
  bool open_ = false;
};

// The offsets of each layer's keys in the file's data, and the end of the last layer. A layer's
// values follow its keys.
std::vector<uint64_t> OffsetsOf(const KvPools& pools, uint64_t tokens) {
  std::vector<uint64_t> offsets = {0};
  for (const kernels::KvLayer& layer : pools.layers()) {
    offsets.push_back(offsets.back() + 2 * tokens * RowBytes(layer));
  }
  return offsets;
}

// The header for `tokens` in the layers of these pools.
std::string MakeHeader(const std::string& model, absl::Span<const TokenId> tokens,
                       const KvPools& pools) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {
      {"format", kFormat}, {"model", model}, {"tokens", absl::StrJoin(tokens, " ")}};
  const std::vector<uint64_t> offsets = OffsetsOf(pools, tokens.size());
  for (size_t i = 0; i < pools.layers().size(); ++i) {
    const kernels::KvLayer& layer = pools.layers()[i];
    const uint64_t middle = (offsets[i] + offsets[i + 1]) / 2;
    for (const auto& [name, begin, end] : {std::tuple(KeysName(i), offsets[i], middle),
                                           std::tuple(ValuesName(i), middle, offsets[i + 1])}) {
      header[name] = {{"dtype", std::string(TensorTypeName(TensorTypeFor(layer.type)))},
                      {"shape", {tokens.size(), layer.num_kv_heads, layer.head_dim}},
                      {"data_offsets", {begin, end}}};
    }
  }
  std::string text = header.dump();
  // Pads as the format's own library does, so that the tensors are aligned.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// A copy of one block of a pool in host memory, wherever the pool is.
class BlockOnHost {
 public:
  explicit BlockOnHost(MappedPool& pool)
      : pool_(pool), bytes_(pool.mapping().layout.slot_stride_bytes()) {}

  // REQUIRES: a slot of the pool.
  absl::Status Read(int32_t slot) { return pool_.ReadSlot(IndexOf(slot), absl::MakeSpan(bytes_)); }
  absl::Status Write(int32_t slot) { return pool_.WriteSlot(IndexOf(slot), bytes_); }

  // The layer at `index` of the pool's layer dimension, whose only slot is this block.
  kernels::KvLayer Layer(size_t index) {
    return LayerOfPool(pool_.mapping().layout, index, bytes_.data(), /*num_slots=*/1);
  }

 private:
  static SlotIndex IndexOf(int32_t slot) { return SlotIndex(static_cast<uint32_t>(slot)); }

  MappedPool& pool_;
  std::vector<std::byte> bytes_;
};

// The block table of a single block.
constexpr int32_t kAlone[] = {0};

// The tokens of a sequence in one block.
struct BlockTokens {
  size_t block;     // Index in the sequence's table.
  uint32_t first;   // Position of the first token in the sequence.
  uint32_t offset;  // Position of the first token in the block.
  uint32_t count;
};

// The tokens `first` to `end` - 1, block by block.
std::vector<BlockTokens> InBlocks(uint32_t first, uint32_t end, uint32_t tokens_per_block) {
  std::vector<BlockTokens> all;
  while (first < end) {
    const uint32_t offset = first % tokens_per_block;
    const uint32_t count = std::min(end - first, tokens_per_block - offset);
    all.push_back({first / tokens_per_block, first, offset, count});
    first += count;
  }
  return all;
}

// Writes the tokens' rows of a pool's layers to their places in the file.
absl::Status SavePool(MappedPool& pool, const std::vector<int32_t>& table, uint32_t tokens,
                      uint64_t data_begin, absl::Span<const uint64_t> offsets,
                      std::ofstream& file) {
  const PoolLayout& layout = pool.mapping().layout;
  BlockOnHost block(pool);
  for (const BlockTokens& part : InBlocks(0, tokens, layout.tokens_per_block)) {
    if (absl::Status read = block.Read(table[part.block]); !read.ok()) return read;
    for (size_t i = 0; i < layout.layers.size(); ++i) {
      const kernels::KvLayer layer = block.Layer(i);
      const uint64_t row_bytes = RowBytes(layer);
      std::vector<std::byte> keys(row_bytes * part.count), values(keys.size());
      const int32_t starts[] = {0, static_cast<int32_t>(part.count)};
      const absl::Status gathered = kernels::cpu::GatherCache({.keys = keys.data(),
                                                               .values = values.data(),
                                                               .type = layer.type,
                                                               .starts = starts,
                                                               .block_tables = kAlone,
                                                               .block_table_stride = 1,
                                                               .kv = layer});
      if (!gathered.ok()) return absl::InternalError(gathered.message());
      uint64_t begin = data_begin + offsets[layout.layers[i]] + part.first * row_bytes;
      for (const auto* rows : {&keys, &values}) {
        file.seekp(static_cast<std::streamoff>(begin));
        file.write(reinterpret_cast<const char*>(rows->data()),
                   static_cast<std::streamsize>(rows->size()));
        begin += tokens * row_bytes;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> ReadTokens(const std::string& text) {
  std::vector<TokenId> tokens;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &tokens.emplace_back())) {
      return MakeError(Reason::kInvalidCheckpoint, "the metadata's tokens are not token ids");
    }
  }
  if (tokens.empty()) return MakeError(Reason::kInvalidCheckpoint, "it has no tokens");
  return tokens;
}

// Checks that the file has the layer's tensor of this name, for this number of tokens.
absl::Status CheckTensor(const SafetensorsFile& file, const std::string& name,
                         const kernels::KvLayer& layer, uint32_t tokens) {
  const auto it = file.tensors().find(name);
  const std::vector<uint64_t> shape = {tokens, layer.num_kv_heads, layer.head_dim};
  if (it != file.tensors().end() && it->second.shape == shape &&
      it->second.type == TensorTypeFor(layer.type)) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidCheckpoint,
                   absl::StrCat(file.path(), ": ", name, " is missing, or is not ",
                                TensorTypeName(TensorTypeFor(layer.type)), " [",
                                absl::StrJoin(shape, ", "), "]"));
}

// A tensor's rows for these tokens, aligned. REQUIRES: CheckTensor.
std::vector<std::byte> Rows(const SafetensorsFile& file, const std::string& name,
                            const BlockTokens& part, uint64_t row_bytes) {
  const auto rows =
      file.tensors().at(name).bytes.subspan(part.first * row_bytes, part.count * row_bytes);
  return {rows.begin(), rows.end()};
}

// Writes the KV of the file's tokens `first` to `end` - 1 into a pool's layers. The other tokens of
// their blocks stay unchanged.
absl::Status LoadPool(const SafetensorsFile& file, const std::vector<int32_t>& table,
                      uint32_t first, uint32_t end, MappedPool& pool) {
  const PoolLayout& layout = pool.mapping().layout;
  BlockOnHost block(pool);
  for (const BlockTokens& part : InBlocks(first, end, layout.tokens_per_block)) {
    const int32_t slot = table[part.block];
    if (absl::Status read = block.Read(slot); !read.ok()) return read;
    for (size_t i = 0; i < layout.layers.size(); ++i) {
      const kernels::KvLayer layer = block.Layer(i);
      const auto keys = Rows(file, KeysName(layout.layers[i]), part, RowBytes(layer));
      const auto values = Rows(file, ValuesName(layout.layers[i]), part, RowBytes(layer));
      const uint64_t stride = uint64_t{layer.num_kv_heads} * layer.head_dim;
      const int32_t starts[] = {0, static_cast<int32_t>(part.count)};
      const int32_t position[] = {static_cast<int32_t>(part.offset)};
      const absl::Status filled = kernels::cpu::FillCache({.rows = {.keys = keys.data(),
                                                                    .values = values.data(),
                                                                    .type = layer.type,
                                                                    .key_token_stride = stride,
                                                                    .value_token_stride = stride},
                                                           .starts = starts,
                                                           .first_positions = position,
                                                           .block_tables = kAlone,
                                                           .block_table_stride = 1,
                                                           .kv = layer});
      if (!filled.ok()) return absl::InternalError(filled.message());
    }
    if (absl::Status written = block.Write(slot); !written.ok()) return written;
  }
  return absl::OkStatus();
}

// Checks that files can hold the layers.
absl::Status CheckKinds(const KvPools& pools) {
  for (size_t i = 0; i < pools.layers().size(); ++i) {
    const kernels::KvLayer& layer = pools.layers()[i];
    if (!kernels::IsFloat8(layer.type) && layer.values != layer.keys) continue;
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("layer ", i, " of the cache is ",
                                  layer.values == layer.keys ? "K only" : "float8",
                                  "; a KV file needs K and V of float32, float16 or bfloat16"));
  }
  return absl::OkStatus();
}

// Checks that all blocks of each layer's table have slots.
absl::Status CheckTables(const KvPools& pools, const Scratch& sequence) {
  for (size_t i = 0; i < pools.layers().size(); ++i) {
    const std::vector<int32_t>& table = sequence.table(i);
    if (std::find(table.begin(), table.end(), -1) == table.end()) continue;
    return absl::FailedPreconditionError(
        "a sliding window has passed some of the tokens, and their KV is gone");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KvFileReport> SaveKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space,
                                    absl::Span<const TokenId> tokens, const std::string& path) {
  if (absl::Status kinds = CheckKinds(pools); !kinds.ok()) return kinds;
  // One more, because a match covers all tokens except the last.
  std::vector<TokenId> wanted(tokens.begin(), tokens.end());
  wanted.push_back(0);
  Scratch sequence(client, scratch, pools);
  const absl::StatusOr<uint32_t> cached = sequence.Open(name_space, std::move(wanted), 1);
  if (!cached.ok()) return cached.status();
  if (*cached == 0) return absl::NotFoundError("no prefix of these tokens is cached");
  if (absl::Status there = CheckTables(pools, sequence); !there.ok()) return there;
  const auto saved = tokens.first(*cached);

  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  if (!file) return FileError(unfinished, "write");
  absl::Cleanup remove = [&] { std::remove(unfinished.c_str()); };
  const std::string header = MakeHeader(client.info().model_fingerprint, saved, pools);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  const uint64_t data_begin = sizeof(length) + header.size();
  const std::vector<uint64_t> offsets = OffsetsOf(pools, saved.size());
  for (const std::unique_ptr<MappedPool>& pool : pools.pools()) {
    absl::Status written = SavePool(*pool, sequence.table(pool->mapping().layout.layers.front()),
                                    *cached, data_begin, offsets, file);
    if (!written.ok()) return written;
  }
  file.close();
  if (!file) return FileError(unfinished, "write");
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) return FileError(path, "write");
  std::move(remove).Cancel();
  return KvFileReport{.tokens = *cached, .bytes = data_begin + offsets.back()};
}

absl::StatusOr<KvFileReport> LoadKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space, const std::string& path) {
  if (absl::Status kinds = CheckKinds(pools); !kinds.ok()) return kinds;
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const auto refuse = [&](const auto&... why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why...));
  };
  const auto metadata = [&](const char* name) {
    const auto it = file->metadata().find(name);
    return it == file->metadata().end() ? std::string() : it->second;
  };
  if (metadata("format") != kFormat) return refuse("it is not a KV file");
  if (metadata("model") != client.info().model_fingerprint) {
    return refuse("its KV is for the model \"", metadata("model"), "\", the cache is for \"",
                  client.info().model_fingerprint, "\"");
  }
  absl::StatusOr<std::vector<TokenId>> tokens = ReadTokens(metadata("tokens"));
  if (!tokens.ok()) return refuse(tokens.status().message());
  const auto count = static_cast<uint32_t>(tokens->size());
  for (size_t i = 0; i < pools.layers().size(); ++i) {
    for (const std::string& name : {KeysName(i), ValuesName(i)}) {
      absl::Status fits = CheckTensor(*file, name, pools.layers()[i], count);
      if (!fits.ok()) return fits;
    }
  }

  Scratch sequence(client, scratch, pools);
  const absl::StatusOr<uint32_t> cached = sequence.Open(name_space, *tokens, 0);
  if (!cached.ok()) return cached.status();
  if (absl::Status there = CheckTables(pools, sequence); !there.ok()) return there;
  for (const std::unique_ptr<MappedPool>& pool : pools.pools()) {
    absl::Status loaded = LoadPool(*file, sequence.table(pool->mapping().layout.layers.front()),
                                   *cached, count, *pool);
    if (!loaded.ok()) return loaded;
  }
  if (absl::Status committed = sequence.Commit(count); !committed.ok()) return committed;
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return FileError(path, "read");
  return KvFileReport{.tokens = count, .bytes = static_cast<uint64_t>(info.st_size)};
}

}  // namespace pagoda
