// The operations of a step for the cache, and the functions that take their results.
#ifndef PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_
#define PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/api/cache_client.h"

namespace pagoda {

// Consecutive appends go to the cache as one AppendStep. Thread-compatible.
class StepBatch {
 public:
  using Taker = std::function<void(absl::StatusOr<OperationResult> result)>;
  // The growth of a sequence's tables by an append; no table if it stayed in its last block.
  struct Appended {
    std::vector<BlockTable> added;
    Ticket ready;
  };
  using AppendTaker = std::function<void(absl::StatusOr<Appended> appended)>;

  // REQUIRES: `operation` is not an AppendTokens.
  void Add(Operation operation, Taker taker) {
    entries_.push_back({std::move(operation), std::move(taker)});
  }
  void AddAppend(AppendTokens append, AppendTaker taker);
  bool empty() const { return entries_.empty(); }

  struct Outcome {
    Ticket completed;        // The last completed ticket: see BatchResult.
    Ticket completed_fetch;  // The same for the fetch lane.
    std::vector<ShortenedSequence> shortened;
  };
  // Runs the operations, at most kMaxBatchOperations at a time, and gives each result to its taker,
  // in order. The batch is empty then. Errors: those of CacheClient::Execute; the remaining takers
  // are not called.
  absl::StatusOr<Outcome> Run(CacheClient& client);

 private:
  // A run of appends has a taker for each sequence.
  using Takers = std::variant<Taker, std::vector<AppendTaker>>;
  struct Entry {
    Operation operation;
    Takers takers;
  };

  static void Give(absl::StatusOr<OperationResult> result, const CacheInfo& cache,
                   const Takers& takers);

  std::vector<Entry> entries_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_
