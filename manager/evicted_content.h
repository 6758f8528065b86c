// Content that left a cache recently: hashes without blocks.
#ifndef PAGODA_MANAGER_EVICTED_CONTENT_H_
#define PAGODA_MANAGER_EVICTED_CONTENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "events/block_hash.h"

namespace pagoda {

// Remembers the contents that left last, with four bits for each. It remembers about two contents
// for each slot of its tier. It is a history buffer, like 2Q's A1out, MQ's Qout and S3-FIFO's ghost
// queue. It is a set-associative table of 12-bit fingerprints: one look-up in 500 finds content
// that was never there. Takes 4 bytes for each slot at once. Every call touches one 16-byte bucket.
// Thread-compatible.
class EvictedContent {
 public:
  static constexpr uint32_t kMaxNote = 15;

  explicit EvictedContent(uint32_t num_slots);

  // `content` left; `note` is at most kMaxNote. BlockHash{} is not remembered.
  void Remember(BlockHash content, uint32_t note);

  struct Memory {
    uint32_t note = 0;
    uint64_t age = 0;  // About how many others have left since.
  };
  // Brings what the two calls read into the processor's cache.
  void Prefetch(BlockHash content) const {
    __builtin_prefetch(&buckets_[(content.value() >> 32) * buckets_.size() >> 32], 1);
  }
  // Returns the memory of `content`, and forgets it.
  std::optional<Memory> Take(BlockHash content);

 private:
  static constexpr uint32_t kWays = 8;
  // A fingerprint above a note; 0 is empty. The newest comes first.
  using Bucket = std::array<uint16_t, kWays>;

  Bucket& BucketOf(BlockHash content);

  std::vector<Bucket> buckets_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVICTED_CONTENT_H_
