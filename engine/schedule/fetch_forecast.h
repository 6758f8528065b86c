// Predicts the time of a fetch from disk, and the time to compute the same tokens again.
#ifndef PAGODA_ENGINE_SCHEDULE_FETCH_FORECAST_H_
#define PAGODA_ENGINE_SCHEDULE_FETCH_FORECAST_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/stopwatch.h"

namespace pagoda {

// Learns both times from the engine's measurements, and predicts which of the two is shorter for
// the next fetch. Old measurements fade. Thread-compatible. Reads no clock.
//
// It orders a trial if it cannot predict: before the first fetch has ended, and for a fetch much
// larger than the measured ones. While fetches bring nothing, or are slower than computing, it
// refuses them, except for a trial from time to time, because a disk can recover.
class FetchForecast {
 public:
  // The time to wait for a fetch is the predicted time to compute its tokens, within these bounds.
  // The lower bound exists because the engine learns of a fetch's end only between two steps.
  static constexpr absl::Duration kLeastPatience = absl::Milliseconds(20);
  static constexpr absl::Duration kMostPatience = absl::Seconds(30);
  // The time to wait if nothing has been computed yet.
  static constexpr absl::Duration kFirstPatience = absl::Seconds(5);
  // Pauses until the next trial: kTrialPause after a fetch that was slower than computing,
  // kFirstFailurePause after a fetch that brought nothing. Each further failure doubles the latter,
  // up to kMostFailurePause.
  static constexpr absl::Duration kTrialPause = absl::Seconds(30);
  static constexpr absl::Duration kFirstFailurePause = absl::Seconds(1);
  static constexpr absl::Duration kMostFailurePause = absl::Minutes(5);
  // A fetch of more than this multiple of the largest measured one is a trial.
  static constexpr uint64_t kFarLarger = 4;

  // The model took `time` for a step of `tokens`, most of them from prompts.
  void Computed(uint64_t tokens, absl::Duration time);
  // A fetch took `time` from its order on, and brought `tokens` of the `wanted` ones. A fetch that
  // was cut off reports how far it came.
  void Fetched(uint64_t tokens, uint64_t wanted, absl::Duration time, SteadyTime now);
  // A request waited for a fetch that brought nothing.
  void Failed(SteadyTime now);

  struct Answer {
    bool worth = false;
    std::optional<absl::Duration> fetch;      // Predicted; empty without a measurement.
    std::optional<absl::Duration> recompute;  // Predicted; empty without a measurement.
    absl::Duration patience;                  // How long to wait for the fetch, if it is worth it.
  };
  // Whether to fetch `fetch_tokens` instead of computing `recompute_tokens`. The numbers can
  // differ: a part of a prefix can be in memory and useless without the rest. A yes can be a trial,
  // which begins a pause. REQUIRES: both are above 0.
  Answer Worth(uint64_t fetch_tokens, uint64_t recompute_tokens, SteadyTime now);

 private:
  std::optional<absl::Duration> FetchTime(uint64_t tokens) const;
  std::optional<absl::Duration> RecomputeTime(uint64_t tokens) const;

  // Sums over the computed tokens; the latest ones weigh most.
  double computed_tokens_ = 0;
  double computed_seconds_ = 0;
  // Sums over the fetches, of 1, the tokens, the seconds and their products; the latest ones weigh
  // most.
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
