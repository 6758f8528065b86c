// Content that left a cache recently: hashes without blocks.
#ifndef PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_
#define PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_

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
  static constexpr uint64_t kEachWay = 0x0001'0001'0001'0001;

  // Eight ways: a fingerprint above a note; 0 is empty. The newest is in the low bits of `newer`.
  struct alignas(16) Bucket {
    uint64_t newer = 0;
    uint64_t older = 0;
  };

  // From the hash's high bits.
  uint64_t IndexOf(BlockHash content) const {
    return (content.value() >> 32) * buckets_.size() >> 32;
  }
  // From the hash's low bits, never 0.
  static uint64_t Fingerprint(BlockHash content) {
    return 1 + content.value() % ((1u << (kWayBits - kNoteBits)) - 1);
  }
  // The top bit of each way with that fingerprint. Ways above the lowest one can be wrong.
  static uint64_t Matches(uint64_t word, uint64_t fingerprint) {
    const uint64_t differs =
        (word ^ fingerprint * (kEachWay << kNoteBits)) & ~(kEachWay * kMaxNote);
    return (differs - kEachWay) & ~differs & kEachWay << (kWayBits - 1);
  }
  uint32_t TakeFrom(Bucket& bucket, uint64_t in_newer, uint64_t in_older);

  BigArray<Bucket, &AllocateScattered> buckets_;
};

// Inline, because a request makes these calls for hundreds of blocks.

inline void EvictedContent::Remember(BlockHash content, uint32_t note) {
  PAGODA_CHECK(note <= kMaxNote, "a note has its bits");
  if (content == BlockHash{}) return;
  Bucket& bucket = buckets_[IndexOf(content)];
  bucket.older = bucket.older << kWayBits | bucket.newer >> (64 - kWayBits);
  bucket.newer = bucket.newer << kWayBits | Fingerprint(content) << kNoteBits | note;
}

inline std::optional<uint32_t> EvictedContent::Take(BlockHash content) {
  if (content == BlockHash{}) return std::nullopt;
  Bucket& bucket = buckets_[IndexOf(content)];
  const uint64_t fingerprint = Fingerprint(content);
  const uint64_t in_newer = Matches(bucket.newer, fingerprint);
  const uint64_t in_older = Matches(bucket.older, fingerprint);
  if ((in_newer | in_older) == 0) return std::nullopt;
  return TakeFrom(bucket, in_newer, in_older);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_EVICTED_CONTENT_H_
