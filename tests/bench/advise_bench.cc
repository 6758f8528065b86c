// How well a running cache predicts the hit rates of other capacities: HitRateCurve beside full
// replays. deploy/bench.sh advise runs it.
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/pagodactl/trace.h"
#include "manager/eviction_policy.h"
#include "manager/hit_rate_curve.h"
#include "tests/bench/figure.h"
#include "tests/manager/block_trace.h"

namespace pagoda::bench {
namespace {

// Hit rates do not depend on the machine, so each figure is from one run.
void PrintErrors(const std::vector<BlockPrompt>& trace, const std::string& name, uint32_t blocks,
                 const std::string& policy) {
  const TraceResult now = RunTrace(trace, {.tier_blocks = {blocks}, .policy = policy});
  const HitRateCurve curve(&now.counts);
  for (const double factor : {0.5, 2.0, 4.0}) {
    const TraceResult then = RunTrace(
        trace,
        {.tier_blocks = {static_cast<uint32_t>(blocks * factor)}, .policy = policy, .samples = 0});
    const HitRateCurve::Estimate estimate = curve.At(factor);
    absl::FPrintF(stderr, "%s %s, %d blocks, %.1fx: %.2f +- %.2f %%, replayed %.2f %%\n", name,
                  policy, blocks, factor, 100 * estimate.hit_rate, 100 * estimate.error,
                  100 * then.hit_rate);
    Print({.id = absl::StrCat("advise_error_", name, "_", policy, "_", blocks, "_", factor, "x"),
           .value = 100 * std::abs(estimate.hit_rate - then.hit_rate),
           .unit = "percentage points",
           .yardstick = "the error that the estimate names",
           .yardstick_value = 100 * estimate.error});
  }
}

int Run(int argc, char** argv) {
  std::vector<std::pair<std::string, std::vector<BlockPrompt>>> traces;
  traces.emplace_back("synthetic", Conversations(1, 12'000));
  if (argc > 1) {
    const absl::StatusOr<Trace> read = ReadTrace(argv[1]);
    if (!read.ok()) {
      std::fprintf(stderr, "%s\n", std::string(read.status().message()).c_str());
      return 1;
    }
    std::vector<BlockPrompt>& trace =
        traces.emplace_back("trace", std::vector<BlockPrompt>()).second;
    for (const TraceRequest& request : read->requests) {
      trace.push_back({.time_ms = request.timestamp_ms, .blocks = request.hash_ids});
    }
  }
  for (const auto& [name, trace] : traces) {
    for (const std::string_view policy : EvictionPolicyNames()) {
      for (const uint32_t blocks : {3'000, 10'000})
        PrintErrors(trace, name, blocks, std::string(policy));
    }
  }
  return 0;
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) { return pagoda::bench::Run(argc, argv); }
