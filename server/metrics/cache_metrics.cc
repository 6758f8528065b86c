#include "server/metrics/cache_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/calls/metric_family.h"
#include "server/metrics/declared_families.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

MetricLabels WindowLabels(const WindowStats& window) {
  return {{"window", WindowName(window.window)}};
}

// Adds a tenant's value to a family. Without tenant labels, sums over the tenants.
class ByTenant {
 public:
  ByTenant(const CacheNumbers& numbers, TenantLabels labels)
      : tenants_(numbers.tenants), summed_(labels == TenantLabels::kSummed) {}

  void Add(prometheus::MetricFamily& family, const MetricLabels& labels, TenantId tenant,
           double value) const {
    if (!summed_) {
      const std::string& name = tenants_[tenant].name;
      AddSample(family,
                WithLabel(labels, "tenant", tenant == kDefaultTenant ? kDefaultTenantLabel : name),
                value);
      return;
    }
    // The samples of a family come one after another, so the sum for these labels is in it or not.
    for (prometheus::ClientMetric& metric : family.metric) {
      if (metric.label != labels) continue;
      (family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                      : metric.gauge.value) += value;
      return;
    }
    AddSample(family, labels, value);
  }

  // Adds the declared values of a tenant.
  template <class Stats>
  void Add(DeclaredFamilies<Stats>& families, const MetricLabels& labels, TenantId tenant,
           const Stats& stats) const {
    families.Add(labels, stats,
                 [&](prometheus::MetricFamily& family, const MetricLabels& all, double value) {
                   Add(family, all, tenant, value);
                 });
  }

 private:
  const TenantTable& tenants_;
  const bool summed_;
};

// A label's value: the tier's name in this cache.
std::string TierLabel(const CacheNumbers& numbers, size_t tier) {
  return numbers.info.TierName(Tier(tier));
}

// The tiers that have blocks.
void CollectTiers(const CacheNumbers& numbers, Families& out) {
  auto bytes = GaugeFamily("pagoda_block_bytes", "Bytes of one block in all pools of its window.");
  DeclaredFamilies tiers(kTierMetrics);
  for (size_t w = 0; w < numbers.stats.windows.size(); ++w) {
    const WindowStats& window = numbers.stats.windows[w];
    AddSample(bytes, WindowLabels(window), AsDouble(numbers.layout.windows()[w].block_bytes()));
    for (size_t t = 0; t < window.tiers.size(); ++t) {
      if (window.tiers[t].capacity == 0) continue;
      tiers.Add(WithLabel(WindowLabels(window), "tier", TierLabel(numbers, t)), window.tiers[t]);
    }
  }
  tiers.MoveTo(out);
  out.push_back(std::move(bytes));
}

// Clients choose priorities, and must not create label values. Priorities are therefore grouped by
// tens, and all groups exist from the start.
void CollectPriorities(const CacheNumbers& numbers, Families& out) {
  constexpr size_t kTen = 10;
  auto family = GaugeFamily("pagoda_cached_blocks",
                            "Evictable cached blocks without duplicates, by priority. Blocks of "
                            "lower priority are evicted first.");
  for (const WindowStats& window : numbers.stats.windows) {
    for (size_t t = 0; t < window.tiers.size(); ++t) {
      if (window.tiers[t].capacity == 0) continue;
      const MetricLabels labels = WithLabel(WindowLabels(window), "tier", TierLabel(numbers, t));
      const PriorityCounts& counts = window.cached_by_priority[t];
      for (size_t low = 0; low < counts.size(); low += kTen) {
        const size_t end = std::min(low + kTen, counts.size());
        const std::string name =
            end == low + 1 ? absl::StrCat(low) : absl::StrCat(low, "-", end - 1);
        AddSample(
            family, WithLabel(labels, "priority", name),
            AsDouble(std::accumulate(counts.begin() + static_cast<ptrdiff_t>(low),
                                     counts.begin() + static_cast<ptrdiff_t>(end), uint64_t{0})));
      }
    }
  }
  out.push_back(std::move(family));
}

void CollectWindows(const ManagerStats& stats, Families& out) {
  DeclaredFamilies counters(kWindowCounters);
  DeclaredFamilies gauges(kWindowMetrics);
  for (const WindowStats& window : stats.windows) {
    counters.Add(WindowLabels(window), window.counters);
    gauges.Add(WindowLabels(window), window);
  }
  counters.MoveTo(out);
  gauges.MoveTo(out);
}

// The reasons for which a block leaves the tree. Other reasons concern raw blocks or are not
// recorded.
constexpr std::pair<RemovalReason, const char*> kReasons[] = {
    {RemovalReason::kEvicted, "evicted"},
    {RemovalReason::kDisplaced, "displaced"},
    {RemovalReason::kTakenOver, "taken_over"},
    {RemovalReason::kTruncated, "truncated"},
    {RemovalReason::kInvalidated, "invalidated"},
    {RemovalReason::kCleared, "cleared"},
    {RemovalReason::kLost, "lost"}};

void CollectTenantCounters(const CacheNumbers& numbers, const ByTenant& by_tenant, Families& out) {
  DeclaredFamilies declared(kTenantCounters);
  auto removed = CounterFamily("pagoda_removed_blocks_total",
                               "Blocks that left the cache, by tier and reason.");
  auto hits = CounterFamily("pagoda_prefix_hit_tokens_total",
                            "Prompt tokens that were cached, by the tier that held them.");
  for (const WindowStats& window : numbers.stats.windows) {
    const MetricLabels labels = WindowLabels(window);
    for (uint16_t i = 0; i < window.tenants.size(); ++i) {
      const TenantCounters& counters = window.tenants[i];
      by_tenant.Add(declared, labels, TenantId{i}, counters);
      for (size_t t = 0; t < window.tiers.size(); ++t) {
        if (window.tiers[t].capacity == 0) continue;
        const MetricLabels in_tier = WithLabel(labels, "tier", TierLabel(numbers, t));
        by_tenant.Add(hits, in_tier, TenantId{i}, AsDouble(counters.prefix_hit_tokens[t]));
        for (const auto& [reason, name] : kReasons) {
          by_tenant.Add(removed, WithLabel(in_tier, "reason", name), TenantId{i},
                        AsDouble(counters.removed_blocks[t][static_cast<size_t>(reason)]));
        }
      }
    }
  }
  declared.MoveTo(out);
  for (auto* family : {&removed, &hits}) out.push_back(std::move(*family));
}

void CollectTenantUses(const CacheNumbers& numbers, const ByTenant& by_tenant, Families& out) {
  auto blocks = GaugeFamily("pagoda_tenant_blocks",
                            "Blocks of a tenant by state: held, or cached without a holder.");
  auto quota = GaugeFamily("pagoda_tenant_quota_blocks",
                           "The most blocks that a tenant can have, if it has a quota.");
  DeclaredFamilies declared(kTenantMetrics);
  for (const TenantUsage& usage : numbers.uses) {
    by_tenant.Add(declared, {}, usage.tenant, usage);
    for (const TenantUsage::Use& use : usage.uses) {
      const MetricLabels labels = {{"window", WindowName(use.window)},
                                   {"tier", numbers.info.TierName(use.tier)}};
      by_tenant.Add(blocks, WithLabel(labels, "state", "held"), usage.tenant,
                    use.used_blocks - use.cached_blocks);
      by_tenant.Add(blocks, WithLabel(labels, "state", "cached"), usage.tenant, use.cached_blocks);
      if (use.quota_blocks != kNoQuota) {
        by_tenant.Add(quota, labels, usage.tenant, use.quota_blocks);
      }
    }
  }
  out.push_back(std::move(blocks));
  declared.MoveTo(out);
  if (!quota.metric.empty()) out.push_back(std::move(quota));
}

void CollectReuseIntervals(const CacheNumbers& numbers, Families& out) {
  struct Row {
    const char* name;
    const char* help;
    ReuseIntervals::Histograms::ByTier ReuseIntervals::Histograms::*field;
  };
  const Row rows[] = {
      {"pagoda_block_lifetime_seconds",
       "Time from caching a block until it left the cache, for a sample of the blocks.",
       &ReuseIntervals::Histograms::lifetime},
      {"pagoda_block_idle_before_eviction_seconds",
       "Time from a block's last use until its eviction or displacement, for a sample.",
       &ReuseIntervals::Histograms::idle_before_eviction},
      {"pagoda_block_reuse_gap_seconds",
       "Time from the end of a cached block's use until its next use, for a sample.",
       &ReuseIntervals::Histograms::reuse_gap},
  };
  for (const Row& row : rows) {
    prometheus::MetricFamily& family = out.emplace_back(HistogramFamily(row.name, row.help));
    for (const WindowStats& window : numbers.stats.windows) {
      for (size_t t = 0; t < window.tiers.size(); ++t) {
        if (window.tiers[t].capacity == 0) continue;
        AddHistogram(family, WithLabel(WindowLabels(window), "tier", TierLabel(numbers, t)),
                     (window.reuse_intervals.*row.field)[t]);
      }
    }
  }
}

// Hit rates of whole blocks; not a number while there is too little traffic. Only windows under
// full attention have them.
void CollectHitRateCurve(const ManagerStats& stats, Families& out) {
  auto rates = GaugeFamily("pagoda_predicted_hit_rate",
                           "Hit rate of prompt blocks at a multiple of the capacity of all tiers, "
                           "estimated from a sample of the blocks; at 1 it is measured.");
  auto errors = GaugeFamily("pagoda_predicted_hit_rate_error",
                            "Half the width of the 95 % interval of pagoda_predicted_hit_rate.");
  for (const WindowStats& window : stats.windows) {
    if (window.reuse_distances.rate == 0) continue;
    const HitRateCurve curve(&window.reuse_distances);
    for (const double factor : HitRateCurve::kShownFactors) {
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      const HitRateCurve::Estimate estimate =
          curve.available() ? curve.At(factor) : HitRateCurve::Estimate{kNone, kNone};
      const MetricLabels labels = WithLabel(WindowLabels(window), "capacity", absl::StrCat(factor));
      AddSample(rates, labels, estimate.hit_rate);
      AddSample(errors, labels, estimate.error);
    }
  }
  if (rates.metric.empty()) return;
  out.push_back(std::move(rates));
  out.push_back(std::move(errors));
}

// In the order of SessionEnd.
constexpr const char* kEndNames[] = {"closed", "lease_expired", "ended_by_operator"};
static_assert(std::size(kEndNames) == kNumSessionEnds);

void CollectSessions(const ManagerStats& stats, Families& out) {
  auto ended = CounterFamily("pagoda_sessions_ended_total", "Sessions that ended, by reason.");
  auto reclaimed = CounterFamily(
      "pagoda_reclaimed_blocks_total",
      "Blocks without a holder after the end of a session, by its reason, or of a quarantine.");
  for (size_t i = 0; i < kNumSessionEnds; ++i) {
    AddSample(ended, {{"reason", kEndNames[i]}}, AsDouble(stats.session_counters.ended[i]));
    AddSample(reclaimed, {{"cause", kEndNames[i]}},
              AsDouble(stats.session_counters.reclaimed_blocks[i]));
  }
  AddSample(reclaimed, {{"cause", "quarantine_ended"}},
            AsDouble(stats.session_counters.reclaimed_from_quarantine));
  out.push_back(std::move(ended));
  out.push_back(std::move(reclaimed));
  DeclaredFamilies declared(kCacheMetrics);
  declared.Add({}, stats);
  declared.MoveTo(out);
}

// By the operation's type.
template <class T>
constexpr const char* kOperationName = nullptr;
template <>
constexpr const char* kOperationName<AllocateBlocks> = "allocate_blocks";
template <>
constexpr const char* kOperationName<FreeBlocks> = "free_blocks";
template <>
constexpr const char* kOperationName<FillBlocks> = "fill_blocks";
template <>
constexpr const char* kOperationName<DescribeBlocks> = "describe_blocks";
template <>
constexpr const char* kOperationName<AddSequence> = "add_sequence";
template <>
constexpr const char* kOperationName<ReserveTokens> = "reserve_tokens";
template <>
constexpr const char* kOperationName<CommitTokens> = "commit_tokens";
template <>
constexpr const char* kOperationName<AppendTokens> = "append_tokens";
template <>
constexpr const char* kOperationName<AppendStep> = "append_step";
template <>
constexpr const char* kOperationName<FreeSequence> = "free_sequence";
template <>
constexpr const char* kOperationName<MatchPrefix> = "match_prefix";
template <>
constexpr const char* kOperationName<DescribePools> = "describe_pools";
template <>
constexpr const char* kOperationName<DescribeSequence> = "describe_sequence";
template <>
constexpr const char* kOperationName<ForkSequence> = "fork_sequence";
template <>
constexpr const char* kOperationName<TruncateSequence> = "truncate_sequence";
template <>
constexpr const char* kOperationName<QueryCapacity> = "query_capacity";
template <>
constexpr const char* kOperationName<OffloadPrefix> = "offload_prefix";
template <>
constexpr const char* kOperationName<PrefetchPrefix> = "prefetch_prefix";
template <>
constexpr const char* kOperationName<PinPrefix> = "pin_prefix";
template <>
constexpr const char* kOperationName<UnpinPrefix> = "unpin_prefix";
template <>
constexpr const char* kOperationName<ListPins> = "list_pins";
template <>
constexpr const char* kOperationName<InvalidatePrefix> = "invalidate_prefix";
template <>
constexpr const char* kOperationName<SetRetention> = "set_retention";
template <>
constexpr const char* kOperationName<WaitForTicket> = "wait_for_ticket";

// In the order of the variant.
template <class... T>
constexpr std::array<const char*, sizeof...(T)> NamesOf(const std::variant<T...>*) {
  static_assert(((kOperationName<T> != nullptr) && ...));
  return {kOperationName<T>...};
}
constexpr auto kOperationNames = NamesOf(static_cast<const Operation*>(nullptr));

// These grow when blocks are short. They exist from the start, because a rate needs a first value.
constexpr Reason kRefusals[] = {Reason::kBlocksExhausted, Reason::kTenantQuotaExceeded,
                                Reason::kTooManySequences, Reason::kSequenceBytesExhausted};

void CollectOperations(const CacheNumbers& numbers, const ByTenant& by_tenant, Families& out) {
  const OperationCounters& counters = numbers.stats.operations;
  auto run = CounterFamily("pagoda_operations_total", "Operations given to the core.");
  for (size_t i = 0; i < counters.run.size(); ++i) {
    AddSample(run, {{"operation", kOperationNames[i]}}, AsDouble(counters.run[i]));
  }
  auto failed = CounterFamily("pagoda_failed_operations_total",
                              "Operations that failed, by their session's tenant and by reason.");
  auto values = counters.failed;
  for (uint16_t i = 0; i < numbers.tenants.size(); ++i) {
    for (const Reason reason : kRefusals) values.try_emplace({TenantId{i}, reason}, 0);
  }
  for (const auto& [key, count] : values) {
    by_tenant.Add(failed, {{"reason", std::string(ReasonName(key.second))}}, key.first,
                  AsDouble(count));
  }
  out.push_back(std::move(run));
  out.push_back(std::move(failed));
}

}  // namespace

Families CollectCacheMetrics(const CacheNumbers& numbers, TenantLabels labels) {
  Families families;
  const ByTenant by_tenant(numbers, labels);
  auto info = GaugeFamily("pagoda_cache_info", "Always 1; the labels describe the cache.");
  AddSample(info,
            {{"cache", numbers.info.name},
             {"model", numbers.info.model_fingerprint},
             {"tokens_per_block", absl::StrCat(numbers.info.tokens_per_block)}},
            1);
  families.push_back(std::move(info));
  CollectTiers(numbers, families);
  CollectPriorities(numbers, families);
  CollectWindows(numbers.stats, families);
  CollectTenantCounters(numbers, by_tenant, families);
  CollectTenantUses(numbers, by_tenant, families);
  CollectReuseIntervals(numbers, families);
  CollectHitRateCurve(numbers.stats, families);
  CollectSessions(numbers.stats, families);
  CollectOperations(numbers, by_tenant, families);
  return families;
}

}  // namespace pagoda::server
