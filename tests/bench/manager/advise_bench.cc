// How well a running cache predicts the hit rates of other capacities: HitRateCurve compared with
// full replays. deploy/bench.sh advise runs it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "clients/pagoda_plan/trace/workload_trace.h"
#include "manager/advice/hit_rate_curve.h"
#include "manager/policy/eviction_policy.h"
#include "tests/bench/figure.h"
#include "tests/manager/advice/block_trace.h"

namespace pagoda::bench {
namespace {

constexpr std::array kFactors = {0.5, 2.0, 4.0};
// The first tier's part of a ladder. Its host tier grows and shrinks.
constexpr double kFirstTier = 0.3;
// In percentage points.
constexpr double kGoal = 1.5;

// Over all estimates.
struct Totals {
  int estimates = 0;
  int beyond_error = 0;
  double worst = 0;
};

struct Workload {
  std::string name;
  std::vector<BlockPrompt> requests;
};

enum class Cache { kOneTier, kLadder };

std::vector<uint32_t> Tiers(Cache cache, uint32_t blocks, double factor) {
  const auto all = static_cast<uint32_t>(blocks * factor);
  const auto first = static_cast<uint32_t>(blocks * kFirstTier);
  return cache == Cache::kOneTier ? std::vector{all} : std::vector{first, all - first};
}

// Hit rates do not depend on the machine, so each figure is from one run.
void PrintErrors(const Workload& workload, Cache cache, uint32_t blocks, const std::string& policy,
                 Totals& totals) {
  const TraceResult now =
      RunTrace(workload.requests, {.tier_blocks = Tiers(cache, blocks, 1), .policy = policy});
  const HitRateCurve curve(&now.counts);
  const std::string where = cache == Cache::kOneTier ? "" : "ladder_";
  for (const double factor : kFactors) {
    const TraceResult then =
        RunTrace(workload.requests,
                 {.tier_blocks = Tiers(cache, blocks, factor), .policy = policy, .samples = 0});
    const HitRateCurve::Estimate estimate = curve.At(factor);
    const double off = 100 * std::abs(estimate.hit_rate - then.hit_rate);
    absl::FPrintF(stderr, "%s %s, %s%d blocks, %.1fx: %.2f +- %.2f %%, replayed %.2f %%\n",
                  workload.name, policy, where, blocks, factor, 100 * estimate.hit_rate,
                  100 * estimate.error, 100 * then.hit_rate);
    Print({.id = absl::StrCat("advise_error_", workload.name, "_", policy, "_", where, blocks, "_",
                              factor, "x"),
           .value = off,
           .unit = "percentage points",
           .yardstick = "the error that the estimate names",
           .yardstick_value = 100 * estimate.error});
    ++totals.estimates;
    totals.beyond_error += off > 100 * estimate.error ? 1 : 0;
    totals.worst = std::max(totals.worst, off);
  }
}

Workload WorkloadOf(std::string name, const Trace& trace) {
  Workload workload{.name = std::move(name), .requests = {}};
  for (const TraceRequest& request : trace.requests) {
    workload.requests.push_back({.time_ms = request.timestamp_ms, .blocks = request.hash_ids});
  }
  return workload;
}

struct Plan {
  std::vector<Workload> workloads;
  std::vector<uint32_t> capacities;
};

// A short trace, with one capacity. Half of the blocks are in the sample, so no estimate is exact.
Plan SmallestPlan() {
  return {.workloads = {{.name = "synthetic", .requests = Conversations(1, 2'000)}},
          .capacities = {2'000}};
}

absl::StatusOr<Plan> FullPlan(const char* trace_path) {
  Plan plan{.workloads = {{.name = "synthetic", .requests = Conversations(1, 12'000)}},
            .capacities = {1'500, 3'000, 10'000}};
  for (const WorkloadKind kind :
       {WorkloadKind::kAgents, WorkloadKind::kChat, WorkloadKind::kShift}) {
    plan.workloads.push_back(
        WorkloadOf(std::string(WorkloadKindName(kind)),
                   GenerateWorkload({.kind = kind, .requests = 8'000, .hours = 1.5})));
  }
  if (trace_path != nullptr) {
    const absl::StatusOr<Trace> trace = ReadTrace(trace_path);
    if (!trace.ok()) return trace.status();
    plan.workloads.push_back(WorkloadOf("trace", *trace));
  }
  return plan;
}

int Run(int argc, char** argv) {
  const bool smallest = argc > 1 && std::string_view(argv[1]) == "--smoke";
  const absl::StatusOr<Plan> plan =
      smallest ? SmallestPlan() : FullPlan(argc > 1 ? argv[1] : nullptr);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", std::string(plan.status().message()).c_str());
    return 1;
  }
  Totals totals;
  for (const Workload& workload : plan->workloads) {
    for (const std::string_view policy : EvictionPolicyNames()) {
      for (const uint32_t blocks : plan->capacities) {
        PrintErrors(workload, Cache::kOneTier, blocks, std::string(policy), totals);
      }
      PrintErrors(workload, Cache::kLadder, plan->capacities.back(), std::string(policy), totals);
    }
  }
  Print({.id = "advise_worst_error",
         .value = totals.worst,
         .unit = "percentage points",
         .yardstick = "the goal",
         .yardstick_value = kGoal});
  Print({.id = "advise_within_error",
         .value = 100.0 * (totals.estimates - totals.beyond_error) / totals.estimates,
         .unit = "percent of the estimates",
         .yardstick = "19 of 20",
         .yardstick_value = 95});
  return 0;
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) { return pagoda::bench::Run(argc, argv); }
