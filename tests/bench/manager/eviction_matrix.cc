#include "tests/bench/manager/eviction_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "clients/pagoda_plan/replay/replay_core.h"
#include "clients/pagoda_plan/replay/replay_opt.h"
#include "pools/memory/available_memory.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr char kLru[] = "lru";
constexpr int64_t kMostHours = 1000;      // Later requests count in the last one.
constexpr uint64_t kBytesOfABlock = 256;  // The bytes in addition to its tokens.

std::string Id(const std::string& name, const std::string& policy, const std::string& suffix) {
  return absl::StrCat("eviction_", name, "_", policy, "_", suffix);
}
std::string WorstId(const std::string& policy) { return absl::StrCat("eviction_worst_", policy); }
std::string WorstHourId(const std::string& policy) {
  return absl::StrCat("eviction_worst_hour_", policy);
}

std::string SuffixOf(const EvictionMatrix::RowOptions& row) {
  if (row.lower_blocks == 0) return "";
  return row.last_tier == LastTier::kDisk ? "_disk" : "_host";
}

// Lets replays start while their caches fit together. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : left_(static_cast<int64_t>(bytes)), all_(left_) {}

  // Waits for the bytes. A cache that never fits runs alone.
  void Take(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto fits = [&] {
      mutex_.AssertReaderHeld();
      return left_ >= static_cast<int64_t>(bytes) || left_ == all_;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&fits));
    left_ -= static_cast<int64_t>(bytes);
  }
  void GiveBack(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    left_ += static_cast<int64_t>(bytes);
  }

 private:
  absl::Mutex mutex_;
  int64_t left_ ABSL_GUARDED_BY(mutex_);
  const int64_t all_;
};

}  // namespace

// --- Rows ---

bool EvictionMatrix::Wants(const std::string& id) const {
  return ids_.empty() || std::any_of(ids_.begin(), ids_.end(), [&id](const std::string& begin) {
           return absl::StartsWith(id, begin);
         });
}

bool EvictionMatrix::WantsAny(const Row& row, const std::string& policy) const {
  return Wants(Id(row.name, policy, row.suffix)) || Wants(WorstId(policy)) ||
         (row.by_hour &&
          (Wants(Id(row.name + "_hour", policy, row.suffix)) || Wants(WorstHourId(policy))));
}

uint64_t EvictionMatrix::DistinctBlocks(const Trace& trace,
                                        const std::optional<ServiceModel>& service) {
  const auto [found, is_new] =
      distinct_blocks_.try_emplace({&trace, service.has_value()}, uint64_t{0});
  if (!is_new) return found->second;
  const absl::StatusOr<uint32_t> blocks = UnlimitedBlocks(
      trace.requests, {.tokens_per_block = trace.tokens_per_block, .service = service});
  PAGODA_CHECK(blocks.ok(), std::string(blocks.status().message()).c_str());
  return found->second = *blocks;
}

void EvictionMatrix::Add(const RowOptions& options) {
  Row row{.name = options.name,
          .suffix = absl::StrCat(options.blocks, SuffixOf(options)),
          .by_hour = options.by_hour,
          .jobs = {}};
  std::vector<uint32_t> tiers = {options.blocks};
  if (options.lower_blocks > 0) tiers.push_back(options.lower_blocks);
  const uint64_t blocks = std::accumulate(tiers.begin(), tiers.end(), uint64_t{0});
  const uint64_t distinct = DistinctBlocks(*options.trace, options.service);
  if (blocks >= distinct) return;
  const uint64_t bytes =
      blocks * (options.trace->tokens_per_block * sizeof(TokenId) + kBytesOfABlock);
  for (const std::string& policy : options.policies) {
    if (!WantsAny(row, policy)) continue;
    for (const std::string& needed : {std::string(kLru), policy}) {
      if (!row.jobs.try_emplace(needed, jobs_.size()).second) continue;
      jobs_.push_back({.trace = options.trace,
                       .policy = needed,
                       .tiers = tiers,
                       .service = options.service,
                       .last_tier = options.last_tier,
                       .bytes = bytes,
                       .all = {},
                       .hours = {}});
    }
  }
  if (!row.jobs.empty()) rows_.push_back(std::move(row));
}

// --- Replays ---

void EvictionMatrix::Job::Run() {
  Tally before;
  const ReplayOptions options = {.tier_blocks = tiers,
                                 .policy = policy == kOptPolicy ? "" : policy,
                                 .on_request =
                                     [&](const ReplayReport& so_far) {
                                       const auto hour = static_cast<size_t>(std::min<int64_t>(
                                           kMostHours - 1, so_far.trace_time / absl::Hours(1)));
                                       if (hour >= hours.size()) hours.resize(hour + 1);
                                       hours[hour].requested +=
                                           so_far.blocks_requested - before.requested;
                                       hours[hour].hit += so_far.blocks_hit - before.hit;
                                       before = {so_far.blocks_requested, so_far.blocks_hit};
                                     },
                                 .tokens_per_block = trace->tokens_per_block,
                                 .service = service,
                                 .last_tier = last_tier};
  const auto report = policy == kOptPolicy ? ReplayOptimal(trace->requests, options)
                                           : ReplayTrace(trace->requests, options);
  PAGODA_CHECK(report.ok(), std::string(report.status().message()).c_str());
  all = {report->blocks_requested, report->blocks_hit};
  hours_are_clear =
      !report->overlap.has_value() || report->overlap->waiting_requests * 100 < report->requests;
}

void EvictionMatrix::Run() {
  // The largest caches come first, so that none of them is left to run alone at the end.
  std::vector<size_t> order(jobs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return jobs_[a].bytes > jobs_[b].bytes; });
  const absl::StatusOr<uint64_t> available = AvailableMemoryBytes();
  MemoryBudget memory(available.ok() ? *available / 2 : uint64_t{1} << 30);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < order.size(); i = next++) {
      Job& job = jobs_[order[i]];
      memory.Take(job.bytes);
      job.Run();
      memory.GiveBack(job.bytes);
    }
  };
  std::vector<std::thread> threads;
  const size_t most = std::min<size_t>(jobs_.size(), std::thread::hardware_concurrency());
  for (size_t i = 1; i < most; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// --- Figures ---

// The hour in which the policy loses most against lru. An hour with few requests says nothing. If
// requests waited, their hits fall into a later hour than the requests, so there is no figure.
std::optional<EvictionMatrix::Pair> EvictionMatrix::WorstHour(const Row& row,
                                                              const std::string& policy) const {
  const Job& job = jobs_[row.jobs.at(policy)];
  const Job& lru = jobs_[row.jobs.at(kLru)];
  if (!row.by_hour || policy == kOptPolicy || !job.hours_are_clear || !lru.hours_are_clear) {
    return std::nullopt;
  }
  std::optional<Pair> worst;
  for (size_t hour = 0; hour < std::min(job.hours.size(), lru.hours.size()); ++hour) {
    if (job.hours[hour].requested * 100 < job.all.requested) continue;
    Pair pair{Id(row.name + "_hour", policy, row.suffix), job.hours[hour], lru.hours[hour]};
    if (!worst.has_value() || pair.lost() > worst->lost()) worst = std::move(pair);
  }
  return worst;
}

void EvictionMatrix::Print(const Pair& pair) const {
  if (!Wants(pair.id)) return;
  bench::Print({.id = pair.id,
                .value = pair.policy.percent(),
                .unit = "%",
                .yardstick = "policy lru",
                .yardstick_value = pair.lru.percent()});
}

void EvictionMatrix::PrintFigures() const {
  std::set<std::string> policies;
  for (const Row& row : rows_) {
    for (const auto& [policy, job] : row.jobs) {
      if (policy == kLru) continue;
      policies.insert(policy);
      Print({Id(row.name, policy, row.suffix), jobs_[job].all, jobs_[row.jobs.at(kLru)].all});
      if (const std::optional<Pair> hour = WorstHour(row, policy)) Print(*hour);
    }
  }
  policies.erase(kOptPolicy);
  for (const std::string& policy : policies) PrintWorst(policy);
}

void EvictionMatrix::PrintSummary(const std::string& policy, const std::vector<Pair>& rows) {
  const auto above = std::count_if(rows.begin(), rows.end(),
                                   [](const Pair& row) { return row.lost() < -kTolerated; });
  const auto below = std::count_if(rows.begin(), rows.end(),
                                   [](const Pair& row) { return row.lost() > kTolerated; });
  const double lost = std::accumulate(rows.begin(), rows.end(), 0.0,
                                      [](double sum, const Pair& row) { return sum + row.lost(); });
  std::fprintf(stderr,
               "eviction_bench: %s: of %zu rows, %td are above lru by more than %.1f points, %td "
               "below; mean %+.2f points\n",
               policy.c_str(), rows.size(), above, kTolerated, below,
               -lost / static_cast<double>(rows.size()));
}

void EvictionMatrix::PrintWorst(const std::string& policy) const {
  std::vector<Pair> rows, hours;
  for (const Row& row : rows_) {
    const auto job = row.jobs.find(policy);
    if (job == row.jobs.end()) continue;
    rows.push_back(
        {Id(row.name, policy, row.suffix), jobs_[job->second].all, jobs_[row.jobs.at(kLru)].all});
    if (std::optional<Pair> hour = WorstHour(row, policy)) hours.push_back(*std::move(hour));
  }
  const auto print = [&](const std::string& id, std::vector<Pair>& pairs) {
    if (pairs.empty()) return;
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.lost() > b.lost(); });
    for (const Pair& pair : pairs) {
      if (pair.lost() <= kTolerated && pair.id != pairs.front().id) break;
      std::fprintf(stderr, "eviction_bench: %s %.2f, lru %.2f: %+.2f points\n", pair.id.c_str(),
                   pair.policy.percent(), pair.lru.percent(), -pair.lost());
    }
    Print({id, pairs.front().policy, pairs.front().lru});
  };
  PrintSummary(policy, rows);
  print(WorstId(policy), rows);
  print(WorstHourId(policy), hours);
}

}  // namespace pagoda::bench
