#include "manager/policy/evicted_content.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace pagoda {

EvictedContent::EvictedContent(uint32_t num_slots) : buckets_(std::max(1u, num_slots / 4)) {}

// The ways behind the one that is found move up.
uint32_t EvictedContent::TakeFrom(Bucket& bucket, uint64_t in_newer, uint64_t in_older) {
  const bool is_newer = in_newer != 0;
  uint64_t& word = is_newer ? bucket.newer : bucket.older;
  const auto way =
      static_cast<uint32_t>(std::countr_zero(is_newer ? in_newer : in_older)) / kWayBits;
  const auto note = static_cast<uint32_t>(word >> (way * kWayBits) & kMaxNote);
  const uint64_t below = (uint64_t{1} << (way * kWayBits)) - 1;
  word = (word & below) | (word >> kWayBits & ~below);
  if (is_newer) {
    bucket.newer |= bucket.older << (64 - kWayBits);
    bucket.older >>= kWayBits;
  }
  return note;
}

}  // namespace pagoda
