#include "clients/pagodactl/admin/advice_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// Above this error, in percentage points, more traffic should come first.
constexpr double kLargeError = 3;

uint64_t BytesOf(const v1::GetStatusResponse& status, std::optional<v1::Tier> only) {
  uint64_t bytes = 0;
  for (const v1::WindowStatus& window : status.windows()) {
    for (const v1::TierStatus& tier : window.tiers()) {
      if (only.has_value() && tier.tier() != *only) continue;
      bytes += tier.capacity_blocks() * tier.block_bytes();
    }
  }
  return bytes;
}

// The farthest tier on the medium; `from` 1 leaves out the first tier.
std::optional<v1::Tier> LastTierOn(const v1::GetStatusResponse& status, v1::Medium medium,
                                   int from = 0) {
  std::optional<v1::Tier> last;
  const auto& tiers = status.cache().tiers();
  for (int i = from; i < tiers.size(); ++i) {
    if (tiers[i].medium() == medium) last = tiers[i].tier();
  }
  return last;
}

absl::StatusOr<AdviceQuestion> AskMedium(const v1::GetStatusResponse& status, v1::Medium medium,
                                         const std::string& what, const std::string& size) {
  const auto all = static_cast<double>(BytesOf(status, std::nullopt));
  const std::optional<v1::Tier> tier = LastTierOn(status, medium);
  const double now = tier.has_value() ? static_cast<double>(BytesOf(status, tier)) : 0;
  if (all == 0) return MakeError(Reason::kInvalidArgument, "the cache has no blocks");
  const bool is_multiple = size.ends_with("x");
  double multiple = 0;
  double then = 0;
  if (is_multiple) {
    const std::string number = size.substr(0, size.size() - 1);
    if (!absl::SimpleAtod(number, &multiple) || !(multiple >= 0) || !std::isfinite(multiple)) {
      return MakeError(Reason::kInvalidArgument, absl::StrCat("'", size, "' is not a multiple"));
    }
    if (!tier.has_value()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("the cache has no ", what, ", so '", size, "' of it is none"));
    }
    then = multiple * now;
  } else {
    const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(size);
    if (!bytes.has_value()) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("'", size, "' is neither ", kByteSizeForms, " nor a multiple such as 2x"));
    }
    then = static_cast<double>(*bytes);
  }
  const double factor = (all - now + then) / all;
  if (!(factor > 0)) {
    return MakeError(Reason::kInvalidArgument, "nothing would be left of the cache");
  }
  return AdviceQuestion{absl::StrCat("with ", size, is_multiple ? " the " : " of ", what), factor};
}

// "1.2 M", "340 k", "87".
std::string TokensText(double tokens) {
  const double size = std::abs(tokens);
  if (size >= 1e9) return absl::StrFormat("%.1f G", size / 1e9);
  if (size >= 1e6) return absl::StrFormat("%.1f M", size / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.0f k", size / 1e3);
  return absl::StrFormat("%.0f", size);
}

std::string FactorText(double factor) { return absl::StrFormat("%.3gx", factor); }

double SavedTokens(const v1::WindowHitRateCurve& curve, double rate) {
  return (rate - curve.hit_rate()) * curve.lookup_tokens_per_hour();
}

std::string AnswerText(const v1::WindowHitRateCurve& curve, const AdviceQuestion& question,
                       const v1::HitRatePoint& point) {
  const double saved = SavedTokens(curve, point.hit_rate());
  std::string text = absl::StrFormat(
      "%s (%s in all) the hit rate would be %.1f +- %.1f %% (now %.1f %%), %s %s +- %s prefill "
      "tokens an hour",
      question.change, FactorText(question.factor), 100 * point.hit_rate(), 100 * point.error(),
      100 * curve.hit_rate(), saved >= 0 ? "saving" : "costing", TokensText(saved),
      TokensText(point.error() * curve.lookup_tokens_per_hour()));
  if (point.capacity_factor() < question.factor) {
    absl::StrAppend(&text, "; this is the answer for ", FactorText(point.capacity_factor()),
                    ", the most that is sampled");
  }
  if (point.capacity_factor() > curve.known_factor()) {
    absl::StrAppend(&text, "; the cache has not been that full yet, so it can still become more");
  }
  return text + "\n";
}

std::string GainEndText(const v1::WindowHitRateCurve& curve) {
  if (curve.gain_ends_factor() > 0) {
    return absl::StrCat("the gain ends at ", FactorText(curve.gain_ends_factor()),
                        ": more adds less than half a point\n");
  }
  return absl::StrCat("the end of the gain is not known: so far the daemon has seen blocks for ",
                      FactorText(curve.known_factor()), "\n");
}

std::string TrafficText(const v1::WindowHitRateCurve& curve) {
  std::string text = absl::StrFormat(
      "from %s of traffic, %s; %.3g %% of the blocks are in the sample\n",
      FormatElapsed(DurationFromProto(curve.observed_time())),
      FormatCounted(curve.observed_requests(), "request"), 100 * curve.sampled_share());
  double error = 0;
  for (const v1::HitRatePoint& point : curve.points()) error = std::max(error, 100 * point.error());
  if (error > kLargeError) {
    absl::StrAppendFormat(&text,
                          "some errors are large (up to %.1f points): with more traffic they can "
                          "become smaller\n",
                          error);
  }
  return text;
}

std::string WindowText(const std::string& cache, const v1::WindowHitRateCurve& curve,
                       const std::vector<AdviceQuestion>& questions) {
  std::string text =
      absl::StrFormat("cache %s, window %s: %s, %s over all tiers\n", cache,
                      WindowName(WindowFromProto(curve.window_size())),
                      FormatBlocks(curve.capacity_blocks()), FormatBytes(curve.capacity_bytes()));
  if (!curve.unavailable().empty()) return absl::StrCat(text, curve.unavailable(), "\n");
  const int table = curve.points_size() - static_cast<int>(questions.size());
  for (size_t i = 0; i < questions.size(); ++i) {
    absl::StrAppend(&text,
                    AnswerText(curve, questions[i], curve.points(table + static_cast<int>(i))));
  }
  absl::StrAppend(&text, GainEndText(curve), TrafficText(curve));
  absl::StrAppendFormat(&text, "\n%-9s %12s %11s %9s %7s %17s\n", "CAPACITY", "BLOCKS", "SIZE",
                        "HIT RATE", "ERROR", "SAVED TOKENS/H");
  const double block_bytes = static_cast<double>(curve.capacity_bytes()) /
                             static_cast<double>(std::max<uint64_t>(1, curve.capacity_blocks()));
  for (int i = 0; i < table; ++i) {
    const v1::HitRatePoint& point = curve.points(i);
    const double saved = SavedTokens(curve, point.hit_rate());
    const auto bytes =
        static_cast<uint64_t>(static_cast<double>(point.capacity_blocks()) * block_bytes);
    absl::StrAppendFormat(&text, "%-9s %12s %11s %7.1f %% %7.1f %17s\n",
                          FactorText(point.capacity_factor()), FormatCount(point.capacity_blocks()),
                          FormatBytes(bytes), 100 * point.hit_rate(), 100 * point.error(),
                          absl::StrCat(saved < 0 ? "-" : "", TokensText(saved)));
  }
  return text;
}

}  // namespace

absl::StatusOr<AdviceQuestion> AskHostMemory(const v1::GetStatusResponse& status,
                                             const std::string& size) {
  return AskMedium(status, v1::MEDIUM_HOST, "host memory", size);
}

absl::StatusOr<AdviceQuestion> AskDisk(const v1::GetStatusResponse& status,
                                       const std::string& size) {
  return AskMedium(status, v1::MEDIUM_DISK, "disk", size);
}

AdviceQuestion DefaultQuestion(const v1::GetStatusResponse& status) {
  const std::optional<v1::Tier> host = LastTierOn(status, v1::MEDIUM_HOST, 1);
  const auto all = static_cast<double>(BytesOf(status, std::nullopt));
  if (!host.has_value() || all == 0) return {"with 2x the memory", 2};
  return {"with 2x the host memory", 1 + static_cast<double>(BytesOf(status, host)) / all};
}

std::string AdviceText(const Advice& advice) {
  return absl::StrJoin(advice.curves.windows(), "\n",
                       [&](std::string* out, const v1::WindowHitRateCurve& curve) {
                         out->append(WindowText(advice.curves.cache(), curve, advice.questions));
                       });
}

}  // namespace pagoda
