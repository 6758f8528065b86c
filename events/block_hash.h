// The published block hash: a portable, chained 64-bit hash. A router can compute it from tokens
// alone.
//
//   hash(root)  = XXH3_64(name_bytes, seed = 0); 0 for the namespace that has no LoRA, salt or
//                 tenant and is not keyed
//   hash(block) = XXH3_64(block_bytes, seed = hash(parent))
//
// name_bytes is a concatenation of:
// 1. u8 flags (1: LoRA, 2: tenant, 4: keyed)
// 2. u64 lora_id (0 without LoRA)
// 3. with a tenant: the length of its name as u32, and the name's bytes
// 4. the bytes of the salt
//
// block_bytes is a concatenation of:
// 1. the block's token ids as u32
// 2. if any token has an extra id: u8 1, then an id for each token as u64 (0: none)
// 3. for each run of a multimodal item's places, in order: u8 2; the run's first token in the
//    block, its length and its first place in the item as u32; the item's 32-byte digest
//
// For a keyed block, block_bytes is the length of its key as u32, the key's bytes, and zeros up to
// 64 bytes.
//
// Integers are little-endian. A full block hashes all its tokens, a tail its committed ones.
// events/README.md has test vectors.
//
// The core finds blocks by this hash and then compares their keys. A collision costs a comparison,
// and never a wrong reuse.
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

// The longest salt, in bytes. Bounded because every Stored event of its namespace has it.
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr size_t kMaxTenantBytes = 128;

// Two sequences share blocks only if their tokens and their namespaces are equal.
struct NamespaceKey {
  std::optional<uint64_t> lora_id;  // None: the base model.
  std::string cache_salt;
  std::string tenant;  // Empty: the tenants that share publish their blocks here.
  // Clients name the blocks by keys (client_key.h) instead of tokens. The namespace that differs in
  // this alone is another namespace.
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
