// A digest of a block's content that cannot be forged: a chain of SHA-256 from the namespace
// through every block above it.
//
//   digest(namespace) = SHA-256(u8 'N', u8 flags (1: LoRA, 2: keyed), u64 lora_id (0 without), the
//                       salt, the tenant: each its length as u32 and its bytes)
//   digest(block)     = SHA-256(u8 'B', digest(parent), u32 token count, the token ids as u32, u8 1
//                       if any token has an extra, 2 if it is keyed, else 0, then with 1 for each
//                       token its extra). For a keyed block the words of its key are the tokens.
//   extra             = u64 extra_id, 32 bytes of item digest, u32 item_offset, u8 in_item
//
// Integers are little-endian. The published block hash (events/block_hash.h) has 64 bits, and a
// tenant can make collisions for it. It is good enough to find candidates whose keys are compared,
// but not to prove what a piece of memory holds.
#ifndef PAGODA_MANAGER_RESTART_CONTENT_DIGEST_H_
#define PAGODA_MANAGER_RESTART_CONTENT_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/byte_codec.h"
#include "events/block_hash.h"
#include "events/block_key.h"

namespace pagoda {

struct ContentDigest {
  std::array<std::byte, 32> bytes = {};
  friend bool operator==(const ContentDigest&, const ContentDigest&) = default;
  friend auto operator<=>(const ContentDigest&, const ContentDigest&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ContentDigest& digest) {
    return H::combine_contiguous(std::move(h), digest.bytes.data(), digest.bytes.size());
  }
};

// The bytes of a token's extra, as above.
inline constexpr size_t kTokenExtraBytes = 8 + 32 + 4 + 1;
void PutExtra(const TokenExtra& extra, ByteWriter& out);
TokenExtra GetExtra(ByteReader& in);
// Whether any token has an extra. No extras, and an empty extra for each token, mean the same.
bool HasExtras(absl::Span<const TokenExtra> extras);

// Makes digests. Keeps the hash function's state and a buffer, so that a digest allocates nothing.
// Thread-compatible.
class ContentDigester {
 public:
  ContentDigester();
  ~ContentDigester();

  ContentDigest OfNamespace(const NamespaceKey& key);
  ContentDigest OfBlock(const ContentDigest& parent, const BlockKey& key);
  ContentDigest OfBytes(absl::Span<const std::byte> bytes);

 private:
  struct Sha256;

  const std::unique_ptr<Sha256> sha256_;
  std::vector<std::byte> buffer_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_CONTENT_DIGEST_H_
