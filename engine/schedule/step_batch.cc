#include "engine/schedule/step_batch.h"

#include <algorithm>

namespace pagoda {

absl::StatusOr<StepBatch::Outcome> StepBatch::Run(CacheClient& client) {
  const std::vector<Operation> operations = std::exchange(operations_, {});
  const std::vector<Taker> takers = std::exchange(takers_, {});
  Outcome outcome;
  for (size_t begin = 0; begin < operations.size(); begin += kMaxBatchOperations) {
    const auto part = absl::MakeConstSpan(operations).subspan(begin, kMaxBatchOperations);
    absl::StatusOr<BatchResult> batch = client.Execute(part);
    if (!batch.ok()) return batch.status();
    for (size_t i = 0; i < part.size(); ++i) takers[begin + i](std::move(batch->results[i]));
    outcome = {.completed = batch->completed,
               .completed_fetch = batch->completed_fetch,
               .shortened = std::move(batch->shortened)};
  }
  return outcome;
}

}  // namespace pagoda
