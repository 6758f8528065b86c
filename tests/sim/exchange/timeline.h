// Virtual time, and what happens when.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_TIMELINE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"

namespace pagoda::exchange_sim {

// Things that happen at one moment happen in the order in which they were planned.
class Timeline {
 public:
  absl::Time now() const { return now_; }
  void At(absl::Time when, std::function<void()> what) {
    events_.emplace(std::pair{std::max(when, now_), next_++}, std::move(what));
  }
  void In(absl::Duration later, std::function<void()> what) { At(now_ + later, std::move(what)); }
  // When the next one happens; InfiniteFuture: nothing is planned.
  absl::Time next() const {
    return events_.empty() ? absl::InfiniteFuture() : events_.begin()->first.first;
  }
  // REQUIRES: something is planned.
  void RunNext() {
    auto event = events_.extract(events_.begin());
    now_ = event.key().first;
    event.mapped()();
  }
  // REQUIRES: nothing is planned before `time`.
  void AdvanceTo(absl::Time time) { now_ = std::max(now_, time); }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  uint64_t next_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_TIMELINE_H_
