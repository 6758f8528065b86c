#include "engine/kv_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/schedule/sequence_run.h"
#include "kernels/cpu/cache/cache.h"

namespace pagoda {
namespace {

constexpr char kFormat[] = "pagoda-kv-1";

// The type of a layer's numbers in the file. bf16 has every number of 8 bits times a power of two.
kernels::ElementType FileType(const kernels::KvLayer& layer) {
  return kernels::IsFloat8(layer.type) ? kernels::ElementType::kBFloat16 : layer.type;
}

TensorType TensorTypeFor(const kernels::KvLayer& layer) {
  switch (FileType(layer)) {
    case kernels::ElementType::kFloat16:
      return TensorType::kFloat16;
    case kernels::ElementType::kBFloat16:
      return TensorType::kBFloat16;
    default:
      return TensorType::kFloat32;
  }
}

uint64_t RowBytes(const kernels::KvLayer& layer) {
  return uint64_t{layer.num_kv_heads} * layer.head_dim * kernels::ElementBytes(FileType(layer));
}

// A layer with K only has no values in the file.
bool HasValues(const kernels::KvLayer& layer) { return layer.values != layer.keys; }

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
                                                   .reserved_tokens = reserved_tokens,
                                                   .uncounted = true});
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
    offsets.push_back(offsets.back() + (HasValues(layer) ? 2 : 1) * tokens * RowBytes(layer));
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
    const uint64_t middle = offsets[i] + tokens.size() * RowBytes(layer);
    for (const auto& [name, begin, end] : {std::tuple(KeysName(i), offsets[i], middle),
                                           std::tuple(ValuesName(i), middle, offsets[i + 1])}) {
      if (begin == end) continue;
      header[name] = {{"dtype", std::string(TensorTypeName(TensorTypeFor(layer)))},
                      {"shape", {tokens.size(), layer.num_kv_heads, layer.head_dim}},
                      {"data_offsets", {begin, end}}};
    }
  }
  std::string text = header.dump();
  // Pads as the format's own library does, so that the tensors are aligned.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// A copy of one block of a pool in host memory, wherever the pool is. With the block's scales.
class BlockOnHost {
 public:
  // `scales`: the pool of scales of a float8 pool, otherwise null.
  BlockOnHost(MappedPool& pool, MappedPool* scales)
      : pool_(pool), scales_(scales), bytes_(pool.mapping().layout.slot_stride_bytes()) {
    if (scales_ != nullptr) scale_bytes_.resize(scales_->mapping().layout.slot_stride_bytes());
  }

  // REQUIRES: a slot of the pool.
  absl::Status Read(int32_t slot) {
    absl::Status read = pool_.ReadSlot(IndexOf(slot), absl::MakeSpan(bytes_));
    if (!read.ok() || scales_ == nullptr) return read;
    return scales_->ReadSlot(IndexOf(slot), absl::MakeSpan(scale_bytes_));
  }
  absl::Status Write(int32_t slot) {
    absl::Status written = pool_.WriteSlot(IndexOf(slot), bytes_);
    if (!written.ok() || scales_ == nullptr) return written;
    return scales_->WriteSlot(IndexOf(slot), scale_bytes_);
  }

  // The layer at `index` of the pool's layer dimension, whose only slot is this block.
  kernels::KvLayer Layer(size_t index) {
    kernels::KvLayer layer =
        LayerOfPool(pool_.mapping().layout, index, bytes_.data(), /*num_slots=*/1);
    if (scales_ != nullptr) {
      layer.scales = ScalesOfPool(scales_->mapping().layout, index, scale_bytes_.data());
    }
    return layer;
  }

 private:
  static SlotIndex IndexOf(int32_t slot) { return SlotIndex(static_cast<uint32_t>(slot)); }

  MappedPool& pool_;
  MappedPool* const scales_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> scale_bytes_;
};

// A pool of K and V, and the pool of its scales, or null.
struct PoolAndScales {
  MappedPool* pool = nullptr;
  MappedPool* scales = nullptr;
};

std::vector<PoolAndScales> WithScales(const KvPools& pools) {
  std::vector<PoolAndScales> all;
  for (const std::unique_ptr<MappedPool>& pool : pools.pools()) {
    if (pool->mapping().layout.content == PoolContent::kScales) continue;
    PoolAndScales& added = all.emplace_back();
    added.pool = pool.get();
    for (const std::unique_ptr<MappedPool>& scales : pools.pools()) {
      // Each layer is in one pool and at most one pool of scales.
      if (scales->mapping().layout.content == PoolContent::kScales &&
          scales->mapping().layout.layers == pool->mapping().layout.layers) {
        added.scales = scales.get();
      }
    }
  }
  return all;
}

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
absl::Status SavePool(const PoolAndScales& pool, const std::vector<int32_t>& table, uint32_t tokens,
                      uint64_t data_begin, absl::Span<const uint64_t> offsets,
                      std::ofstream& file) {
  const PoolLayout& layout = pool.pool->mapping().layout;
  BlockOnHost block(*pool.pool, pool.scales);
  for (const BlockTokens& part : InBlocks(0, tokens, layout.tokens_per_block)) {
    if (absl::Status read = block.Read(table[part.block]); !read.ok()) return read;
    for (size_t i = 0; i < layout.layers.size(); ++i) {
      const kernels::KvLayer layer = block.Layer(i);
      const uint64_t row_bytes = RowBytes(layer);
      std::vector<std::byte> keys(row_bytes * part.count);
      std::vector<std::byte> values(HasValues(layer) ? keys.size() : 0);
      const int32_t starts[] = {0, static_cast<int32_t>(part.count)};
      const absl::Status gathered =
          kernels::cpu::GatherCache({.keys = keys.data(),
                                     .values = HasValues(layer) ? values.data() : nullptr,
                                     .type = FileType(layer),
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
      it->second.type == TensorTypeFor(layer)) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kInvalidCheckpoint,
      absl::StrCat(file.path(), ": ", name, " is missing, or is not ",
                   TensorTypeName(TensorTypeFor(layer)), " [", absl::StrJoin(shape, ", "), "]"));
}

// A tensor's rows for these tokens, aligned. REQUIRES: CheckTensor.
std::vector<std::byte> Rows(const SafetensorsFile& file, const std::string& name,
                            const BlockTokens& part, uint64_t row_bytes) {
  const auto rows =
      file.tensors().at(name).bytes.subspan(part.first * row_bytes, part.count * row_bytes);
  return {rows.begin(), rows.end()};
}

// Writes a layer's rows of the file into the layer's only block.
absl::Status FillBlock(const SafetensorsFile& file, uint32_t layer_index, const BlockTokens& part,
                       const kernels::KvLayer& layer) {
  const auto keys = Rows(file, KeysName(layer_index), part, RowBytes(layer));
  std::vector<std::byte> values;
  if (HasValues(layer)) values = Rows(file, ValuesName(layer_index), part, RowBytes(layer));
  const uint64_t stride = uint64_t{layer.num_kv_heads} * layer.head_dim;
  std::vector<int64_t> token_slots(part.count);
  std::iota(token_slots.begin(), token_slots.end(), int64_t{part.offset});
  const kernels::CacheWriteParams params = {
      .rows = {.keys = keys.data(),
               .values = HasValues(layer) ? values.data() : nullptr,
               .type = FileType(layer),
               .key_token_stride = stride,
               .value_token_stride = stride},
      .token_slots = token_slots,
      .kv = layer};
  if (absl::Status fitted = kernels::cpu::FitScales(params); !fitted.ok()) return fitted;
  return kernels::cpu::WriteCache(params);
}

// Writes the KV of the file's tokens `first` to `end` - 1 into a pool's layers. The other tokens of
// their blocks stay unchanged.
absl::Status LoadPool(const SafetensorsFile& file, const std::vector<int32_t>& table,
                      uint32_t first, uint32_t end, const PoolAndScales& pool) {
  const PoolLayout& layout = pool.pool->mapping().layout;
  BlockOnHost block(*pool.pool, pool.scales);
  for (const BlockTokens& part : InBlocks(first, end, layout.tokens_per_block)) {
    const int32_t slot = table[part.block];
    if (absl::Status read = block.Read(slot); !read.ok()) return read;
    for (size_t i = 0; i < layout.layers.size(); ++i) {
      const absl::Status filled = FillBlock(file, layout.layers[i], part, block.Layer(i));
      if (!filled.ok()) return absl::InternalError(filled.message());
    }
    if (absl::Status written = block.Write(slot); !written.ok()) return written;
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

// A KV file does not say which adapter its KV is of.
absl::Status CheckNamespace(const NamespaceKey& name_space) {
  if (!name_space.lora_id.has_value()) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument,
                   "namespace.lora_id is set: a KV file has the KV of the model without adapters");
}

}  // namespace

absl::StatusOr<KvFileReport> SaveKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space,
                                    absl::Span<const TokenId> tokens, const std::string& path) {
  if (absl::Status status = CheckNamespace(name_space); !status.ok()) return status;
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
  for (const PoolAndScales& pool : WithScales(pools)) {
    absl::Status written =
        SavePool(pool, sequence.table(pool.pool->mapping().layout.layers.front()), *cached,
                 data_begin, offsets, file);
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
  if (absl::Status status = CheckNamespace(name_space); !status.ok()) return status;
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
    const kernels::KvLayer& layer = pools.layers()[i];
    absl::Status fits = CheckTensor(*file, KeysName(i), layer, count);
    if (fits.ok() && HasValues(layer)) fits = CheckTensor(*file, ValuesName(i), layer, count);
    if (!fits.ok()) return fits;
  }

  Scratch sequence(client, scratch, pools);
  const absl::StatusOr<uint32_t> cached = sequence.Open(name_space, *tokens, 0);
  if (!cached.ok()) return cached.status();
  if (absl::Status there = CheckTables(pools, sequence); !there.ok()) return there;
  for (const PoolAndScales& pool : WithScales(pools)) {
    absl::Status loaded = LoadPool(
        *file, sequence.table(pool.pool->mapping().layout.layers.front()), *cached, count, pool);
    if (!loaded.ok()) return loaded;
  }
  if (absl::Status unchanged = file->CheckUnchanged(); !unchanged.ok()) return unchanged;
  if (absl::Status committed = sequence.Commit(count); !committed.ok()) return committed;
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return FileError(path, "read");
  return KvFileReport{.tokens = count, .bytes = static_cast<uint64_t>(info.st_size)};
}

}  // namespace pagoda
