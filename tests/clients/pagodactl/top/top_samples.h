// Possible samples of a daemon and its event stream, for `top`.
#ifndef PAGODA_TESTS_CLIENTS_PAGODACTL_TOP_TOP_SAMPLES_H_
#define PAGODA_TESTS_CLIENTS_PAGODACTL_TOP_TOP_SAMPLES_H_

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "clients/pagodactl/events/event_text.h"
#include "clients/pagodactl/top/top_state.h"

namespace pagoda {

inline const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1000);

inline void SetTier(v1::Tier name, uint32_t active, uint32_t cached, uint32_t pinned,
                    uint32_t in_flight, uint32_t free, v1::TierStatus* tier) {
  tier->set_tier(name);
  tier->set_capacity_blocks(active + cached + pinned + in_flight + free);
  tier->set_active_blocks(active);
  tier->set_cached_blocks(cached);
  tier->set_pinned_blocks(pinned);
  tier->set_in_flight_blocks(in_flight);
  tier->set_free_blocks(free);
}

inline EventSummary StoredSummary(uint64_t revision, absl::Time time) {
  return {.revision = revision,
          .time = time,
          .window_size = 0,
          .type = "stored",
          .style = Style::kGreen,
          .blocks = "1",
          .tokens = "16",
          .detail = "block 1 after 2"};
}

// The stream's state at that time, up to date with the status.
inline StreamLook LiveStream(int seconds) {
  StreamLook look{.phase = StreamLook::Phase::kLive,
                  .time = kStart + absl::Seconds(seconds),
                  .phase_since = kStart - absl::Seconds(5),
                  .last_message = kStart + absl::Seconds(seconds) - absl::Milliseconds(120),
                  .interruption = absl::OkStatus(),
                  .figures = {}};
  const uint64_t n = static_cast<uint64_t>(seconds);
  look.figures.whole = true;
  look.figures.epoch = 0xABC;
  look.figures.revision = 1000 + 25 * n;
  look.figures.snapshot_revision = 900;
  look.figures.snapshots = 1;
  look.figures.events = {.created = 1, .stored = 7 + 18 * n, .updated = 5 * n, .removed = 2 * n};
  look.figures.windows[0] = {
      .reusable = {{v1::TIER_PRIMARY, 612}, {v1::TIER_SECOND, 1500}},
      .stored = 100 + 90 * n,
      .offloaded = 40 * n,
      .onboarded = n,
      .reprioritized = 0,
      .handed_out = 8,
      .removed = {{v1::REMOVAL_REASON_EVICTED, 3 * n}, {v1::REMOVAL_REASON_RELEASED, 8}}};
  look.figures.recent = {StoredSummary(1049, kStart), StoredSummary(1050, kStart)};
  look.figures.recent.back().type = "updated";
  look.figures.recent.back().detail = "block 5, tier primary -> secondary";
  return look;
}

// A daemon with one window and two tiers, `seconds` after the first look.
inline TopSample Sample(int seconds) {
  TopSample sample{.time = kStart + absl::Seconds(seconds),
                   .status = {},
                   .tenants = {},
                   .stream = LiveStream(seconds)};
  v1::GetStatusResponse& status = sample.status;
  status.set_version("1.2.3");
  status.set_epoch(0xABC);
  status.mutable_uptime()->set_seconds(7500);
  status.mutable_cache()->set_name("demo");
  status.mutable_cache()->set_model_fingerprint("tiny");
  status.mutable_cache()->set_tokens_per_block(16);
  status.set_sessions(12);
  status.set_sequences(1200);
  status.set_subscribers(3);
  status.set_pins(2);
  status.set_revision(1000 + 25 * seconds);
  v1::WindowStatus* window = status.add_windows();
  SetTier(v1::TIER_PRIMARY, 500, 250, 100, 1, 149, window->add_tiers());
  SetTier(v1::TIER_SECOND, 0, 500, 0, 0, 1500, window->add_tiers());
  window->set_prefix_lookup_tokens_total(1000 + 200 * seconds);
  window->set_prefix_hit_tokens_total(500 + 150 * seconds);
  window->set_allocated_blocks_total(1234 * seconds);
  window->set_pinned_blocks(100);
  window->set_pin_budget_blocks(750);
  v1::TransferStatus* transfers = status.mutable_transfers();
  transfers->set_running(1);
  transfers->set_queued(20);
  v1::TransferDirection* down = transfers->add_directions();
  down->set_source(v1::TIER_PRIMARY);
  down->set_target(v1::TIER_SECOND);
  down->set_copies_total(40 * seconds);
  down->set_bytes_total((uint64_t{64} << 20) * seconds);
  return sample;
}

inline v1::TenantInfo Tenant(const std::string& name, uint32_t used) {
  v1::TenantInfo tenant;
  tenant.set_name(name);
  tenant.set_sessions(2);
  tenant.set_sequences(7);
  v1::TenantUse* use = tenant.add_use();
  use->set_tier(v1::TIER_PRIMARY);
  use->set_used_blocks(used);
  use->set_quota_blocks(1000);
  return tenant;
}

inline TopState TwoLooks() {
  TopState state("127.0.0.1:7070");
  state.Add(Sample(0));
  TopSample second = Sample(2);
  second.tenants.push_back(Tenant("team-a", 120));
  state.Add(std::move(second));
  return state;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_PAGODACTL_TOP_TOP_SAMPLES_H_
