#include "manager/exchange/block_exchange.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "base/thread.h"
#include "manager/exchange/exchange_jobs.h"

namespace pagoda {
namespace {

// Steps that wait for the thread. Thread-safe.
class StepQueue final : public ExchangePump {
 public:
  absl::Time Now() const override { return SharedManager::Now(); }
  void Post(Step step) override {
    absl::MutexLock lock(&mutex_);
    if (!is_closed_) steps_.push_back(std::move(step));
  }
  // The steps own the jobs, which own this queue.
  void Close() {
    std::deque<Step> dropped;
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;
    dropped.swap(steps_);
  }
  // Runs one step. Returns without one at `deadline`.
  void RunOne(absl::Time deadline) {
    Step step;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &StepQueue::has_steps), deadline - Now());
      if (steps_.empty()) return;
      step = std::move(steps_.front());
      steps_.pop_front();
    }
    step();
  }

 private:
  bool has_steps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !steps_.empty(); }

  absl::Mutex mutex_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

// Runs the steps of the jobs on one thread. Thread-safe.
class BlockExchange::Core {
 public:
  Core(SharedManager* manager, PoolSet* pools, Store* store, const Options& options)
      : steps_(std::make_shared<StepQueue>()),
        jobs_(std::make_shared<ExchangeJobs>(manager, pools, store, options, steps_)) {}

  // Opens the session and starts the thread. Errors: those of OpenSession; ResourceExhausted.
  absl::Status Start() {
    if (absl::Status status = jobs_->OpenSession(); !status.ok()) return status;
    absl::MutexLock lock(&stop_mutex_);
    const absl::Status started = thread_.Start("pagoda-exchange", [this] { Run(); });
    if (!started.ok()) jobs_->CloseSession();
    return started;
  }
  void Stop() {
    absl::MutexLock lock(&stop_mutex_);
    jobs_->BeginStop();
    if (!thread_.joinable()) return;
    steps_->Post([] {});  // Wakes the thread.
    thread_.Join();
    jobs_->CloseSession();
  }
  ExchangeJobs& jobs() { return *jobs_; }

 private:
  void Run() {
    while (!jobs_->has_ended()) {
      steps_->RunOne(jobs_->next_expiry());
      jobs_->Expire();
    }
    steps_->Close();
  }

  const std::shared_ptr<StepQueue> steps_;    // Also owned by the jobs.
  const std::shared_ptr<ExchangeJobs> jobs_;  // Also owned by the operations under way.
  absl::Mutex stop_mutex_;
  Thread thread_ ABSL_GUARDED_BY(stop_mutex_);
};

absl::StatusOr<std::unique_ptr<BlockExchange>> BlockExchange::Create(SharedManager* manager,
                                                                     PoolSet* pools, Store* store,
                                                                     Options options) {
  const CacheLayout& layout = pools->layout();
  if (layout.spec().model_fingerprint.empty()) {
    return InvalidArgument(
        "a cache that exchanges blocks with a store needs a model fingerprint: without it, blocks "
        "of different models could mix");
  }
  if (layout.windows().size() != 1 || layout.windows()[0].window != kFullAttention) {
    return absl::UnimplementedError("blocks of sliding windows are not exchanged with a store");
  }
  if (pools->place(kPrimaryTier).kind != MemoryKind::kHost) {
    return absl::UnimplementedError("blocks on a device are not exchanged with a store");
  }
  auto core = std::make_unique<Core>(manager, pools, store, options);
  if (absl::Status status = core->Start(); !status.ok()) return status;
  return absl::WrapUnique(new BlockExchange(std::move(core)));
}

BlockExchange::BlockExchange(std::unique_ptr<Core> core) : core_(std::move(core)) {}

BlockExchange::~BlockExchange() { Stop(); }

void BlockExchange::Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done,
                          std::shared_ptr<FetchSource> source) {
  core_->jobs().Fetch(std::move(prompt), most, std::move(done), std::move(source));
}

void BlockExchange::Publish(StoredPrompt prompt, PublishDone done) {
  core_->jobs().Publish(std::move(prompt), std::move(done));
}

void BlockExchange::Stop() { core_->Stop(); }

ExchangeStats BlockExchange::stats() const { return core_->jobs().stats(); }

}  // namespace pagoda
