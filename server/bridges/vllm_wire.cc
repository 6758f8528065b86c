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
#include "events/block_key.h"

namespace pagoda::server {
namespace {

// What msgpack writes to, a few bytes at a time.
class Bytes {
 public:
  void write(const char* data, size_t size) {
    if (size_ + size > text_.size()) text_.resize(2 * (size_ + size));
    std::memcpy(text_.data() + size_, data, size);
    size_ += size;
  }
  void Reserve(size_t size) { text_.resize(size); }
  std::string Take() {
    text_.resize(size_);
    return std::move(text_);
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

void PackHashes(Packer& packer, const std::vector<BlockHash>& hashes) {
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

// The cache_salt of a tenant's own blocks, or of nobody's.
std::string SaltName(const NamespaceKey& key) {
  if (!key.tenant.empty()) {
    return absl::StrCat(absl::StrReplaceAll(key.tenant, {{"%", "%25"}, {"/", "%2F"}}), "/",
                        key.cache_salt);
  }
  // With a "/" it would read as a tenant's.
  return absl::StrContains(key.cache_salt, '/') ? absl::StrCat("/", key.cache_salt)
                                                : key.cache_salt;
}

// How a namespace's parts are told.
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

bool HasExtraKeys(const Names& names, const BlocksStored& stored) {
  if (names.lora_name.has_value() || (!names.salt.empty() && !stored.parent.has_value())) {
    return true;
  }
  return absl::c_any_of(
      stored.extras, [](const TokenExtra& extra) { return extra.in_item || extra.extra_id != 0; });
}

class Encoder {
 public:
  explicit Encoder(const VllmShape& shape)
      : shape_(shape),
        groups_(shape.windows.size() > 1 || shape.windows.front() != kFullAttention) {}

  std::string Encode(const RouterBatch& batch) {
    bytes_.Reserve(batch.bytes + batch.bytes / 2);
    packer_.pack_array(3);
    packer_.pack_double(absl::ToDoubleSeconds(batch.time - absl::UnixEpoch()));
    packer_.pack_array(static_cast<uint32_t>(batch.events.size()));
    for (const RouterEvent& event : batch.events) {
      std::visit([this](const auto& what) { Pack(what); }, event.what);
    }
    packer_.pack_uint32(shape_.data_parallel_rank);
    return bytes_.Take();
  }

 private:
  void BeginMap(uint32_t keys, const char* type) {
    packer_.pack_map(keys + 1);
    PackText(packer_, "type");
    PackText(packer_, type);
  }

  uint32_t GroupOf(WindowSize window) const {
    const auto& windows = shape_.windows;
    return static_cast<uint32_t>(absl::c_find(windows, window) - windows.begin());
  }

  void Pack(const BlocksStored& stored) {
    const Names names(*stored.name_space);
    const bool extra_keys = HasExtraKeys(names, stored);
    const bool slides = groups_ && stored.window != kFullAttention;
    BeginMap(7 + extra_keys + !names.salt.empty() + 2 * groups_ + slides, "BlockStored");
    PackText(packer_, "block_hashes");
    PackHashes(packer_, stored.hashes);
    PackText(packer_, "parent_block_hash");
    std::optional<uint64_t> parent;
    if (stored.parent.has_value()) parent = stored.parent->value();
    PackOptional(packer_, parent);
    PackText(packer_, "token_ids");
    packer_.pack_array(static_cast<uint32_t>(stored.tokens.size()));
    for (const TokenId token : stored.tokens) packer_.pack_uint32(token);
    PackText(packer_, "block_size");
    packer_.pack_uint32(shape_.tokens_per_block);
    PackText(packer_, "lora_id");
    PackOptional(packer_, names.lora_id);
    PackText(packer_, "medium");
    PackText(packer_, MediumName(stored.tier));
    PackText(packer_, "lora_name");
    PackOptional(packer_, names.lora_name);
    if (extra_keys) PackExtraKeys(names, stored);
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

  void PackExtraKeys(const Names& names, const BlocksStored& stored) {
    PackText(packer_, "extra_keys");
    packer_.pack_array(static_cast<uint32_t>(stored.hashes.size()));
    const absl::Span<const TokenExtra> extras = stored.extras;
    for (size_t i = 0; i < stored.hashes.size(); ++i) {
      const auto own = extras.empty()
                           ? extras
                           : extras.subspan(i * shape_.tokens_per_block, shape_.tokens_per_block);
      PackBlockKeys(packer_, names, own, i == 0 && !stored.parent.has_value());
    }
  }

  void Pack(const BlocksRemoved& removed) {
    BeginMap(2 + groups_, "BlockRemoved");
    PackText(packer_, "block_hashes");
    PackHashes(packer_, removed.hashes);
    PackText(packer_, "medium");
    PackText(packer_, MediumName(removed.tier));
    if (!groups_) return;
    PackText(packer_, "group_idx");
    packer_.pack_uint32(GroupOf(removed.window));
  }

  void Pack(const AllCleared&) { BeginMap(0, "AllBlocksCleared"); }

  const VllmShape& shape_;
  const bool groups_;
  Bytes bytes_;
  Packer packer_{bytes_};
};

}  // namespace

const char* MediumName(Tier tier) { return tier == Tier::kPrimary ? "GPU" : "CPU"; }

std::string EncodeVllmBatch(const RouterBatch& batch, const VllmShape& shape) {
  return Encoder(shape).Encode(batch);
}

}  // namespace pagoda::server
