#include "engine/model/cuda/step/step_lists.h"

#include <algorithm>

namespace pagoda::cuda {

absl::Status StepLists::Upload(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
                               uint64_t num_sums, AddendLists& lists) {
  // The device may still copy from the pinned memory.
  if (in_flight_) {
    Waited();
    if (absl::Status waited = device_.Wait(); !waited.ok()) return waited;
  }
  const uint64_t count = rows.size();
  const uint64_t bytes = (num_sums + count) * sizeof(uint32_t) + count * sizeof(float);
  absl::Status status = pinned_.Grow(bytes);
  status.Update(memory_.Grow(bytes));
  if (!status.ok()) return status;
  auto* const first = pinned_.as<uint32_t>();
  uint32_t* const next = first + num_sums;
  std::fill_n(first, num_sums, kNoAddend);
  for (uint64_t i = count; i-- > 0;) {
    next[i] = first[rows[i]];
    first[rows[i]] = static_cast<uint32_t>(i);
  }
  std::copy(factors.begin(), factors.end(), reinterpret_cast<float*>(next + count));
  const auto* const there = memory_.as<uint32_t>();
  lists = {.first_of_row = there,
           .next = there + num_sums,
           .factors = reinterpret_cast<const float*>(there + num_sums + count)};
  in_flight_ = true;
  return device_.Copy(memory_.data(), pinned_.data(), bytes);
}

}  // namespace pagoda::cuda
