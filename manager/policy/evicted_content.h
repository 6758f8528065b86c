// Content that left a cache recently: hashes without blocks.
#ifndef PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_
#define PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_

#include <bit>
#include <cstdint>
#include <optional>

#include "base/big_array.h"
#include "base/check.h"
#include "events/block_hash.h"

namespace pagoda {

// Remembers the contents that left last, with a note for each: about two contents for each slot. It
// is a history buffer, like 2Q's A1out and S3-FIFO's ghost queue, as a set-associative table of
// fingerprints of 14 bits. One look-up in 2,000 finds content that was never there. Takes 4 bytes
// for each slot at once. Every call touches one 16-byte bucket. Thread-compatible.
class EvictedContent {
 public:
  static constexpr uint32_t kNoteBits = 2;
  static constexpr uint32_t kMaxNote = (1u << kNoteBits) - 1;

  explicit EvictedContent(uint32_t num_slots);

  // `content` left; `note` is at most kMaxNote. BlockHash{} is not remembered.
  void Remember(BlockHash content, uint32_t note);

  // Brings what the two calls read into the processor's cache.
  void Prefetch(BlockHash content) const { __builtin_prefetch(&buckets_[IndexOf(content)], 1); }
  // Returns the note of `content`, and forgets it.
  std::optional<uint32_t> Take(BlockHash content);

 private:
  static constexpr uint32_t kWayBits = 16;
  using Ways [[gnu::vector_size(16)]] = uint16_t;
  using Halves [[gnu::vector_size(16)]] = uint64_t;

  // Eight ways: a fingerprint above a note; 0 is empty. The newest is in the low bits of `newer`.
  struct alignas(16) Bucket {
    uint64_t newer = 0;
    uint64_t older = 0;
  };

  // From the hash's high bits.
  uint64_t IndexOf(BlockHash content) const {
    return (content.value() >> 32) * buckets_.size() >> 32;
  }
  // From the hash's low bits, never 0, with a note of 0.
  static uint16_t Fingerprint(BlockHash content) {
    constexpr uint64_t kFingerprints = (1u << (kWayBits - kNoteBits)) - 1;
    return static_cast<uint16_t>((1 + content.value() % kFingerprints) << kNoteBits);
  }
  uint32_t TakeFrom(Bucket& bucket, uint64_t in_newer, uint64_t in_older);

  BigArray<Bucket, &AllocateScattered> buckets_;
};

// Inline, because a request makes these calls for hundreds of blocks.

inline void EvictedContent::Remember(BlockHash content, uint32_t note) {
  PAGODA_CHECK(note <= kMaxNote, "a note has its bits");
  if (content.value() == 0) return;
  Bucket& bucket = buckets_[IndexOf(content)];
  bucket.older = bucket.older << kWayBits | bucket.newer >> (64 - kWayBits);
  bucket.newer = bucket.newer << kWayBits | Fingerprint(content) | note;
}

inline std::optional<uint32_t> EvictedContent::Take(BlockHash content) {
  if (content.value() == 0) return std::nullopt;
  Bucket& bucket = buckets_[IndexOf(content)];
  // All bits of each way with that fingerprint.
  const auto matches = std::bit_cast<Halves>(
      (std::bit_cast<Ways>(bucket) & static_cast<uint16_t>(~kMaxNote)) == Fingerprint(content));
  if ((matches[0] | matches[1]) == 0) return std::nullopt;
  return TakeFrom(bucket, matches[0], matches[1]);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_
