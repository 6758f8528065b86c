// The operations that a step has for the cache, and who wants their results.
#ifndef PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_
#define PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/cache_client.h"

namespace pagoda {

// Thread-compatible.
class StepBatch {
 public:
  using Taker = std::function<void(absl::StatusOr<OperationResult> result)>;

  void Add(Operation operation, Taker taker) {
    operations_.push_back(std::move(operation));
    takers_.push_back(std::move(taker));
  }
  bool empty() const { return operations_.empty(); }

  struct Outcome {
    Ticket completed;        // As in BatchResult.
    Ticket completed_fetch;  // Likewise.
    std::vector<ShortenedSequence> shortened;
  };
  // Runs the operations, at most kMaxBatchOperations at once, gives each result to its taker, in
  // order, and is empty then. Errors: those of CacheClient::Execute; takers that have not been
  // called are not called.
  absl::StatusOr<Outcome> Run(CacheClient& client);

 private:
  std::vector<Operation> operations_;
  std::vector<Taker> takers_;  // One an operation.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_STEP_BATCH_H_
