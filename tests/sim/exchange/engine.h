// Engines of a cache: they run sequences, write the KV of each token, and check each byte that they
// find cached.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_ENGINE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_ENGINE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "manager/api/operation.h"
#include "manager/exchange/stored_prefix.h"
#include "tests/sim/exchange/cache.h"
#include "tests/sim/exchange/surroundings.h"
#include "tests/sim/words/random.h"

namespace pagoda::exchange_sim {

class Engine {
 public:
  Engine(Surroundings* surroundings, SimCache* cache);

  // REQUIRES: `kind` is one of the engines' kinds.
  void Do(Kind kind, sim::Random& random);
  // A prompt that was computed lately, at least in part. Empty: none was.
  const StoredPrompt& computed() const { return computed_; }
  // Computes everything and frees it, as far as copies have ended.
  void Leave(sim::Random& random);

 private:
  struct Running {
    SequenceId id;
    StoredPrompt content;
  };

  template <class Result>
  absl::StatusOr<Result> Execute(const Operation& operation) {
    absl::StatusOr<BatchResult> batch = cache_.manager().Execute(session_, {&operation, 1});
    if (!batch.ok()) return batch.status();
    if (!batch->shortened.empty()) surroundings_.coverage.Add(Met::kShortened);
    absl::StatusOr<OperationResult>& result = batch->results.front();
    if (!result.ok()) return result.status();
    return std::get<Result>(*std::move(result));
  }

  void Add(sim::Random& random);
  void Progress(Running& running, sim::Random& random);
  void AppendTo(Running& running, sim::Random& random);
  void Fork(const Running& running);
  void Free(size_t index);
  bool IsReady(Ticket ready) const {
    return cache_.manager().Read(
        [&](const BlockManager& core) { return core.completed_ticket() >= ready; });
  }
  void CheckTable(const Running& running, const DescribedSequence& now);

  Surroundings& surroundings_;
  SimCache& cache_;
  const uint32_t tokens_per_block_;
  const SessionRef session_;
  std::vector<Running> running_;
  StoredPrompt computed_;
  std::vector<PinId> pins_;
  uint64_t last_sequence_ = 0;
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_ENGINE_H_
