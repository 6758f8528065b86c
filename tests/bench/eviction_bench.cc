// The hit rates of the eviction policies, beside those of lru on the same trace and tiers. They do
// not depend on the machine. `deploy/bench.sh eviction` runs it.
//
//   eviction_bench [--smoke] [--trace FILE] [ID...]     only figures that begin with an ID
//
// Traces: `conversation` is FILE, a trace of Mooncake's (left out without one); `agents`, `chat`
// and `shift` are generated, and `shift` changes its nature halfway. Requests run one by one,
// except for `overlap`: the conversation trace with requests that overlap in time.
//
// Figures, in percent. POLICY is each policy but lru, and opt (clairvoyance):
//   eviction_TRACE_POLICY_BLOCKS        the hit rate; beside lru's
//   eviction_TRACE_POLICY_BLOCKS_host   with a host tier of three times as many blocks
//   eviction_shift_hour_POLICY_BLOCKS   the hour of the trace in which the policy does worst
//   against
//                                       lru: its hit rate; beside lru's in this hour
//   eviction_worst_POLICY               the row above all others of the policy in which it does
//                                       worst against lru; standard error names it
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "clients/pagodactl/replay.h"
#include "clients/pagodactl/replay_opt.h"
#include "clients/pagodactl/trace.h"
#include "clients/pagodactl/workload_trace.h"
#include "manager/eviction_policy.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr char kLru[] = "lru";
constexpr int64_t kMostHours = 1000;  // Later requests count in the last one.

struct Options {
  bool smoke = false;
  std::string conversation;  // A file; empty: left out.
  std::vector<std::string> ids;

  bool Wants(const std::string& id) const {
    return ids.empty() || std::any_of(ids.begin(), ids.end(), [&id](const std::string& begin) {
             return absl::StartsWith(id, begin);
           });
  }
};

// Blocks that were requested and hit.
struct Tally {
  uint64_t requested = 0;
  uint64_t hit = 0;

  double percent() const {
    return requested == 0 ? 0 : 100.0 * static_cast<double>(hit) / static_cast<double>(requested);
  }
};

// One replay.
struct Job {
  const Trace* trace = nullptr;
  std::string policy;
  std::vector<uint32_t> tiers;
  std::optional<ServiceModel> service;

  Tally all;
  std::vector<Tally> hours;  // Of the trace's time.

  void Run() {
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
                                   .service = service};
    const auto report = policy == kOptPolicy ? ReplayOptimal(trace->requests, options)
                                             : ReplayTrace(trace->requests, options);
    PAGODA_CHECK(report.ok(), std::string(report.status().message()).c_str());
    all = {report->blocks_requested, report->blocks_hit};
  }
};

// The jobs of one trace and one list of tiers, by policy.
struct Row {
  std::string trace;
  std::string suffix;  // "3000_host".
  std::map<std::string, size_t> jobs;
};

class Matrix {
 public:
  explicit Matrix(const Options& options) : options_(options) {
    for (const std::string_view policy : EvictionPolicyNames()) {
      if (policy != kLru && (!options.smoke || policy == "mq")) policies_.emplace_back(policy);
    }
    policies_.emplace_back(kOptPolicy);
  }

  void Add(const std::string& name, const Trace& trace, uint32_t blocks, uint32_t host_blocks,
           const std::optional<ServiceModel>& service = std::nullopt) {
    Row row{name, absl::StrCat(blocks, host_blocks > 0 ? "_host" : ""), {}};
    std::vector<uint32_t> tiers = {blocks};
    if (host_blocks > 0) tiers.push_back(host_blocks);
    for (const std::string& policy : policies_) {
      if (policy == kOptPolicy && service.has_value()) continue;
      const std::string id = Id(row, policy);
      if (!options_.Wants(id) && !options_.Wants(HourId(row, policy)) &&
          !options_.Wants(WorstId(policy))) {
        continue;
      }
      for (const std::string& needed : {std::string(kLru), policy}) {
        if (!row.jobs.try_emplace(needed, jobs_.size()).second) continue;
        jobs_.push_back({&trace, needed, tiers, service, {}, {}});
      }
    }
    if (!row.jobs.empty()) rows_.push_back(std::move(row));
  }

  void Run() {
    std::atomic<size_t> next{0};
    const auto work = [this, &next] {
      for (size_t i = next++; i < jobs_.size(); i = next++) jobs_[i].Run();
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
  }

  void PrintFigures() const {
    for (const Row& row : rows_) {
      for (const auto& [policy, job] : row.jobs) {
        if (policy == kLru) continue;
        PrintBesideLru(Id(row, policy), jobs_[job].all, jobs_[row.jobs.at(kLru)].all);
        if (row.trace == "shift" && policy != kOptPolicy) PrintWorstHour(row, policy);
      }
    }
    for (const std::string& policy : policies_) {
      if (policy != kOptPolicy) PrintWorst(policy);
    }
  }

 private:
  static std::string Id(const Row& row, const std::string& policy) {
    return absl::StrCat("eviction_", row.trace, "_", policy, "_", row.suffix);
  }
  static std::string HourId(const Row& row, const std::string& policy) {
    return absl::StrCat("eviction_shift_hour_", policy, "_", row.suffix);
  }
  static std::string WorstId(const std::string& policy) {
    return absl::StrCat("eviction_worst_", policy);
  }

  void PrintBesideLru(const std::string& id, const Tally& value, const Tally& lru) const {
    if (!options_.Wants(id)) return;
    Print({.id = id,
           .value = value.percent(),
           .unit = "%",
           .yardstick = "policy lru",
           .yardstick_value = lru.percent()});
  }

  void PrintWorstHour(const Row& row, const std::string& policy) const {
    const Job& job = jobs_[row.jobs.at(policy)];
    const Job& lru = jobs_[row.jobs.at(kLru)];
    std::optional<size_t> worst;
    for (size_t hour = 0; hour < job.hours.size(); ++hour) {
      // An hour with few requests says nothing.
      if (job.hours[hour].requested * 100 < job.all.requested) continue;
      const double lost = lru.hours[hour].percent() - job.hours[hour].percent();
      if (!worst.has_value() || lost > lru.hours[*worst].percent() - job.hours[*worst].percent()) {
        worst = hour;
      }
    }
    if (worst.has_value()) {
      PrintBesideLru(HourId(row, policy), job.hours[*worst], lru.hours[*worst]);
    }
  }

  void PrintWorst(const std::string& policy) const {
    if (!options_.Wants(WorstId(policy))) return;
    const Row* worst = nullptr;
    double most_lost = 0;
    for (const Row& row : rows_) {
      const auto job = row.jobs.find(policy);
      if (job == row.jobs.end()) continue;
      const double lost = jobs_[row.jobs.at(kLru)].all.percent() - jobs_[job->second].all.percent();
      if (worst != nullptr && lost <= most_lost) continue;
      worst = &row;
      most_lost = lost;
    }
    if (worst == nullptr) return;
    std::fprintf(stderr, "eviction_bench: %s does worst against lru in %s, by %.2f points\n",
                 policy.c_str(), Id(*worst, policy).c_str(), most_lost);
    PrintBesideLru(WorstId(policy), jobs_[worst->jobs.at(policy)].all,
                   jobs_[worst->jobs.at(kLru)].all);
  }

  const Options& options_;
  std::vector<std::string> policies_;  // All but lru.
  std::vector<Job> jobs_;
  std::vector<Row> rows_;
};

void Measure(const Options& options) {
  std::map<std::string, Trace> traces;
  const auto add = [&](WorkloadKind kind, size_t requests, double hours) {
    traces[std::string(WorkloadKindName(kind))] = GenerateWorkload(
        {.kind = kind, .requests = options.smoke ? 600 : requests, .hours = hours, .seed = 1});
  };
  // As much load as the conversation trace: a few requests a second at the busiest time.
  add(WorkloadKind::kAgents, 8'000, 1.5);
  add(WorkloadKind::kChat, 30'000, 3);
  add(WorkloadKind::kShift, 24'000, 6);
  if (!options.conversation.empty()) {
    absl::StatusOr<Trace> read = ReadTrace(options.conversation);
    PAGODA_CHECK(read.ok(), std::string(read.status().message()).c_str());
    traces["conversation"] = *std::move(read);
  }

  Matrix matrix(options);
  const std::vector<uint32_t> capacities =
      options.smoke ? std::vector<uint32_t>{400}
                    : std::vector<uint32_t>{1'000, 3'000, 10'000, 30'000, 100'000};
  for (const auto& [name, trace] : traces) {
    for (const uint32_t blocks : capacities) {
      matrix.Add(name, trace, blocks, 0);
      matrix.Add(name, trace, blocks, 3 * blocks);
      if (name == "conversation") matrix.Add("overlap", trace, blocks, 0, ServiceModel{});
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
    } else if (std::strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
      options.conversation = argv[++i];
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "eviction_bench [--smoke] [--trace FILE] [ID...]\n");
      return 2;
    } else {
      options.ids.emplace_back(argv[i]);
    }
  }
  pagoda::bench::Measure(options);
  return 0;
}
