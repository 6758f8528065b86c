// Requests and their latency by method. An interceptor counts most methods, not their handlers.
#ifndef PAGODA_SERVER_CALLS_RPC_METRICS_H_
#define PAGODA_SERVER_CALLS_RPC_METRICS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/server_interceptor.h"
#include "grpcpp/support/status.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "server/callers/open_calls.h"
#include "server/callers/untaken_answers.h"

namespace pagoda::server {

// Counts the calls of the methods of kMethods. Other calls, such as health checks and unknown
// methods, are not counted, so a client cannot create new label values. A stream counts once, when
// it ends, with its whole duration. Thread-safe.
class RpcMetrics {
  class Method;

 public:
  RpcMetrics();
  ~RpcMetrics();

  // Methods that their handlers count. gRPC queues every message of an intercepted call once more,
  // which costs more than running a small batch.
  enum class HandlerCounted { kExecute, kSession };

  // One call, open from the constructor to the destructor. Thread-compatible.
  class Call {
   public:
    Call(RpcMetrics* metrics, Method* method);
    ~Call();
    Call(Call&& other) noexcept;
    Call& operator=(Call&&) = delete;

    // Records the call's status. Call it once. Afterwards the call is not open.
    void Record(grpc::StatusCode code);

   private:
    RpcMetrics* metrics_;  // Null: moved from.
    Method* method_;
    absl::Time start_;
    bool answered_ = false;
  };
  // Starts to count a call.
  Call Begin(HandlerCounted method);

  // Records one answered batch of operations, of a unary call or a stream. `duration` starts after
  // the batch's wait in its tenant's queue.
  void RecordBatch(absl::Duration duration) { batches_.Observe(absl::ToDoubleSeconds(duration)); }

  // A pair of rings opens or ends. An open pair is no call: admission does not count it.
  void RecordRingOpen() ABSL_LOCKS_EXCLUDED(mutex_);
  void RecordRingEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t open_rings() const { return rings_.load(std::memory_order_relaxed); }
  // Counts an answered batch that came through shared memory. RecordBatch counts it too.
  void RecordRingBatch() { ring_batches_.fetch_add(1, std::memory_order_relaxed); }

  // Makes the factory for one server, which reports to `answers` the calls that it intercepts.
  // These metrics and `answers` must outlive that server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptorFactory(
      UntakenAnswers* answers);

  // Counted calls that have begun and were not answered.
  const OpenCalls& open_calls() const { return open_calls_; }
  // Waits until every counted call is over and no pair of rings is open, at most for `timeout`.
  // Returns how many are left.
  size_t WaitUntilNoneOpen(absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

  // pagoda_grpc_requests_total{method,code}, pagoda_grpc_request_duration_seconds{method},
  // pagoda_batch_duration_seconds, pagoda_ring_batches_total and pagoda_rings.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  class Interceptor;
  class Factory;

  void CallBegins(CallKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  void CallEnds() ABSL_LOCKS_EXCLUDED(mutex_);

  // By full name, "/pagoda.v1.CacheService/Execute". Does not change after the constructor.
  std::map<std::string, std::unique_ptr<Method>> methods_;
  prometheus::Histogram batches_;
  std::atomic<uint64_t> ring_batches_ = 0;
  mutable absl::Mutex mutex_;  // No other lock is taken under it.
  // Written under the mutex, for waiting threads.
  std::atomic<uint64_t> calls_ = 0;  // Not over.
  std::atomic<uint64_t> rings_ = 0;  // Open pairs.
  OpenCalls open_calls_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLS_RPC_METRICS_H_
