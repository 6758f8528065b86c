#include "events/block_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace pagoda {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the hash is defined over little-endian integers, which are hashed in place");

constexpr uint8_t kHasLora = 1;
constexpr uint8_t kHasTenant = 2;
constexpr uint8_t kKeyed = 4;
constexpr uint8_t kExtraIds = 1;
constexpr uint8_t kItemRun = 2;

void AppendBytes(const void* bytes, size_t size, std::string& out) {
  out.append(static_cast<const char*>(bytes), size);
}

template <class T>
void AppendValue(const T& value, std::string& out) {
  AppendBytes(&value, sizeof(value), out);
}

void AppendExtras(absl::Span<const TokenExtra> extras, std::string& out) {
  const auto has_id = [](const TokenExtra& extra) { return extra.extra_id != 0; };
  if (std::any_of(extras.begin(), extras.end(), has_id)) {
    AppendValue(kExtraIds, out);
    for (const TokenExtra& extra : extras) AppendValue(extra.extra_id, out);
  }
  for (const MultimodalItem& item : ItemsOf(extras)) {
    AppendValue(kItemRun, out);
    AppendValue(item.token_start, out);
    AppendValue(item.token_count, out);
    AppendValue(item.item_offset, out);
    AppendValue(item.digest, out);
  }
}

BlockHash HashWithExtras(BlockHash parent, const BlockKey& key) {
  std::string bytes;
  AppendBytes(key.tokens.data(), key.tokens.size() * sizeof(TokenId), bytes);
  AppendExtras(key.extras, bytes);
  return BlockHash{XXH3_64bits_withSeed(bytes.data(), bytes.size(), parent.value())};
}

}  // namespace

BlockHash HashNamespace(const NamespaceKey& key) {
  if (key == NamespaceKey{}) return BlockHash{0};
  std::string bytes;
  AppendValue(
      static_cast<uint8_t>((key.lora_id.has_value() ? kHasLora : 0) |
                           (key.tenant.empty() ? 0 : kHasTenant) | (key.keyed ? kKeyed : 0)),
      bytes);
  AppendValue(key.lora_id.value_or(0), bytes);
  if (!key.tenant.empty()) {
    AppendValue(static_cast<uint32_t>(key.tenant.size()), bytes);
    bytes += key.tenant;
  }
  bytes += key.cache_salt;
  return BlockHash{XXH3_64bits_withSeed(bytes.data(), bytes.size(), 0)};
}

BlockHash HashBlock(BlockHash parent, const BlockKey& key) {
  if (key.has_extras()) return HashWithExtras(parent, key);
  const TokenId* const tokens = key.tokens.data();
  const size_t bytes = key.tokens.size() * sizeof(TokenId);
  // A constant size saves the choice of the algorithm by size. Most blocks have 16 tokens.
  constexpr size_t kUsual = 16 * sizeof(TokenId);
  return BlockHash{bytes == kUsual ? XXH3_64bits_withSeed(tokens, kUsual, parent.value())
                                   : XXH3_64bits_withSeed(tokens, bytes, parent.value())};
}

}  // namespace pagoda
