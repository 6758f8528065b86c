#include "server/calls/rpc_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "server/callers/identity.h"
#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

// Upper bounds in seconds: a batch takes tens of microseconds, a generation seconds.
const std::vector<double>& DurationBuckets() {
  static const auto& buckets = *new std::vector<double>{
      50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3,
      0.1,   0.25,   0.5,    1,      2.5,  5,      10,   30,    60};
  return buckets;
}

// For one batch: one or two operations take a microsecond; a batch that waits for copies, a second.
const std::vector<double>& BatchBuckets() {
  static const auto& buckets =
      *new std::vector<double>{5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3,
                               5e-3, 10e-3, 25e-3, 50e-3, 0.1,    0.25,   0.5,    1,    5};
  return buckets;
}

// Indexed by HandlerCounted.
constexpr const char* kHandlerCounted[] = {"/pagoda.v1.CacheService/Execute",
                                           "/pagoda.v1.CacheService/Session"};

bool IsHandlerCounted(std::string_view name) {
  return std::find(std::begin(kHandlerCounted), std::end(kHandlerCounted), name) !=
         std::end(kHandlerCounted);
}

constexpr size_t kNumCodes = static_cast<size_t>(grpc::StatusCode::UNAUTHENTICATED) + 1;

}  // namespace

class RpcMetrics::Method {
 public:
  explicit Method(CallKind kind) : kind_(kind), duration_(DurationBuckets()) {}

  CallKind kind() const { return kind_; }

  void Record(grpc::StatusCode code, absl::Duration duration) {
    const bool known = static_cast<size_t>(code) < kNumCodes;
    requests_[known ? code : grpc::StatusCode::UNKNOWN].fetch_add(1, std::memory_order_relaxed);
    duration_.Observe(absl::ToDoubleSeconds(duration));
  }

  void CollectRequests(const std::string& name, prometheus::MetricFamily& out) const {
    for (size_t code = 0; code < kNumCodes; ++code) {
      const uint64_t count = requests_[code].load(std::memory_order_relaxed);
      // A method that was never called has one sample, for OK.
      if (count == 0 && code != 0) continue;
      AddSample(out,
                {{"method", name},
                 {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}},
                static_cast<double>(count));
    }
  }

  void CollectDuration(const std::string& name, prometheus::MetricFamily& out) const {
    out.metric.push_back(duration_.Collect());
    out.metric.back().label = {{"method", name}};
  }

 private:
  const CallKind kind_;
  std::array<std::atomic<uint64_t>, kNumCodes> requests_ = {};
  prometheus::Histogram duration_;
};

RpcMetrics::Call::Call(RpcMetrics* metrics, Method* method)
    : metrics_(metrics), method_(method), start_(absl::Now()) {
  metrics_->CallBegins(method_->kind());
}

RpcMetrics::Call::~Call() {
  if (metrics_ == nullptr) return;
  if (!answered_) metrics_->open_calls_.End(method_->kind());
  metrics_->CallEnds();
}

RpcMetrics::Call::Call(Call&& other) noexcept
    : metrics_(std::exchange(other.metrics_, nullptr)),
      method_(other.method_),
      start_(other.start_),
      answered_(other.answered_) {}

void RpcMetrics::Call::Record(grpc::StatusCode code) {
  answered_ = true;
  metrics_->open_calls_.End(method_->kind());
  method_->Record(code, absl::Now() - start_);
}

// One call. gRPC owns it.
class RpcMetrics::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(RpcMetrics* metrics, Method* method, UntakenAnswers* answers,
              grpc::ServerContextBase* context)
      : counted_(metrics, method), answer_(answers, context) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* call) override {
    if (call->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      counted_.Record(call->GetSendStatus().error_code());
      answer_.SetAnswered();
    }
    // The context outlives gRPC's call, which CancelSome uses.
    if (call->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::POST_RECV_CLOSE)) {
      answer_.End();
    }
    call->Proceed();
  }

 private:
  Call counted_;
  UntakenAnswers::InterceptedCall answer_;
};

class RpcMetrics::Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(RpcMetrics* metrics, UntakenAnswers* answers) : metrics_(metrics), answers_(answers) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const auto it = metrics_->methods_.find(info->method());
    if (it == metrics_->methods_.end() || IsHandlerCounted(it->first)) return nullptr;
    return new Interceptor(metrics_, it->second.get(), answers_, info->server_context());
  }

 private:
  RpcMetrics* const metrics_;
  UntakenAnswers* const answers_;
};

RpcMetrics::RpcMetrics() : batches_(BatchBuckets()) {
  for (const server::Method& method : kMethods) {
    methods_.emplace(std::string(method.name), std::make_unique<Method>(KindOf(method)));
  }
}

RpcMetrics::~RpcMetrics() = default;

RpcMetrics::Call RpcMetrics::Begin(HandlerCounted method) {
  return {this, methods_.at(kHandlerCounted[static_cast<size_t>(method)]).get()};
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
RpcMetrics::MakeInterceptorFactory(UntakenAnswers* answers) {
  return std::make_unique<Factory>(this, answers);
}

void RpcMetrics::CallBegins(CallKind kind) {
  open_calls_.Begin(kind);
  absl::MutexLock lock(&mutex_);
  ++calls_;
}

void RpcMetrics::CallEnds() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void RpcMetrics::RecordRingOpen() {
  absl::MutexLock lock(&mutex_);
  ++rings_;
}

void RpcMetrics::RecordRingEnd() {
  absl::MutexLock lock(&mutex_);
  --rings_;
}

size_t RpcMetrics::WaitUntilNoneOpen(absl::Duration timeout) const {
  const auto none = [this] { return calls_ + open_rings() == 0; };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&none), timeout);
  return calls_ + open_rings();
}

std::vector<prometheus::MetricFamily> RpcMetrics::Collect() const {
  prometheus::MetricFamily requests =
      CounterFamily("pagoda_grpc_requests_total", "Calls that ended, by method and status code.");
  prometheus::MetricFamily durations = HistogramFamily(
      "pagoda_grpc_request_duration_seconds",
      "Time from a call's arrival to its status; for a stream, its whole duration.");
  for (const auto& [name, method] : methods_) {
    const std::string label = name.substr(1);  // Without the leading slash.
    method->CollectRequests(label, requests);
    method->CollectDuration(label, durations);
  }
  prometheus::MetricFamily batches = HistogramFamily(
      "pagoda_batch_duration_seconds",
      "Time from a batch's start to its answer, of Session streams, rings and Execute.");
  batches.metric.push_back(batches_.Collect());
  return {std::move(requests), std::move(durations), std::move(batches),
          Counter("pagoda_ring_batches_total",
                  "Batches answered through rings in shared memory; the others used gRPC.",
                  static_cast<double>(ring_batches_.load(std::memory_order_relaxed))),
          Gauge("pagoda_rings", "Pairs of rings in shared memory that are open.",
                static_cast<double>(open_rings()))};
}

}  // namespace pagoda::server
