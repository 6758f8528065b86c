// An exchange of a cache on virtual time, and the promises that it must keep.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_EXCHANGE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "manager/exchange/exchange_jobs.h"
#include "tests/sim/exchange/cache.h"
#include "tests/sim/exchange/store.h"
#include "tests/sim/exchange/surroundings.h"

namespace pagoda::exchange_sim {

// What a step works for, as far as it is known. A callback of the cache does not tell.
struct Context {
  enum class Kind : uint8_t { kUnknown, kFetch, kPublish };
  Kind kind = Kind::kUnknown;
  // In the step that decides whether blocks are fetched: the first one that was asked for, and how
  // many the store has from there on.
  std::optional<std::array<std::byte, 32>> first;
  uint32_t found = 0;
  size_t source = 0;  // The source that was asked.
};

// Steps that wait. The run decides when each one runs.
class SimPump final : public ExchangePump {
 public:
  explicit SimPump(const Timeline* timeline) : timeline_(*timeline) {}

  absl::Time Now() const override { return timeline_.now(); }
  void Post(Step step) override {
    if (!is_closed_) steps_.emplace_back(std::move(step), context_);
  }
  void Close() { is_closed_ = true; }
  bool has_steps() const { return !steps_.empty(); }
  std::pair<Step, Context> Take() {
    std::pair<Step, Context> first = std::move(steps_.front());
    steps_.pop_front();
    return first;
  }

  // Does something in a context, which the steps inherit that it posts.
  template <class What>
  void In(Context context, const What& what) {
    const Context before = std::exchange(context_, context);
    what();
    context_ = before;
  }
  const Context& context() const { return context_; }

 private:
  const Timeline& timeline_;
  Context context_;
  std::deque<std::pair<Step, Context>> steps_;
  bool is_closed_ = false;
};

class SimExchange {
 public:
  // Where a fetch can ask.
  static constexpr size_t kOwnStore = 0;
  static constexpr size_t kPeer = 1;
  static constexpr size_t kSources = 2;

  // The values that each source has. `stream` differs from exchange to exchange.
  SimExchange(Surroundings* surroundings, SimCache* cache, std::array<Values*, kSources> values,
              uint64_t stream);
  ~SimExchange();

  void Fetch(const StoredPrompt& prompt, absl::Duration most, size_t source);
  void Publish(const StoredPrompt& prompt);

  bool has_steps() const { return pump_->has_steps(); }
  void RunStep();
  absl::Time next_expiry() const { return jobs_->next_expiry(); }
  void Expire();

  void BeginStop() {
    is_stopping_ = true;
    jobs_->BeginStop();
  }
  void StopStores() {
    for (const std::unique_ptr<Source>& source : sources_) source->store->Stop();
  }
  bool has_ended() const { return jobs_->has_ended(); }
  bool has_jobs() const { return jobs_->stats().waiting > 0; }
  // REQUIRES: has_ended().
  void Close();

  // What the last job that was reported said.
  const FetchedPrefix& last_fetch() const { return last_fetch_; }
  const PublishedPrefix& last_publish() const { return last_publish_; }

  // What must be true between two steps.
  void Check();

 private:
  using Key = std::array<std::byte, 32>;  // StoreKey::digest.
  struct Job {
    absl::Time deadline = absl::InfiniteFuture();
    bool is_reported = false;
  };

  // A store, and what it sees of the exchange.
  using Question = std::pair<size_t, Key>;  // A source, and the first block that it is asked for.
  struct Source final : public StoreWatcher {
    SimExchange* exchange = nullptr;
    size_t index = 0;
    std::shared_ptr<SimStore> store;  // Also owned by `speed`.
    std::shared_ptr<FetchSource> speed;
    absl::Time slow_since = absl::InfiniteFuture();  // The value that FetchSource must have.
    std::map<Key, uint32_t> to_withdraw;             // Reported as invalid.

    Around Got(const std::vector<Store::Read>& batch) override;
    Around Put(const std::vector<Store::Write>& batch, absl::Duration time_to_live) override;
    Around Asked(const std::vector<StoreKey>& batch) override;
  };

  size_t NewJob(absl::Time deadline);
  void Report(size_t job, const char* what);
  void CheckOutcome(const FetchedPrefix& fetched, uint32_t whole_blocks);
  double RateOf(size_t source) const;
  void CheckDecision(const Context& context, double rate, bool is_begun);
  void CheckOneAsks(const Question& first);
  void CheckBudget(uint64_t bytes);
  std::vector<SequenceId> HeldSequences() const;

  Surroundings& surroundings_;
  SimCache& cache_;
  const BlockExchange::Options& options_;
  const std::shared_ptr<SimPump> pump_;
  std::array<std::unique_ptr<Source>, kSources> sources_;
  std::shared_ptr<ExchangeJobs> jobs_;
  uint64_t block_bytes_ = 0;
  SessionRef session_;  // The exchange's.
  std::vector<Job> all_jobs_;
  FetchedPrefix last_fetch_;
  PublishedPrefix last_publish_;
  uint64_t published_blocks_ = 0;
  bool is_stopping_ = false;
  bool is_closed_ = false;

  // The sources and first missing blocks of the fetches that ask, and of those that hold a
  // sequence.
  std::set<Question> asked_;
  std::map<SequenceId, Question> fetched_;
  // The times and bytes of the publishes.
  std::vector<std::pair<absl::Time, uint64_t>> sent_;
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_EXCHANGE_H_
