// Replays of many traces by many eviction policies, and their hit rates beside those of lru.
#ifndef PAGODA_TESTS_BENCH_MANAGER_EVICTION_MATRIX_H_
#define PAGODA_TESTS_BENCH_MANAGER_EVICTION_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda::bench {

// Blocks that were requested and hit.
struct Tally {
  uint64_t requested = 0;
  uint64_t hit = 0;

  double percent() const {
    return requested == 0 ? 0 : 100.0 * static_cast<double>(hit) / static_cast<double>(requested);
  }
};

// Collects rows, runs them and prints their figures. eviction_bench.cc lists the figures. A row is
// one trace, one list of tiers and one way in which requests follow each other; it has one replay
// for each policy. Thread-compatible.
class EvictionMatrix {
 public:
  // Prints the figures whose ids begin with one of `ids`; all if there is none.
  explicit EvictionMatrix(std::vector<std::string> ids) : ids_(std::move(ids)) {}

  struct RowOptions {
    std::string name;                   // In the figures' ids: "chat_overlap".
    const Trace* trace = nullptr;       // Outlives the matrix.
    std::vector<std::string> policies;  // The policies besides lru.
    uint32_t blocks = 0;
    uint32_t lower_blocks = 0;               // 0: one tier.
    std::optional<ServiceModel> service;     // nullopt: requests run one by one.
    bool by_hour = false;                    // The row has the figures of its worst hour too.
    LastTier last_tier = LastTier::kMemory;  // The one with `lower_blocks`.
  };
  // Adds the replays that the wanted figures need. Leaves the row out if all blocks fit its tiers:
  // then no policy evicts anything.
  void Add(const RowOptions& options);

  // Runs all replays, as many at once as there are processors and as half of the available memory
  // holds. Replays of one trace share it, but each has a cache with the tokens of its blocks.
  void Run();

  // To standard output. Standard error names the rows in which a policy is below lru by more than
  // kTolerated points.
  void PrintFigures() const;

  static constexpr double kTolerated = 0.3;

 private:
  struct Job {
    const Trace* trace = nullptr;
    std::string policy;
    std::vector<uint32_t> tiers;
    std::optional<ServiceModel> service;
    LastTier last_tier = LastTier::kMemory;
    uint64_t bytes = 0;  // The bytes of its cache.

    Tally all;
    std::vector<Tally> hours;      // One tally for each hour of the trace's time.
    bool hours_are_clear = false;  // Requests ran in the hour in which they arrived.

    void Run();
  };
  struct Row {
    std::string name;
    std::string suffix;  // "3000_host".
    bool by_hour = false;
    std::map<std::string, size_t> jobs;  // By policy.
  };
  // A policy other than lru.
  struct Pair {
    std::string id;
    Tally policy;
    Tally lru;

    double lost() const { return lru.percent() - policy.percent(); }
  };

  bool Wants(const std::string& id) const;
  bool WantsAny(const Row& row, const std::string& policy) const;
  uint64_t DistinctBlocks(const Trace& trace, const std::optional<ServiceModel>& service);
  std::optional<Pair> WorstHour(const Row& row, const std::string& policy) const;
  void Print(const Pair& pair) const;
  static void PrintSummary(const std::string& policy, const std::vector<Pair>& rows);
  void PrintWorst(const std::string& policy) const;

  const std::vector<std::string> ids_;
  std::vector<Job> jobs_;
  std::vector<Row> rows_;
  std::map<std::pair<const Trace*, bool>, uint64_t> distinct_blocks_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_MANAGER_EVICTION_MATRIX_H_
