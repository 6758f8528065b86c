#include "clients/pagodactl/top_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "clients/cpp/translate.h"
#include "clients/pagodactl/admin_client.h"
#include "clients/pagodactl/format.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

// Two of the daemon's counters a second. A counter never goes down in one incarnation.
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
      .evicted_blocks = rate(before.evicted_blocks_total(), after.evicted_blocks_total()),
      .offloaded_blocks = rate(before.offloaded_blocks_total(), after.offloaded_blocks_total()),
      .onboarded_blocks = rate(before.onboarded_blocks_total(), after.onboarded_blocks_total()),
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
  TopRates::Direction direction{.source = after.source(), .target = after.target()};
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
  TopRates rates{.events = rate(before.status.revision(), after.status.revision())};
  // The windows are the layout's, so one incarnation always has the same.
  for (int i = 0; i < after.status.windows_size(); ++i) {
    rates.windows.push_back(WindowRates(before.status.windows(i), after.status.windows(i), rate));
  }
  for (const v1::TransferDirection& direction : after.status.transfers().directions()) {
    rates.directions.push_back(DirectionRates(before.status.transfers(), direction, rate));
  }
  return rates;
}

Json TierJson(const v1::TierStatus& tier) {
  return {{"tier", TierText(tier.tier())},
          {"capacity_blocks", tier.capacity_blocks()},
          {"free_blocks", tier.free_blocks()},
          {"cached_blocks", tier.cached_blocks()},
          {"active_blocks", tier.active_blocks()},
          {"pinned_blocks", tier.pinned_blocks()},
          {"in_flight_blocks", tier.in_flight_blocks()}};
}

Json WindowJson(const v1::WindowStatus& window, const TopRates::Window* rates) {
  Json tiers = Json::array();
  for (const v1::TierStatus& tier : window.tiers()) tiers.push_back(TierJson(tier));
  Json json = {
      {"window", WindowName(WindowFromProto(window.window_size()))},
      {"tiers", tiers},
      {"hit_rate", Share(window.prefix_hit_tokens_total(), window.prefix_lookup_tokens_total())}};
  if (rates == nullptr) return json;
  json["interval_hit_rate"] = nullptr;
  if (rates->hit_rate.has_value()) json["interval_hit_rate"] = *rates->hit_rate;
  json["lookup_tokens_per_second"] = rates->lookup_tokens;
  json["allocated_blocks_per_second"] = rates->allocated_blocks;
  json["evicted_blocks_per_second"] = rates->evicted_blocks;
  json["offloaded_blocks_per_second"] = rates->offloaded_blocks;
  json["onboarded_blocks_per_second"] = rates->onboarded_blocks;
  return json;
}

Json TenantJson(const v1::TenantInfo& tenant) {
  uint64_t used = 0;
  for (const v1::TenantUse& use : tenant.use()) used += use.used_blocks();
  return {{"name", tenant.name()},
          {"sessions", tenant.sessions()},
          {"sequences", tenant.sequences()},
          {"used_blocks", used}};
}

Json TransfersJson(const v1::TransferStatus& transfers, const std::optional<TopRates>& rates) {
  Json directions = Json::array();
  if (rates.has_value()) {
    for (const TopRates::Direction& direction : rates->directions) {
      directions.push_back({{"source", TierText(direction.source)},
                            {"target", TierText(direction.target)},
                            {"copies_per_second", direction.copies},
                            {"bytes_per_second", direction.bytes}});
    }
  }
  return {{"directions", directions},
          {"running", transfers.running()},
          {"queued", transfers.queued()},
          {"failed_total", transfers.failed_total()}};
}

}  // namespace

void TopState::Add(TopSample sample) {
  error_ = absl::OkStatus();
  rates_.reset();
  if (sample_.has_value() && sample_->status.epoch() == sample.status.epoch() &&
      sample_->time < sample.time) {
    rates_ = RatesBetween(*sample_, sample);
  }
  sample_ = std::move(sample);
}

void TopState::Fail(const absl::Status& error, absl::Time now) {
  if (error_.ok()) failing_since_ = now;
  error_ = error;
}

nlohmann::ordered_json TopJson(const TopState& state) {
  if (!state.error().ok() || !state.sample().has_value()) {
    return {{"endpoint", state.endpoint()}, {"error", std::string(state.error().message())}};
  }
  const v1::GetStatusResponse& status = state.sample()->status;
  const std::optional<TopRates>& rates = state.rates();
  Json windows = Json::array();
  for (int i = 0; i < status.windows_size(); ++i) {
    windows.push_back(
        WindowJson(status.windows(i), rates.has_value() ? &rates->windows[i] : nullptr));
  }
  Json tenants = Json::array();
  for (const v1::TenantInfo& tenant : state.sample()->tenants) {
    tenants.push_back(TenantJson(tenant));
  }
  Json json = {
      {"endpoint", state.endpoint()},
      {"time", absl::FormatTime(absl::RFC3339_full, state.sample()->time, absl::UTCTimeZone())},
      {"uptime_seconds", absl::ToDoubleSeconds(DurationFromProto(status.uptime()))},
      {"epoch", absl::StrFormat("%016x", status.epoch())},
      {"draining", status.draining()},
      {"sessions", status.sessions()},
      {"sequences", status.sequences()},
      {"subscribers", status.subscribers()},
      {"pins", status.pins()},
      {"quarantines", status.quarantines()},
      {"quarantined_blocks", status.quarantined_blocks()},
      {"revision", status.revision()},
      {"events_per_second", nullptr},
      {"windows", windows},
      {"transfers", TransfersJson(status.transfers(), rates)},
      {"tenants", tenants}};
  if (rates.has_value()) json["events_per_second"] = rates->events;
  return json;
}

}  // namespace pagoda
