#include "server/metrics.h"

#include <array>
#include <iterator>
#include <utility>

#include "prometheus/text_serializer.h"
#include "server/metric_family.h"
#include "server/process_metrics.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

void Append(Families families, Families& out) {
  out.insert(out.end(), std::make_move_iterator(families.begin()),
             std::make_move_iterator(families.end()));
}

double AsDouble(uint64_t value) { return static_cast<double>(value); }

std::string WindowLabel(WindowSize window) { return WindowName(window); }
std::string TierLabel(size_t tier) { return std::string(TierName(static_cast<Tier>(tier))); }

// Capacity and states of the tiers that have blocks.
Families CollectBlocks(const ManagerStats& stats, const CacheLayout& layout) {
  auto capacity = GaugeFamily("pagoda_block_capacity_blocks", "Blocks that a tier holds.");
  auto blocks =
      GaugeFamily("pagoda_blocks", "Blocks by state; the states of a tier add up to its capacity.");
  auto bytes = GaugeFamily("pagoda_block_bytes", "Bytes of one block in all pools of its window.");
  for (size_t w = 0; w < stats.windows.size(); ++w) {
    const std::string window = WindowLabel(stats.windows[w].window);
    AddSample(bytes, {{"window", window}}, AsDouble(layout.windows()[w].block_bytes()));
    for (size_t t = 0; t < kNumTiers; ++t) {
      const TierOccupancy& tier = stats.windows[w].tiers[t];
      if (tier.capacity == 0) continue;
      const MetricLabels labels = {{"window", window}, {"tier", TierLabel(t)}};
      AddSample(capacity, labels, tier.capacity);
      const std::pair<const char*, uint32_t> states[] = {{"free", tier.free},
                                                         {"cached", tier.cached},
                                                         {"active", tier.active},
                                                         {"pinned", tier.pinned},
                                                         {"in_flight", tier.in_flight}};
      for (const auto& [state, count] : states) {
        MetricLabels with_state = labels;
        with_state.push_back({"state", state});
        AddSample(blocks, std::move(with_state), count);
      }
    }
  }
  return {std::move(capacity), std::move(blocks), std::move(bytes)};
}

Families CollectCounters(const ManagerStats& stats) {
  struct Row {
    const char* name;
    const char* help;
    uint64_t WindowCounters::*field;
  };
  const Row rows[] = {
      {"pagoda_allocated_blocks_total", "Blocks handed out.", &WindowCounters::allocated_blocks},
      {"pagoda_freed_blocks_total", "Blocks that gave their slot back, without evicted ones.",
       &WindowCounters::freed_blocks},
      {"pagoda_evicted_blocks_total", "Cached blocks dropped to make room in the primary tier.",
       &WindowCounters::evicted_blocks},
      {"pagoda_displaced_blocks_total", "Cached blocks dropped from the secondary tier for others.",
       &WindowCounters::displaced_blocks},
      {"pagoda_offloaded_blocks_total", "Blocks moved down to the secondary tier.",
       &WindowCounters::offloaded_blocks},
      {"pagoda_onboarded_blocks_total", "Blocks moved up from the secondary tier.",
       &WindowCounters::onboarded_blocks},
      {"pagoda_partial_copies_total", "Tails copied for a match, a fork or a truncation.",
       &WindowCounters::partial_copies},
      {"pagoda_taken_over_blocks_total", "Cached blocks that a match continued in place.",
       &WindowCounters::taken_over_blocks},
      {"pagoda_merged_blocks_total", "Blocks committed with content that was cached already.",
       &WindowCounters::merged_blocks},
      {"pagoda_lost_blocks_total", "Blocks that left the cache because a copy failed.",
       &WindowCounters::lost_blocks},
      {"pagoda_expired_priorities_total", "Priorities of blocks whose duration was over.",
       &WindowCounters::expired_priorities},
      {"pagoda_prefix_lookup_tokens_total", "Prompt tokens of added sequences.",
       &WindowCounters::prefix_lookup_tokens},
      {"pagoda_prefix_hit_tokens_total", "Prompt tokens that were cached.",
       &WindowCounters::prefix_hit_tokens},
      {"pagoda_secondary_hit_tokens_total", "Of those, the ones that lay in the secondary tier.",
       &WindowCounters::secondary_hit_tokens},
  };
  Families families;
  for (const Row& row : rows) {
    prometheus::MetricFamily& family = families.emplace_back(CounterFamily(row.name, row.help));
    for (const WindowStats& window : stats.windows) {
      AddSample(family, {{"window", WindowLabel(window.window)}},
                AsDouble(window.counters.*row.field));
    }
  }
  return families;
}

Families CollectWindows(const ManagerStats& stats) {
  struct Row {
    const char* name;
    const char* help;
    uint32_t WindowStats::*field;
  };
  const Row rows[] = {
      {"pagoda_holes", "Places in the prefix tree without bytes, where a sliding window passed.",
       &WindowStats::holes},
      {"pagoda_pinned_blocks", "Blocks that pins hold, over both tiers.",
       &WindowStats::pinned_blocks},
      {"pagoda_pin_budget_blocks", "The most blocks that pins may hold.",
       &WindowStats::pin_budget_blocks},
  };
  Families families;
  for (const Row& row : rows) {
    prometheus::MetricFamily& family = families.emplace_back(GaugeFamily(row.name, row.help));
    for (const WindowStats& window : stats.windows) {
      AddSample(family, {{"window", WindowLabel(window.window)}}, window.*row.field);
    }
  }
  return families;
}

Families CollectTransfers(const TransferStats& stats) {
  auto copies = CounterFamily("pagoda_copies_total", "Copies of blocks that succeeded.");
  auto bytes = CounterFamily("pagoda_copied_bytes_total", "Bytes of those.");
  auto busy = CounterFamily("pagoda_copy_seconds_total", "Time of the threads that copied.");
  for (size_t source = 0; source < kNumTiers; ++source) {
    for (size_t target = 0; target < kNumTiers; ++target) {
      const TransferStats::Direction& direction = stats.directions[source][target];
      const MetricLabels labels = {{"source", TierLabel(source)}, {"target", TierLabel(target)}};
      AddSample(copies, labels, AsDouble(direction.copies));
      AddSample(bytes, labels, AsDouble(direction.bytes));
      AddSample(busy, labels, absl::ToDoubleSeconds(direction.busy));
    }
  }
  return {
      std::move(copies),
      std::move(bytes),
      std::move(busy),
      Counter("pagoda_failed_copies_total", "Copies of blocks that failed.",
              AsDouble(stats.failed)),
      Gauge("pagoda_running_copies", "Copies under way.", AsDouble(stats.running)),
      Gauge("pagoda_queued_copies", "Copies that wait for their turn.", AsDouble(stats.queued)),
  };
}

Families CollectEvents(const EventLog& log, size_t subscribers) {
  // In the order of Event::what.
  constexpr std::array kTypes = {"created", "stored", "updated", "removed"};
  const auto counts = log.type_counts();
  static_assert(std::tuple_size_v<decltype(log.type_counts())> == kTypes.size());
  auto events = CounterFamily("pagoda_events_total", "Events of the cache by type.");
  for (size_t i = 0; i < kTypes.size(); ++i) {
    AddSample(events, {{"type", kTypes[i]}}, AsDouble(counts[i]));
  }
  return {
      std::move(events),
      Gauge("pagoda_event_revision", "Revision of the last event.", AsDouble(log.last().value())),
      Gauge("pagoda_event_oldest_revision", "Oldest revision that a subscriber can start from.",
            AsDouble(log.oldest().value())),
      Gauge("pagoda_event_subscribers", "Open Watch streams.", AsDouble(subscribers)),
  };
}

Families CollectEngine(const EngineStats& stats) {
  return {
      Gauge("pagoda_engine_running_requests", "Generations that run.",
            AsDouble(stats.running_requests)),
      Gauge("pagoda_engine_waiting_requests", "Generations that wait for their turn.",
            AsDouble(stats.waiting_requests)),
      Counter("pagoda_engine_prompt_tokens_total", "Prompt tokens taken.",
              AsDouble(stats.prompt_tokens)),
      Counter("pagoda_engine_reused_tokens_total", "Prompt tokens whose KV was in the cache.",
              AsDouble(stats.reused_tokens)),
      Counter("pagoda_engine_computed_tokens_total", "Tokens that went through the model.",
              AsDouble(stats.computed_tokens)),
      Counter("pagoda_engine_generated_tokens_total", "Tokens generated.",
              AsDouble(stats.generated_tokens)),
  };
}

Families CollectDaemon(const DaemonParts& parts, const ManagerStats& stats) {
  auto build = GaugeFamily("pagoda_build_info", "Always 1; the labels tell the build.");
  AddSample(build, {{"version", PAGODA_VERSION}}, 1);
  return {
      std::move(build),
      Gauge("pagoda_start_time_seconds", "When the daemon started, in seconds since 1970.",
            absl::ToDoubleSeconds(parts.start_time - absl::UnixEpoch())),
      Gauge("pagoda_sessions", "Open sessions, the bundled engine's included.",
            AsDouble(stats.sessions)),
      Gauge("pagoda_sequences", "Sequences that hold blocks.", AsDouble(stats.sequences)),
      Gauge("pagoda_pins", "Pins of all sessions.", AsDouble(stats.pins)),
  };
}

}  // namespace

Families Metrics::Collect() const {
  const ManagerStats stats = parts_.manager->Stats();
  Families families;
  Append(CollectDaemon(parts_, stats), families);
  Append(CollectBlocks(stats, *parts_.layout), families);
  Append(CollectCounters(stats), families);
  Append(CollectWindows(stats), families);
  Append(CollectTransfers(parts_.transfers->stats()), families);
  Append(CollectEvents(parts_.manager->log(), parts_.events->subscribers()), families);
  Append(parts_.bridges->Collect(), families);
  if (parts_.engine->engine() != nullptr) Append(CollectEngine(parts_.engine->Stats()), families);
  Append(rpcs_->Collect(), families);
  Append(CollectProcessMetrics(), families);
  return families;
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(Collect()); }

}  // namespace pagoda::server
