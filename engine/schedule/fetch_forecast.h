// What a fetch from disk takes, and what it takes to compute the same tokens again.
#ifndef PAGODA_ENGINE_SCHEDULE_FETCH_FORECAST_H_
#define PAGODA_ENGINE_SCHEDULE_FETCH_FORECAST_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "engine/schedule/stopwatch.h"

namespace pagoda {

// Learns both from what the engine has done, and foretells whether the next fetch is the faster one
// of the two. Old measurements fade. Thread-compatible. Reads no clock.
//
// What it cannot foretell it tries: the speed of the disk before the first fetch has ended, and a
// fetch that is much larger than those that were measured. While fetches bring nothing, or are
// slower than computing, it says no, but for a trial from time to time: a disk may recover.
class FetchForecast {
 public:
  // A fetch is waited for as long as computing would take, but not less than this: an engine hears
  // of its end between two steps. And not longer than the other one.
  static constexpr absl::Duration kLeastPatience = absl::Milliseconds(20);
  static constexpr absl::Duration kMostPatience = absl::Seconds(30);
  // Likewise, where nothing has been computed yet.
  static constexpr absl::Duration kFirstPatience = absl::Seconds(5);
  // From a fetch that was slower than computing to the next trial; from one that brought nothing,
  // which doubles with each one more.
  static constexpr absl::Duration kTrialPause = absl::Seconds(30);
  static constexpr absl::Duration kFirstFailurePause = absl::Seconds(1);
  static constexpr absl::Duration kMostFailurePause = absl::Minutes(5);
  // A fetch is tried that wants more than so many times the tokens of the largest one measured.
  static constexpr uint64_t kFarLarger = 4;

  // A step, most of whose tokens were prompts', took the model so long.
  void Computed(uint64_t tokens, absl::Duration time);
  // A fetch took so long, from its order on, and brought so many of the tokens that were wanted.
  // One that was cut off says how far it came.
  void Fetched(uint64_t tokens, uint64_t wanted, absl::Duration time, SteadyTime now);
  // A fetch was waited for and brought nothing.
  void Failed(SteadyTime now);

  struct Answer {
    bool worth = false;
    std::optional<absl::Duration> fetch;      // As foretold. Empty where nothing was measured that
    std::optional<absl::Duration> recompute;  // says so.
    absl::Duration patience;                  // How long to wait for the fetch, if it is worth it.
  };
  // Whether to fetch so many tokens rather than compute the others: a part of a prefix may lie in
  // memory and be useless without the rest. A yes may be a trial: then a pause begins.
  // REQUIRES: both are above 0.
  Answer Worth(uint64_t fetch_tokens, uint64_t recompute_tokens, SteadyTime now);

 private:
  std::optional<absl::Duration> FetchTime(uint64_t tokens) const;
  std::optional<absl::Duration> RecomputeTime(uint64_t tokens) const;

  // Sums over the tokens computed, the latest ones weigh most.
  double computed_tokens_ = 0;
  double computed_seconds_ = 0;
  // Sums over the fetches, likewise: of 1, the tokens, the seconds, and their products.
  double fetches_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
  double tokens_tokens_ = 0;
  double tokens_seconds_ = 0;
  uint64_t largest_ = 0;
  uint32_t failures_ = 0;  // Since the last fetch that brought something.
  SteadyTime next_trial_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_FETCH_FORECAST_H_
