// What left a cache not long ago: hashes without blocks.
#ifndef PAGODA_MANAGER_EVICTED_CONTENT_H_
#define PAGODA_MANAGER_EVICTED_CONTENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "events/block_hash.h"

namespace pagoda {

// Remembers about as many contents as twice the slots of its tier, the last that left, with four
// bits each: a history buffer, as 2Q's A1out, MQ's Qout and S3-FIFO's ghost queue. A
// set-associative table of 12-bit fingerprints: one look-up in 500 finds what was never there. 4
// bytes a slot, taken at once; every call touches one 16-byte bucket. Thread-compatible.
class EvictedContent {
 public:
  static constexpr uint32_t kMaxNote = 15;

  explicit EvictedContent(uint32_t num_slots);

  // `content` left; `note` is at most kMaxNote. BlockHash{} is not remembered.
  void Remember(BlockHash content, uint32_t note);

  struct Memory {
    uint32_t note = 0;
    uint64_t age = 0;  // About how many others left since.
  };
  // What is remembered of `content`, which is forgotten by that.
  std::optional<Memory> Take(BlockHash content);

 private:
  static constexpr uint32_t kWays = 8;
  // A fingerprint above a note; 0 is empty. The last that came first.
  using Bucket = std::array<uint16_t, kWays>;

  Bucket& BucketOf(BlockHash content);

  std::vector<Bucket> buckets_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVICTED_CONTENT_H_
