// The published block hash: one documented, portable, chained 64-bit hash, so that a router can
// compute it from tokens alone.
//
//   hash(root)  = XXH3_64(name_bytes, seed = 0), and 0 for the namespace without LoRA, salt and
//                 tenant that is not keyed
//   hash(block) = XXH3_64(block_bytes, seed = hash(parent))
//
// name_bytes  = u8 flags (1: LoRA, 2: tenant, 4: keyed), u64 lora_id (0 without), with a tenant its
//               length as u32 and its bytes, then the bytes of the salt
// block_bytes = the block's token ids as u32; then, if any token has an extra id, u8 1 and an id
//               for each token as u64 (0: none); then for each run of a multimodal item's places,
//               in order: u8 2, its first token in the block, its length and its first place in
//               the item as u32, and the item's 32-byte digest; of a keyed block the length of its
//               key as u32, the key's bytes, and zeros up to 64 bytes
//
// Integers are little-endian. A full block hashes all its tokens, a tail its committed ones.
// events/README.md has test vectors.
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
#include "events/block_key.h"
#include "pools/types.h"

namespace pagoda {

using BlockHash = StrongId<struct BlockHashTag, uint64_t>;

// The longest salt, in bytes: it is in every event of its namespace.
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr size_t kMaxTenantBytes = 128;

// What two sequences must agree on, besides their tokens, before they may share blocks.
struct NamespaceKey {
  std::optional<uint64_t> lora_id;  // None: the base model.
  std::string cache_salt;
  std::string tenant;  // Empty: shared by all tenants that publish as shared.
  // Its blocks are named by keys of the clients (client_key.h) and not by tokens. The namespace
  // that differs in this alone is another one.
  bool keyed = false;

  friend bool operator==(const NamespaceKey&, const NamespaceKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const NamespaceKey& key) {
    return H::combine(std::move(h), key.lora_id, key.cache_salt, key.tenant, key.keyed);
  }
};

BlockHash HashNamespace(const NamespaceKey& key);
BlockHash HashBlock(BlockHash parent, const BlockKey& key);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_BLOCK_HASH_H_
