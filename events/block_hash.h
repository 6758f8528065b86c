// The published block hash: one documented, portable, chained 64-bit hash, so that a router can
// compute it from tokens alone.
//
//   hash(root)  = XXH3_64(name_bytes, seed = 0), and 0 for the namespace without LoRA and salt
//   hash(block) = XXH3_64(the block's token ids as little-endian u32, seed = hash(parent))
//
// name_bytes = u8 has_lora, u64 lora_id (0 without), then the bytes of the salt; integers
// little-endian. A full block hashes all its tokens, a tail its committed ones. events/README.md
// has test vectors.
//
// The core finds blocks by this hash but decides by comparing keys: a collision costs a comparison,
// never a wrong reuse.
#ifndef PAGODA_EVENTS_BLOCK_HASH_H_
#define PAGODA_EVENTS_BLOCK_HASH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

using BlockHash = StrongId<struct BlockHashTag, uint64_t>;

// The longest salt, in bytes: it is in every event of its namespace.
inline constexpr size_t kMaxCacheSaltBytes = 256;

// What two sequences must agree on, besides their tokens, before they may share blocks.
struct NamespaceKey {
  std::optional<uint64_t> lora_id;  // None: the base model.
  std::string cache_salt;

  friend bool operator==(const NamespaceKey&, const NamespaceKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const NamespaceKey& key) {
    return H::combine(std::move(h), key.lora_id, key.cache_salt);
  }
};

BlockHash HashNamespace(const NamespaceKey& key);
BlockHash HashBlock(BlockHash parent, absl::Span<const TokenId> tokens);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_BLOCK_HASH_H_
