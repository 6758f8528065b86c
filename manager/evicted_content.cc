#include "manager/evicted_content.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr uint32_t kNoteBits = 4;

// From the hash's low bits, never 0. The bucket comes from the high bits.
uint16_t Fingerprint(BlockHash content) {
  return static_cast<uint16_t>(1 + content.value() % 4095);
}

}  // namespace

EvictedContent::EvictedContent(uint32_t num_slots) : buckets_(std::max(1u, num_slots / 4)) {}

EvictedContent::Bucket& EvictedContent::BucketOf(BlockHash content) {
  return buckets_[(content.value() >> 32) * buckets_.size() >> 32];
}

void EvictedContent::Remember(BlockHash content, uint32_t note) {
  PAGODA_CHECK(note <= kMaxNote, "a note has four bits");
  if (content == BlockHash{}) return;
  Bucket& bucket = BucketOf(content);
  std::copy_backward(bucket.begin(), bucket.end() - 1, bucket.end());
  bucket.front() = static_cast<uint16_t>(Fingerprint(content) << kNoteBits | note);
}

std::optional<EvictedContent::Memory> EvictedContent::Take(BlockHash content) {
  if (content == BlockHash{}) return std::nullopt;
  Bucket& bucket = BucketOf(content);
  const uint16_t fingerprint = Fingerprint(content);
  const auto found = std::find_if(bucket.begin(), bucket.end(), [fingerprint](uint16_t entry) {
    return entry >> kNoteBits == fingerprint;
  });
  if (found == bucket.end()) return std::nullopt;
  const auto way = static_cast<uint64_t>(found - bucket.begin());
  const Memory memory = {.note = *found & kMaxNote,
                         .age = way * buckets_.size() + buckets_.size() / 2};
  std::copy(found + 1, bucket.end(), found);
  bucket.back() = 0;
  return memory;
}

}  // namespace pagoda
