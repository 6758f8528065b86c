#include "server/bridges/vllm_wire.h"

#include <msgpack.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "events/block_key.h"

namespace pagoda::server {
namespace {

// The buffer that msgpack writes to, a few bytes at a time.
class Bytes {
 public:
  void write(const char* data, size_t size) {
    if (size_ + size > text_.size()) text_.resize(2 * (size_ + size));
    std::memcpy(text_.data() + size_, data, size);
    size_ += size;
  }
  void Reserve(size_t size) { text_.resize(std::max(size, text_.size())); }
  size_t size() const { return size_; }
  std::string_view First(size_t size) const { return std::string_view(text_).substr(0, size); }
  // Keeps the first `size` bytes only.
  void Truncate(size_t size) { size_ = size; }
  // Drops the first `size` bytes.
  void DropFirst(size_t size) {
    std::memmove(text_.data(), text_.data() + size, size_ - size);
    size_ -= size;
  }

 private:
  std::string text_;
  size_t size_ = 0;
};

using Packer = msgpack::packer<Bytes>;

void PackText(Packer& packer, std::string_view text) {
  packer.pack_str(static_cast<uint32_t>(text.size()));
  packer.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

void PackHashes(Packer& packer, absl::Span<const BlockHash> hashes) {
  packer.pack_array(static_cast<uint32_t>(hashes.size()));
  for (const BlockHash hash : hashes) packer.pack_uint64(hash.value());
}

template <class Value>
void PackOptional(Packer& packer, const std::optional<Value>& value) {
  if (value.has_value()) {
    packer.pack(*value);
  } else {
    packer.pack_nil();
  }
}

// The cache_salt of a tenant's private blocks, or of the default tenant's blocks.
std::string SaltName(const NamespaceKey& key) {
  if (!key.tenant.empty()) {
    return absl::StrCat(absl::StrReplaceAll(key.tenant, {{"%", "%25"}, {"/", "%2F"}}), "/",
                        key.cache_salt);
  }
  // Without the "/" before it, a salt with a "/" would look like a tenant's.
  return absl::StrContains(key.cache_salt, '/') ? absl::StrCat("/", key.cache_salt)
                                                : key.cache_salt;
}

// The parts of a namespace as they appear in an event.
struct Names {
  explicit Names(const NamespaceKey& key) : lora_id(key.lora_id) {
    if (lora_id.has_value()) lora_name = absl::StrCat(*lora_id);
    salt = SaltName(key);
  }

  std::optional<uint64_t> lora_id;
  std::optional<std::string> lora_name;
  std::string salt;
};

std::string DigestName(const ItemDigest& digest) {
  std::string bytes(sizeof(digest), '\0');
  std::memcpy(bytes.data(), digest.data(), bytes.size());
  return absl::BytesToHexString(bytes);
}

// The extra_keys of one block.
void PackBlockKeys(Packer& packer, const Names& names, absl::Span<const TokenExtra> extras,
                   bool first_of_sequence) {
  const std::vector<MultimodalItem> items = ItemsOf(extras);
  const bool has_ids =
      absl::c_any_of(extras, [](const TokenExtra& extra) { return extra.extra_id != 0; });
  const bool has_salt = first_of_sequence && !names.salt.empty();
  const size_t keys = names.lora_name.has_value() + items.size() + has_ids + has_salt;
  if (keys == 0) {
    packer.pack_nil();
    return;
  }
  packer.pack_array(static_cast<uint32_t>(keys));
  if (names.lora_name.has_value()) PackText(packer, *names.lora_name);
  for (const MultimodalItem& item : items) {
    packer.pack_array(2);
    PackText(packer, DigestName(item.digest));
    packer.pack_int64(int64_t{item.token_start} - int64_t{item.item_offset});
  }
  if (has_ids) {
    const auto id = [](std::string* out, const TokenExtra& extra) {
      absl::StrAppend(out, extra.extra_id);
    };
    PackText(packer, absl::StrCat("extra_ids:", absl::StrJoin(extras, ",", id)));
  }
  if (has_salt) PackText(packer, names.salt);
}

// Consecutive blocks of a BlocksStored.
struct StoredRun {
  const BlocksStored& all;
  std::optional<BlockHash> parent;
  absl::Span<const BlockHash> hashes;
  absl::Span<const TokenId> tokens;
  absl::Span<const TokenExtra> extras;
};

StoredRun RunOf(const BlocksStored& stored, size_t first, size_t count, uint32_t tokens_per_block) {
  const size_t begin = first * tokens_per_block;
  const size_t tokens = count * tokens_per_block;
  const absl::Span<const TokenExtra> extras = stored.extras;
  return {.all = stored,
          .parent = first == 0 ? stored.parent : stored.hashes[first - 1],
          .hashes = absl::MakeConstSpan(stored.hashes).subspan(first, count),
          .tokens = absl::MakeConstSpan(stored.tokens).subspan(begin, tokens),
          .extras = extras.empty() ? extras : extras.subspan(begin, tokens)};
}

bool HasExtraKeys(const Names& names, const StoredRun& run) {
  if (names.lora_name.has_value() || (!names.salt.empty() && !run.parent.has_value())) return true;
  return absl::c_any_of(
      run.extras, [](const TokenExtra& extra) { return extra.in_item || extra.extra_id != 0; });
}

// The bytes around the events: two array headers, the time and the rank.
constexpr size_t kFrameBytes = 1 + 9 + 5 + 5;

// Bounds from the service's contract (proto/pagoda/v1/types.proto, Namespace) and from msgpack's
// encoding. The first is for a name in cache_salt, if each byte of the tenant's name is escaped.
// The second is for a token with its extra id in decimal and a multimodal item for this token
// alone.
constexpr size_t kMaxSaltName = 3 * 128 + 1 + 256 + 1;
constexpr size_t kMaxTokenBytes = 5 + 21 + (1 + 2 + 2 * sizeof(ItemDigest) + 9);
// The keys, the names, the adapter twice, the parent, and the headers of arrays.
constexpr size_t kMaxEventFrame = 512;

class Encoder {
 public:
  Encoder(const RouterBatch& batch, const VllmShape& shape, size_t max_bytes)
      : time_(absl::ToDoubleSeconds(batch.time - absl::UnixEpoch())),
        shape_(shape),
        groups_(shape.windows.size() > 1 || shape.windows.front() != kFullAttention),
        max_bytes_(max_bytes) {
    bytes_.Reserve(std::min(batch.bytes + batch.bytes / 2, 2 * max_bytes));
  }

  std::vector<std::string> Encode(const std::vector<RouterEvent>& events) {
    for (const RouterEvent& event : events) {
      std::visit(
          [this](const auto& what) {
            if (ChangesAMedium(what)) Add(what, 0, BlocksOf(what));
          },
          event.what);
    }
    if (events_ > 0) Cut(bytes_.size());
    return std::move(payloads_);
  }

 private:
  // All tiers below the first one are the same medium.
  static bool ChangesAMedium(const AllCleared&) { return true; }
  template <class What>
  static bool ChangesAMedium(const What& what) {
    return !what.also_below;
  }
  static size_t BlocksOf(const AllCleared&) { return 0; }
  template <class What>
  static size_t BlocksOf(const What& what) {
    return what.hashes.size();
  }

  // Adds the event for `count` of its blocks. Splits it if one event would be too large.
  template <class What>
  void Add(const What& what, size_t first, size_t count) {
    const size_t begin = bytes_.size();
    Pack(what, first, count);
    if (count > 1 && kFrameBytes + bytes_.size() - begin > max_bytes_) {
      bytes_.Truncate(begin);
      Add(what, first, count / 2);
      Add(what, first + count / 2, count - count / 2);
      return;
    }
    if (events_ > 0 && kFrameBytes + bytes_.size() > max_bytes_) Cut(begin);
    ++events_;
  }

  // Makes a payload of the events in the first `size` bytes.
  void Cut(size_t size) {
    Bytes frame;
    Packer packer(frame);
    packer.pack_array(3);
    packer.pack_double(time_);
    packer.pack_array(events_);
    const size_t head = frame.size();
    packer.pack_uint32(shape_.data_parallel_rank);
    std::string payload;
    payload.reserve(frame.size() + size);
    payload.append(frame.First(head));
    payload.append(bytes_.First(size));
    payload.append(frame.First(frame.size()).substr(head));
    payloads_.push_back(std::move(payload));
    bytes_.DropFirst(size);
    events_ = 0;
  }

  void BeginMap(uint32_t keys, const char* type) {
    packer_.pack_map(keys + 1);
    PackText(packer_, "type");
    PackText(packer_, type);
  }

  uint32_t GroupOf(WindowSize window) const {
    const auto& windows = shape_.windows;
    return static_cast<uint32_t>(absl::c_find(windows, window) - windows.begin());
  }

  void Pack(const BlocksStored& stored, size_t first, size_t count) {
    const Names names(*stored.name_space);
    const StoredRun run = RunOf(stored, first, count, shape_.tokens_per_block);
    const bool extra_keys = HasExtraKeys(names, run);
    const bool slides = groups_ && stored.window != kFullAttention;
    BeginMap(7 + extra_keys + !names.salt.empty() + 2 * groups_ + slides, "BlockStored");
    PackText(packer_, "block_hashes");
    PackHashes(packer_, run.hashes);
    PackText(packer_, "parent_block_hash");
    std::optional<uint64_t> parent;
    if (run.parent.has_value()) parent = run.parent->value();
    PackOptional(packer_, parent);
    PackText(packer_, "token_ids");
    packer_.pack_array(static_cast<uint32_t>(run.tokens.size()));
    for (const TokenId token : run.tokens) packer_.pack_uint32(token);
    PackText(packer_, "block_size");
    packer_.pack_uint32(shape_.tokens_per_block);
    PackText(packer_, "lora_id");
    PackOptional(packer_, names.lora_id);
    PackText(packer_, "medium");
    PackText(packer_, MediumName(stored.tier));
    PackText(packer_, "lora_name");
    PackOptional(packer_, names.lora_name);
    if (extra_keys) PackExtraKeys(names, run);
    if (!names.salt.empty()) {
      PackText(packer_, "cache_salt");
      PackText(packer_, names.salt);
    }
    if (!groups_) return;
    PackText(packer_, "group_idx");
    packer_.pack_uint32(GroupOf(stored.window));
    PackText(packer_, "kv_cache_spec_kind");
    PackText(packer_, slides ? "sliding_window" : "full_attention");
    if (!slides) return;
    PackText(packer_, "kv_cache_spec_sliding_window");
    packer_.pack_uint32(stored.window.value());
  }

  void PackExtraKeys(const Names& names, const StoredRun& run) {
    PackText(packer_, "extra_keys");
    packer_.pack_array(static_cast<uint32_t>(run.hashes.size()));
    for (size_t i = 0; i < run.hashes.size(); ++i) {
      const auto own = run.extras.empty() ? run.extras
                                          : run.extras.subspan(i * shape_.tokens_per_block,
                                                               shape_.tokens_per_block);
      PackBlockKeys(packer_, names, own, i == 0 && !run.parent.has_value());
    }
  }

  void Pack(const BlocksRemoved& removed, size_t first, size_t count) {
    BeginMap(2 + groups_, "BlockRemoved");
    PackText(packer_, "block_hashes");
    PackHashes(packer_, absl::MakeConstSpan(removed.hashes).subspan(first, count));
    PackText(packer_, "medium");
    PackText(packer_, MediumName(removed.tier));
    if (!groups_) return;
    PackText(packer_, "group_idx");
    packer_.pack_uint32(GroupOf(removed.window));
  }

  void Pack(const AllCleared&, size_t, size_t) { BeginMap(0, "AllBlocksCleared"); }

  const double time_;
  const VllmShape& shape_;
  const bool groups_;
  const size_t max_bytes_;
  Bytes bytes_;  // The events that are in no payload yet.
  uint32_t events_ = 0;
  Packer packer_{bytes_};
  std::vector<std::string> payloads_;
};

}  // namespace

const char* MediumName(Tier tier) { return tier == kPrimaryTier ? "GPU" : "CPU"; }

size_t LargestVllmPayload(const VllmShape& shape, size_t max_bytes) {
  const size_t block = kFrameBytes + kMaxEventFrame + 2 * kMaxSaltName +
                       size_t{shape.tokens_per_block} * kMaxTokenBytes;
  return std::max(block, max_bytes);
}

std::vector<std::string> EncodeVllmBatch(const RouterBatch& batch, const VllmShape& shape,
                                         size_t max_bytes) {
  return Encoder(batch, shape, max_bytes).Encode(batch.events);
}

}  // namespace pagoda::server
