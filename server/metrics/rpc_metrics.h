// Requests and their latency by method, counted by an interceptor, so that hardly a handler has to.
#ifndef PAGODA_SERVER_METRICS_RPC_METRICS_H_
#define PAGODA_SERVER_METRICS_RPC_METRICS_H_

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

namespace pagoda::server {

// The calls of the pagoda.v1 services; others, such as health checks and methods that do not exist,
// are not counted, so a client cannot make up new label values. A stream counts once, when it ends,
// with its whole duration. Thread-safe.
class RpcMetrics {
  class Method;

 public:
  RpcMetrics();
  ~RpcMetrics();

  // What is counted by its handler: gRPC takes every message of a call that has an interceptor
  // through its queue once more, which costs a small batch more than to run it.
  enum class HandlerCounted { kExecute, kSession };

  // A call that is open from the constructor to the destructor. Thread-compatible.
  class Call {
   public:
    Call(RpcMetrics* metrics, Method* method);
    ~Call();
    Call(Call&& other) noexcept;
    Call& operator=(Call&&) = delete;

    // The call has its status. Once.
    void Record(grpc::StatusCode code);

   private:
    RpcMetrics* metrics_;  // Null: moved from.
    Method* method_;
    absl::Time start_;
  };
  // A call begins.
  Call Begin(HandlerCounted method);

  // A batch of operations got its answer, by whichever call, so long after its turn came.
  void RecordBatch(absl::Duration duration) { batches_.Observe(absl::ToDoubleSeconds(duration)); }

  // For one server. The metrics outlive it.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptorFactory();

  // Counted calls that have begun and are not over.
  uint64_t open_calls() const { return open_calls_.load(std::memory_order_relaxed); }
  // Waits until no counted call is open, or for `timeout`. Returns the calls that are open still.
  size_t WaitUntilNoneOpen(absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

  // pagoda_grpc_requests_total{method,code}, pagoda_grpc_request_duration_seconds{method} and
  // pagoda_batch_duration_seconds.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  class Interceptor;
  class Factory;

  void CallBegins() ABSL_LOCKS_EXCLUDED(mutex_);
  void CallEnds() ABSL_LOCKS_EXCLUDED(mutex_);

  // By full name, "/pagoda.v1.CacheService/Execute". Does not change after the constructor.
  std::map<std::string, std::unique_ptr<Method>> methods_;
  prometheus::Histogram batches_;
  mutable absl::Mutex mutex_;             // Nothing is called under it.
  std::atomic<uint64_t> open_calls_ = 0;  // Written under the mutex, for those who wait.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_RPC_METRICS_H_
