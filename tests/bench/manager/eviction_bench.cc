// The hit rates of the eviction policies, next to those of lru on the same trace and tiers. They do
// not depend on the machine. `deploy/bench.sh eviction` runs it: minutes on two cores.
//
//   eviction_bench [--smoke] [--trace FILE] [ID...]     only figures that begin with an ID
//   eviction_bench --random N [ID...]                   on N random traces instead
//
// TRACE is `conversation`, which is FILE, a trace of Mooncake's (left out without one), or one that
// is generated: `agents`, `chat` or `shift`, which changes its nature halfway. Each is generated
// from three seeds: `chat` is from seed 1, `chat_seed2` from seed 2. Requests run one by one; in
// `TRACE_overlap` they overlap in time.
//
// Figures, in percent. POLICY is each policy but lru; one by one and from seed 1 also opt
// (clairvoyance). A row without evictions is left out.
//   eviction_TRACE_POLICY_BLOCKS        the hit rate; next to lru's
//   eviction_TRACE_POLICY_BLOCKS_host   with a host tier of three times as many blocks
//   eviction_TRACE_POLICY_BLOCKS_disk   with a disk of three times as many instead; one by one and
//                                       from seed 1, for 1,000 to 10,000 blocks
//   eviction_TRACE_hour_POLICY_BLOCKS   TRACE is a `shift`: the hour in which the policy does worst
//                                       against lru; next to lru's in this hour. With _host as
//                                       above. Left out if requests waited for blocks
//   eviction_worst_POLICY               the row in which the policy does worst against lru
//   eviction_worst_hour_POLICY          the hour of all rows in which it does
//
// Standard error names these two, and every other row or hour in which a policy is below lru by
// more than 0.3 points. It also counts the rows in which a policy is above or below by more.
//
// A random trace is for policies that were made with the traces above: see random_traces.h. It is
// called `random1` if its seed is 1; standard error says what it is like. 60 of them take minutes.
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "clients/pagoda_plan/replay/replay_opt.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "clients/pagoda_plan/trace/workload_trace.h"
#include "manager/policy/eviction_policy.h"
#include "tests/bench/manager/eviction_matrix.h"
#include "tests/bench/manager/random_traces.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kMostAboveDisk = 10'000;  // Blocks of memory.

struct Options {
  bool smoke = false;
  uint64_t random_traces = 0;  // 0: the other traces.
  std::string conversation;    // A file; empty: left out.
  std::vector<std::string> ids;
};

struct NamedTrace {
  std::string name;
  Trace trace;
  bool has_opt = false;
};

std::deque<NamedTrace> MakeRandomTraces(uint64_t count) {
  std::deque<NamedTrace> traces;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    RandomTrace made = MakeRandomTrace(seed);
    traces.push_back({.name = absl::StrCat("random", seed), .trace = std::move(made.trace)});
    std::fprintf(stderr, "eviction_bench: %s: %s\n", traces.back().name.c_str(),
                 made.about.c_str());
  }
  return traces;
}

// A deque, because the matrix keeps the addresses.
std::deque<NamedTrace> MakeTraces(const Options& options) {
  if (options.random_traces > 0) return MakeRandomTraces(options.random_traces);
  std::deque<NamedTrace> traces;
  const auto add = [&](WorkloadKind kind, size_t requests, double hours, uint64_t seed) {
    std::string name(WorkloadKindName(kind));
    if (seed != 1) absl::StrAppend(&name, "_seed", seed);
    traces.push_back({.name = std::move(name),
                      .trace = GenerateWorkload({.kind = kind,
                                                 .requests = options.smoke ? 600 : requests,
                                                 .hours = hours,
                                                 .seed = seed}),
                      .has_opt = seed == 1});
  };
  for (const uint64_t seed : {1, 2, 7}) {
    if (options.smoke && seed == 7) break;
    // The load is that of the conversation trace: a few requests a second at the busiest time.
    add(WorkloadKind::kAgents, 8'000, 1.5, seed);
    add(WorkloadKind::kChat, 30'000, 3, seed);
    add(WorkloadKind::kShift, 24'000, 6, seed);
  }
  if (!options.conversation.empty()) {
    absl::StatusOr<Trace> read = ReadTrace(options.conversation);
    PAGODA_CHECK(read.ok(), std::string(read.status().message()).c_str());
    traces.push_back({.name = "conversation", .trace = *std::move(read), .has_opt = true});
  }
  return traces;
}

void Measure(const Options& options) {
  std::vector<std::string> policies;
  for (const std::string_view policy : EvictionPolicyNames()) {
    if (policy != "lru") policies.emplace_back(policy);
  }
  std::vector<std::string> with_opt = policies;
  with_opt.emplace_back(kOptPolicy);
  const std::vector<uint32_t> capacities =
      options.smoke ? std::vector<uint32_t>{400}
                    : std::vector<uint32_t>{1'000, 3'000, 10'000, 30'000, 100'000};

  const std::deque<NamedTrace> traces = MakeTraces(options);
  EvictionMatrix matrix(options.ids);
  for (const NamedTrace& trace : traces) {
    const bool by_hour = absl::StartsWith(trace.name, "shift");
    for (const uint32_t blocks : capacities) {
      for (const uint32_t host_blocks : {uint32_t{0}, 3 * blocks}) {
        matrix.Add({.name = trace.name,
                    .trace = &trace.trace,
                    .policies = trace.has_opt ? with_opt : policies,
                    .blocks = blocks,
                    .lower_blocks = host_blocks,
                    .service = std::nullopt,
                    .by_hour = by_hour});
        matrix.Add({.name = trace.name + "_overlap",
                    .trace = &trace.trace,
                    .policies = policies,
                    .blocks = blocks,
                    .lower_blocks = host_blocks,
                    .service = ServiceModel{},
                    .by_hour = by_hour});
      }
      if (!trace.has_opt || blocks > kMostAboveDisk) continue;
      matrix.Add({.name = trace.name,
                  .trace = &trace.trace,
                  .policies = policies,
                  .blocks = blocks,
                  .lower_blocks = 3 * blocks,
                  .service = std::nullopt,
                  .last_tier = LastTier::kDisk});
    }
  }
  matrix.Run();
  matrix.PrintFigures();
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  pagoda::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) {
      options.smoke = true;
    } else if (std::strcmp(argv[i], "--random") == 0 && i + 1 < argc &&
               absl::SimpleAtoi(argv[i + 1], &options.random_traces) && options.random_traces > 0) {
      ++i;
    } else if (std::strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
      options.conversation = argv[++i];
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "eviction_bench [--smoke] [--trace FILE | --random N] [ID...]\n");
      return 2;
    } else {
      options.ids.emplace_back(argv[i]);
    }
  }
  pagoda::bench::Measure(options);
  return 0;
}
