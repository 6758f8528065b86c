#ifndef PAGODA_CLIENTS_CPP_BACKOFF_H_
#define PAGODA_CLIENTS_CPP_BACKOFF_H_

#include <algorithm>

#include "absl/random/random.h"
#include "absl/time/time.h"

namespace pagoda {

// The wait before each retry. The bound doubles from `first` to `most`. Each wait is drawn from the
// upper half of the bound, so that clients that lost the same daemon do not all reconnect at one
// moment. Thread-compatible.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration most) : bound_(std::min(first, most)), most_(most) {}

  absl::Duration Next() {
    const absl::Duration wait = bound_ * absl::Uniform(random_, 0.5, 1.0);
    bound_ = std::min(2 * bound_, most_);
    return wait;
  }

 private:
  absl::InsecureBitGen random_;
  absl::Duration bound_;
  absl::Duration most_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_BACKOFF_H_
