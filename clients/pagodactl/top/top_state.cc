#include "clients/pagodactl/top/top_state.h"

#include <algorithm>
#include <utility>

#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/command/admin_client.h"

namespace pagoda {
namespace {

// Computes the rate between two values of a counter. A counter never decreases in one incarnation.
class PerSecond {
 public:
  explicit PerSecond(absl::Duration elapsed) : seconds_(absl::ToDoubleSeconds(elapsed)) {}
  double operator()(uint64_t before, uint64_t after) const {
    return seconds_ > 0 ? static_cast<double>(after - before) / seconds_ : 0;
  }

 private:
  const double seconds_;
};

TopRates::Window WindowRates(const v1::WindowStatus& before, const v1::WindowStatus& after,
                             const PerSecond& rate) {
  TopRates::Window window{
      .allocated_blocks = rate(before.allocated_blocks_total(), after.allocated_blocks_total()),
      .lookup_tokens =
          rate(before.prefix_lookup_tokens_total(), after.prefix_lookup_tokens_total()),
      .hit_rate = std::nullopt};
  const uint64_t looked_up =
      after.prefix_lookup_tokens_total() - before.prefix_lookup_tokens_total();
  if (looked_up > 0) {
    window.hit_rate =
        Share(after.prefix_hit_tokens_total() - before.prefix_hit_tokens_total(), looked_up);
  }
  return window;
}

TopRates::Direction DirectionRates(const v1::TransferStatus& before,
                                   const v1::TransferDirection& after, const PerSecond& rate) {
  TopRates::Direction direction{.source = TierText(after.source(), after.source_name()),
                                .target = TierText(after.target(), after.target_name())};
  // A direction is absent before its first copy.
  v1::TransferDirection none;
  const auto found =
      std::find_if(before.directions().begin(), before.directions().end(),
                   [&after](const v1::TransferDirection& other) {
                     return other.source() == after.source() && other.target() == after.target();
                   });
  const v1::TransferDirection& start = found == before.directions().end() ? none : *found;
  direction.copies = rate(start.copies_total(), after.copies_total());
  direction.bytes = rate(start.bytes_total(), after.bytes_total());
  return direction;
}

TopRates RatesBetween(const TopSample& before, const TopSample& after) {
  const PerSecond rate(after.time - before.time);
  TopRates rates;
  // One incarnation always has the same windows, those of the layout.
  for (int i = 0; i < after.status.windows_size(); ++i) {
    rates.windows.push_back(WindowRates(before.status.windows(i), after.status.windows(i), rate));
  }
  for (const v1::TransferDirection& direction : after.status.transfers().directions()) {
    rates.directions.push_back(DirectionRates(before.status.transfers(), direction, rate));
  }
  return rates;
}

StreamRates::Window StreamWindowRates(const WindowFigures& before, const WindowFigures& after,
                                      const PerSecond& rate) {
  StreamRates::Window window{.stored = rate(before.stored, after.stored),
                             .offloaded = rate(before.offloaded, after.offloaded),
                             .onboarded = rate(before.onboarded, after.onboarded),
                             .removed = {}};
  for (const auto& [reason, blocks] : after.removed) {
    const auto found = before.removed.find(reason);
    window.removed[reason] = rate(found == before.removed.end() ? 0 : found->second, blocks);
  }
  return window;
}

std::optional<StreamRates> RatesOfStream(const StreamLook& before, const StreamLook& after) {
  const StreamFigures &first = before.figures, &last = after.figures;
  if (!before.live() || !after.live() || first.snapshots != last.snapshots) return std::nullopt;
  if (before.time >= after.time) return std::nullopt;
  const PerSecond rate(after.time - before.time);
  StreamRates rates{.created_events = rate(first.events.created, last.events.created),
                    .stored_events = rate(first.events.stored, last.events.stored),
                    .updated_events = rate(first.events.updated, last.events.updated),
                    .removed_events = rate(first.events.removed, last.events.removed),
                    .events = rate(first.events.all(), last.events.all()),
                    .windows = {}};
  for (const auto& [size, window] : last.windows) {
    const auto found = first.windows.find(size);
    rates.windows[size] = StreamWindowRates(
        found == first.windows.end() ? WindowFigures() : found->second, window, rate);
  }
  return rates;
}

}  // namespace

std::optional<uint64_t> TopSample::events_behind() const {
  const StreamFigures& figures = stream.figures;
  if (!stream.live() || figures.epoch != status.epoch()) return std::nullopt;
  return status.revision() - std::min(status.revision(), figures.revision);
}

void TopState::Add(TopSample sample) {
  error_ = absl::OkStatus();
  rates_.reset();
  stream_rates_.reset();
  stream_lags_ = false;
  if (sample_.has_value() && sample_->status.epoch() == sample.status.epoch() &&
      sample_->time < sample.time) {
    rates_ = RatesBetween(*sample_, sample);
    stream_rates_ = RatesOfStream(sample_->stream, sample.stream);
    stream_lags_ = sample.events_behind().has_value() &&
                   sample.stream.figures.revision < sample_->status.revision();
  }
  sample_ = std::move(sample);
}

void TopState::Fail(const absl::Status& error, absl::Time now) {
  if (error_.ok()) failing_since_ = now;
  error_ = error;
}

}  // namespace pagoda
