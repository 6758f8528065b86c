#include "events/block_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>

namespace pagoda {

static_assert(std::endian::native == std::endian::little,
              "the hash is defined over little-endian integers, which are hashed in place");

BlockHash HashNamespace(const NamespaceKey& key) {
  if (key == NamespaceKey{}) return BlockHash{0};
  std::string bytes(1 + sizeof(uint64_t), '\0');
  bytes[0] = key.lora_id.has_value() ? 1 : 0;
  const uint64_t lora_id = key.lora_id.value_or(0);
  std::memcpy(bytes.data() + 1, &lora_id, sizeof(lora_id));
  bytes += key.cache_salt;
  return BlockHash{XXH3_64bits_withSeed(bytes.data(), bytes.size(), 0)};
}

BlockHash HashBlock(BlockHash parent, absl::Span<const TokenId> tokens) {
  return BlockHash{
      XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(TokenId), parent.value())};
}

}  // namespace pagoda
