// The mechanism of BlockExchange, without a thread and without a clock.
#ifndef PAGODA_MANAGER_EXCHANGE_EXCHANGE_JOBS_H_
#define PAGODA_MANAGER_EXCHANGE_EXCHANGE_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/api/operation.h"
#include "manager/exchange/block_exchange.h"
#include "manager/exchange/fetch_source.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/store/store.h"

namespace pagoda {

// What runs the steps of ExchangeJobs and knows the time: BlockExchange has a thread and the wall
// clock, a simulation has a queue and a clock of its own.
class ExchangePump {
 public:
  using Step = std::function<void()>;

  virtual ~ExchangePump() = default;
  virtual absl::Time Now() const = 0;
  // Runs the step later: not within the call, after the steps that were posted before, and never
  // two steps at once. Once the jobs have ended, drops it instead. Thread-safe.
  virtual void Post(Step step) = 0;
};

// The fetches and publishes of BlockExchange as a state machine. A job is a chain of steps. A step
// never waits: it ends, and its callback posts the next one. The pump runs the steps one after
// another, so a job needs no lock.
//
// Thread-safe: Fetch, Publish, BeginStop, has_ended and stats(). The others run where the steps
// run. The numbered promises are those of BlockExchange.
//
// The pump does these things, beside running the steps:
// 1. It calls Expire at next_expiry(), which each step can change.
// 2. After BeginStop it runs steps until has_ended(). Then it calls CloseSession.
class ExchangeJobs : public std::enable_shared_from_this<ExchangeJobs> {
 public:
  using Options = BlockExchange::Options;
  using FetchDone = BlockExchange::FetchDone;
  using PublishDone = BlockExchange::PublishDone;

  // The operations under way own the object, and so the pump too. The others outlive both.
  ExchangeJobs(SharedManager* manager, PoolSet* pools, Store* store, Options options,
               std::shared_ptr<ExchangePump> pump);

  // Call it once, before all others. Errors: those of OpenSession.
  absl::Status OpenSession();
  // These are the methods of the same name in BlockExchange.
  void Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done,
             std::shared_ptr<FetchSource> source = nullptr);
  void Publish(StoredPrompt prompt, PublishDone done);
  ExchangeStats stats() const;

  // From now on jobs end at their next step, and new ones are refused.
  void BeginStop();
  // Whether it is stopping and no job is left.
  bool has_ended() const;
  void CloseSession();

  // When a fetch that waits passes its deadline; InfiniteFuture: none waits.
  absl::Time next_expiry() const { return next_expiry_; }
  // Ends the waiting fetches whose deadline has passed. Does nothing before next_expiry().
  void Expire();

 private:
  using Step = ExchangePump::Step;

  // A sequence that holds slots.
  struct Held {
    SequenceId sequence;
    std::vector<BlockHandle> table;
  };
  struct FetchJob {
    StoredPrompt prompt;
    size_t prompt_bytes = 0;
    FetchDone done;
    std::shared_ptr<FetchSource> source;  // Also owned by the caller.
    absl::Time deadline;
    bool is_bounded = false;                         // By the options' deadline.
    std::vector<std::shared_ptr<FetchJob>> waiters;  // They lack the same block.

    std::vector<ContentDigest> digests;  // The digests of the whole blocks.
    uint32_t cached = 0;                 // Blocks from the start, as of the match.
    uint32_t end = 0;                    // Blocks from the start that the cache or the store has.
    uint32_t from = 0;                   // The first block that is fetched.
    Held held;
    bool awaits_copies = false;  // Its slots are not empty yet.
    absl::Time began;
  };
  struct PublishJob {
    StoredPrompt prompt;
    size_t prompt_bytes = 0;  // When it came.
    PublishDone done;
    PublishedPrefix result;
    std::vector<ContentDigest> digests;
    std::vector<uint32_t> missing;  // Blocks that the store lacks.
    Held held;
  };

  // The jobs (exchange_jobs.cc).
  FetchOutcome Begin(size_t prompt_bytes, Step step);
  void Post(Step step) { pump_->Post(std::move(step)); }
  absl::Time Now() const { return pump_->Now(); }
  bool is_stopping() const;
  void EndJob(size_t prompt_bytes, const std::function<void(ExchangeStats&)>& change);

  // The cache (exchange_jobs.cc).
  absl::StatusOr<OperationResult> RunOne(const Operation& operation);
  template <class Result>
  absl::StatusOr<Result> Do(const Operation& operation) {
    absl::StatusOr<OperationResult> result = RunOne(operation);
    if (!result.ok()) return result.status();
    return std::get<Result>(*std::move(result));
  }
  absl::StatusOr<AddedSequence> Hold(const StoredPrompt& prompt, uint32_t reserved_tokens,
                                     Held& held);
  void EndHold(Held& held);
  absl::StatusOr<MatchedPrefix> Match(const StoredPrompt& prompt);
  StoredPrompt Longer(const StoredPrompt& prompt) const;
  StoreKey KeyOf(const ContentDigest& digest) const;
  template <class Byte>
  std::vector<absl::Span<Byte>> Pieces(const BlockHandle& block) const {
    std::vector<absl::Span<Byte>> pieces;
    const size_t pools = pools_.layout().windows()[0].pools.size();
    for (uint32_t pool = 0; pool < pools; ++pool) {
      pieces.push_back(pools_.pool(0, pool).slot(block.slot));
    }
    return pieces;
  }

  // A fetch (fetch_jobs.cc).
  void StartFetch(const std::shared_ptr<FetchJob>& job);
  absl::Duration Allowed(uint32_t blocks) const;
  void FoundBlocks(const std::shared_ptr<FetchJob>& job, const std::vector<StoreOutcome>& outcomes);
  bool IsSlower(const FetchJob& job, uint32_t blocks);
  void Reserve(const std::shared_ptr<FetchJob>& job);
  void GetBlocks(const std::shared_ptr<FetchJob>& job);
  void GotBlocks(const std::shared_ptr<FetchJob>& job, const std::vector<StoreOutcome>& outcomes);
  void NoteRate(const FetchJob& job, const std::vector<StoreOutcome>& outcomes);
  std::pair<ContentDigest, const FetchSource*> NameOf(const FetchJob& job) const {
    return {job.digests[job.cached], job.source == own_ ? nullptr : job.source.get()};
  }
  void LeaveFetch(const std::shared_ptr<FetchJob>& job, FetchOutcome outcome, uint32_t good);
  void EndFetch(FetchJob& job, FetchOutcome outcome, uint32_t good = 0);

  // A publish (publish_jobs.cc).
  void StartPublish(const std::shared_ptr<PublishJob>& job);
  void FoundMissing(const std::shared_ptr<PublishJob>& job,
                    const std::vector<StoreOutcome>& outcomes);
  double CutToBudget(PublishJob& job);
  void DropMissing(PublishJob& job, uint32_t end);
  void PutBlocks(const std::shared_ptr<PublishJob>& job);
  void PutDone(const std::shared_ptr<PublishJob>& job, const std::vector<StoreOutcome>& outcomes);
  void EndPublish(PublishJob& job);

  SharedManager& manager_;
  PoolSet& pools_;
  const std::shared_ptr<FetchSource> own_;  // Also owned by the fetches. Null: there is no store.
  const Options options_;
  const TokensPerBlock tokens_per_block_;
  const ContentDigest layout_;
  const uint64_t block_bytes_;
  const uint32_t capacity_;                   // Blocks of the first tier.
  const std::shared_ptr<ExchangePump> pump_;  // Also owned by BlockExchange.

  // Only the steps use these.
  SessionRef session_;
  // By the first missing block and the source. Ordered, so that the same steps give the same
  // results.
  using FetchName = std::pair<ContentDigest, const FetchSource*>;  // Null: the own store.
  absl::btree_map<FetchName, std::shared_ptr<FetchJob>> fetches_;
  absl::Time next_expiry_ = absl::InfiniteFuture();  // The earliest deadline of a waiting fetch.
  uint64_t last_sequence_ = 0;
  double budget_ = 0;  // Bytes that may be published now, as of budget_at_.
  absl::Time budget_at_ = absl::InfinitePast();

  mutable absl::Mutex mutex_;  // A leaf.
  size_t jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t prompt_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // Bytes of the jobs' prompts.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ExchangeStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EXCHANGE_EXCHANGE_JOBS_H_
