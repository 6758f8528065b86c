#include "server/tenant_turns.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "pools/error.h"

namespace pagoda::server {

class TenantTurns::Queues : public std::enable_shared_from_this<Queues> {
 public:
  explicit Queues(size_t max_waiting) : max_waiting_(max_waiting) {}

  absl::Status CheckRoom(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto queue = queues_.find(tenant);
    if (queue == queues_.end() || queue->second.waiting.size() < max_waiting_) {
      return absl::OkStatus();
    }
    return MakeError(Reason::kTooManyCalls,
                     absl::StrCat(max_waiting_, " calls of this tenant wait for their turn"));
  }

  // Whether it is the tenant's turn; else `work` waits for it, and is moved from.
  bool Begin(TenantId tenant, std::function<void()>& work) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    Queue& queue = queues_[tenant];
    if (std::exchange(queue.running, true)) {
      queue.waiting.push_back(std::move(work));
      return false;
    }
    return true;
  }

  // The tenant's turn is over, and the next one's comes: by way of gRPC's own queue, so that calls
  // of others that have come meanwhile go first.
  void End(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    Queue& queue = queues_[tenant];
    queue.running = !queue.waiting.empty();
    if (!queue.running) return;
    queue.alarm = std::make_unique<grpc::Alarm>();
    queue.alarm->Set(absl::ToChronoTime(absl::Now()),
                     [self = shared_from_this(), tenant](bool) { self->RunNext(tenant); });
  }

 private:
  struct Queue {
    bool running = false;
    std::deque<std::function<void()>> waiting;
    std::unique_ptr<grpc::Alarm> alarm;  // Until the first of them begins.
  };

  void RunNext(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_) {
    // The alarm owns what calls this.
    const std::shared_ptr<Queues> self = shared_from_this();
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      Queue& queue = queues_[tenant];
      work = std::move(queue.waiting.front());
      queue.waiting.pop_front();
      queue.alarm.reset();
    }
    work();
    End(tenant);
  }

  const size_t max_waiting_;
  mutable absl::Mutex mutex_;  // Nothing is called under it but the alarms.
  absl::node_hash_map<TenantId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
};

TenantTurns::TenantTurns(size_t max_waiting) : queues_(std::make_shared<Queues>(max_waiting)) {}
TenantTurns::~TenantTurns() = default;

absl::Status TenantTurns::CheckRoom(TenantId tenant) const { return queues_->CheckRoom(tenant); }

void TenantTurns::Run(TenantId tenant, std::function<void()> work) {
  const std::shared_ptr<Queues> queues = queues_;
  if (!queues->Begin(tenant, work)) return;
  work();
  queues->End(tenant);
}

}  // namespace pagoda::server
