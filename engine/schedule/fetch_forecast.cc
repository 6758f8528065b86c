#include "engine/schedule/fetch_forecast.h"

#include <cmath>

namespace pagoda {
namespace {

// Tokens computed this many tokens ago weigh half as much as the latest.
constexpr double kHalfLifeTokens = 4096;
// The weight of a fetch relative to the next one.
constexpr double kFading = 0.8;
// The fetches count as equally large if the variance of their sizes is below this multiple of the
// mean's square.
constexpr double kLeastVariance = 1e-3;

SteadyTime After(SteadyTime time, absl::Duration pause) {
  return time + absl::ToChronoNanoseconds(pause);
}

}  // namespace

void FetchForecast::Computed(uint64_t tokens, absl::Duration time) {
  if (tokens == 0) return;
  const double fading = std::exp2(-static_cast<double>(tokens) / kHalfLifeTokens);
  computed_tokens_ = computed_tokens_ * fading + static_cast<double>(tokens);
  computed_seconds_ = computed_seconds_ * fading + absl::ToDoubleSeconds(time);
}

void FetchForecast::Fetched(uint64_t tokens, uint64_t wanted, absl::Duration time, SteadyTime now) {
  const auto x = static_cast<double>(tokens);
  const double y = absl::ToDoubleSeconds(time);
  fetches_ = fetches_ * kFading + 1;
  tokens_ = tokens_ * kFading + x;
  seconds_ = seconds_ * kFading + y;
  tokens_tokens_ = tokens_tokens_ * kFading + x * x;
  tokens_seconds_ = tokens_seconds_ * kFading + x * y;
  largest_ = std::max(largest_, wanted);
  failures_ = 0;
  next_trial_ = After(now, kTrialPause);
}

void FetchForecast::Failed(SteadyTime now) {
  const uint32_t doublings = std::min(failures_++, 16u);
  next_trial_ =
      After(now, std::min(kFirstFailurePause * (int64_t{1} << doublings), kMostFailurePause));
}

FetchForecast::Answer FetchForecast::Worth(uint64_t fetch_tokens, uint64_t recompute_tokens,
                                           SteadyTime now) {
  Answer answer{.fetch = FetchTime(fetch_tokens), .recompute = RecomputeTime(recompute_tokens)};
  answer.patience = answer.recompute.has_value()
                        ? std::clamp(*answer.recompute, kLeastPatience, kMostPatience)
                        : kFirstPatience;
  const bool is_slower = answer.fetch.has_value() && answer.recompute.has_value() &&
                         *answer.fetch >= *answer.recompute;
  if (failures_ == 0 && !is_slower) {
    answer.worth = true;
  } else if (now >= next_trial_) {
    next_trial_ = After(now, kTrialPause);
    answer.worth = true;
  }
  return answer;
}

// Fits a line to the fetches by least squares. Neither the constant part nor the part per token is
// negative. If all fetches were equally large, time is proportional to tokens.
std::optional<absl::Duration> FetchForecast::FetchTime(uint64_t tokens) const {
  if (tokens > largest_ * kFarLarger) return std::nullopt;
  const double most_per_token = seconds_ / tokens_;
  const double variance = fetches_ * tokens_tokens_ - tokens_ * tokens_;
  double per_token = most_per_token;
  if (variance > kLeastVariance * tokens_ * tokens_) {
    per_token = std::clamp((fetches_ * tokens_seconds_ - tokens_ * seconds_) / variance, 0.0,
                           most_per_token);
  }
  const double base = (seconds_ - per_token * tokens_) / fetches_;
  return absl::Seconds(base + per_token * static_cast<double>(tokens));
}

std::optional<absl::Duration> FetchForecast::RecomputeTime(uint64_t tokens) const {
  if (computed_tokens_ == 0) return std::nullopt;
  return absl::Seconds(computed_seconds_ / computed_tokens_ * static_cast<double>(tokens));
}

}  // namespace pagoda
