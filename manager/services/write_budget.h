// How much may be written to a disk: a token bucket of bytes.
#ifndef PAGODA_MANAGER_SERVICES_WRITE_BUDGET_H_
#define PAGODA_MANAGER_SERVICES_WRITE_BUDGET_H_

#include <algorithm>
#include <cstdint>

#include "absl/numeric/int128.h"
#include "absl/time/time.h"

namespace pagoda {

// In every span of time T at most rate * (T + 1 second) bytes are taken. A clock that goes back
// adds nothing. The bucket counts whole bytes and keeps the rest of a byte as time.
// Thread-compatible.
class WriteBudget {
 public:
  // `bytes_per_second` 0: no limit. The bucket is full at `now` and holds one second's worth.
  WriteBudget(uint64_t bytes_per_second, absl::Time now)
      : rate_(bytes_per_second), left_(bytes_per_second), at_(now) {}

  // Takes `bytes`, or nothing if the bucket has fewer. An amount above one second's worth needs a
  // full bucket, and the rest is owed.
  bool Take(uint64_t bytes, absl::Time now) {
    if (rate_ == 0) return true;
    Fill(now);
    if (owed_ > 0 || left_ < std::min(bytes, rate_)) return false;
    if (bytes <= left_) {
      left_ -= bytes;
    } else {
      owed_ = bytes - left_;
      left_ = 0;
    }
    return true;
  }
  // Returns bytes that were taken and are not written after all.
  void GiveBack(uint64_t bytes) {
    if (rate_ == 0) return;
    const uint64_t paid = std::min(owed_, bytes);
    owed_ -= paid;
    left_ = std::min(rate_, left_ + (bytes - paid));
  }

 private:
  void Fill(absl::Time now) {
    if (now <= at_) return;
    at_ = std::max(at_, now - kLongest);
    const absl::uint128 nanoseconds = static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - at_));
    uint64_t bytes = static_cast<uint64_t>(nanoseconds * rate_ / kNanosecondsPerSecond);
    // The rest of a byte stays in the clock.
    const absl::uint128 used = (absl::uint128(bytes) * kNanosecondsPerSecond + rate_ - 1) / rate_;
    at_ += absl::Nanoseconds(static_cast<int64_t>(used));
    const uint64_t paid = std::min(owed_, bytes);
    owed_ -= paid;
    bytes -= paid;
    left_ = std::min(rate_, left_ + bytes);
  }

  static constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;
  static constexpr absl::Duration kLongest = absl::Hours(24);

  const uint64_t rate_;
  uint64_t left_;
  uint64_t owed_ = 0;
  absl::Time at_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SERVICES_WRITE_BUDGET_H_
