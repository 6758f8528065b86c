#include "clients/cpp/prefix_fetcher.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/keep_alive.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/errors.h"
#include "wire/prefix_fields.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// A fetch without a deadline of its own is bounded by the daemon. Only a daemon that has gone takes
// this long.
constexpr absl::Duration kMostTime = absl::Minutes(20);
constexpr absl::Duration kMostTimeToClose = absl::Seconds(1);

v1::FetchPrefixRequest RequestOf(const PrefixToFetch& prefix, const v1::SessionRef& session) {
  v1::FetchPrefixRequest request;
  *request.mutable_session() = session;
  PrefixToProto(prefix, &request);
  request.set_tenant(prefix.tenant);
  if (!prefix.source.empty()) request.mutable_source()->set_address(prefix.source);
  if (prefix.deadline.has_value()) {
    const std::optional<uint64_t> milliseconds = MillisecondsOf(*prefix.deadline);
    if (milliseconds.has_value()) request.set_deadline_ms(*milliseconds);
  }
  return request;
}

absl::StatusOr<FetchedFromAfar> AnswerOf(const grpc::Status& status,
                                         const v1::FetchPrefixResponse& response) {
  if (!status.ok()) return StatusFromGrpc(status);
  return FetchedFromAfar{
      .outcome = FetchOutcomeFromProto(response.outcome()).value_or(FetchOutcome::kFailed),
      .matched_tokens = response.matched_tokens(),
      .fetched_tokens = response.fetched_tokens()};
}

}  // namespace

class PrefixFetcher::Calls {
 public:
  Calls(const std::shared_ptr<grpc::Channel>& channel, const v1::SessionRef& session)
      : stub_(v1::CacheService::NewStub(channel)), session_(session) {}

  ~Calls() {
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [number, call] : calls_) call->context.TryCancel();
      mutex_.Await(absl::Condition(this, &Calls::has_ended));
    }
    if (keep_alive_ == nullptr) return;
    keep_alive_.reset();
    v1::CloseSessionRequest request;
    *request.mutable_session() = session_;
    v1::CloseSessionResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kMostTimeToClose));
    // If it fails, the lease ends the session.
    static_cast<void>(stub_->CloseSession(&context, request, &response));
  }

  // The session is this object's own.
  absl::Status Keep(const std::shared_ptr<grpc::Channel>& channel, absl::Duration lease) {
    keep_alive_ = std::make_unique<KeepAlive>(channel, session_, lease, nullptr);
    return keep_alive_->started();
  }

  uint64_t Fetch(const PrefixToFetch& prefix, Done done) {
    auto* const call = new Call{.request = RequestOf(prefix, session_), .done = std::move(done)};
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kMostTime));
    uint64_t number = 0;
    {
      absl::MutexLock lock(&mutex_);
      number = ++last_call_;
      calls_.emplace(number, call);
    }
    stub_->async()->FetchPrefix(
        &call->context, &call->request, &call->response,
        [this, call, number](const grpc::Status& status) { End(number, call, status); });
    return number;
  }

  void Cancel(uint64_t number) {
    absl::MutexLock lock(&mutex_);
    if (const auto call = calls_.find(number); call != calls_.end()) {
      call->second->context.TryCancel();
    }
  }

 private:
  struct Call {
    grpc::ClientContext context = {};
    v1::FetchPrefixRequest request;
    v1::FetchPrefixResponse response = {};
    Done done;
  };

  // Owns the call. The last use of this object is under the lock.
  void End(uint64_t number, Call* call, const grpc::Status& status) {
    const std::unique_ptr<Call> owned(call);
    call->done(AnswerOf(status, call->response));
    absl::MutexLock lock(&mutex_);
    calls_.erase(number);
  }
  bool has_ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); }

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const v1::SessionRef session_;
  std::unique_ptr<KeepAlive> keep_alive_;  // Null: another object keeps the session.

  absl::Mutex mutex_;
  // Each is owned by its callback.
  std::map<uint64_t, Call*> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_call_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::StatusOr<std::unique_ptr<PrefixFetcher>> PrefixFetcher::Open(
    const GrpcCacheClientOptions& options) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      Connect(options.endpoint, options.timeout, options.credentials);
  if (!channel.ok()) return channel.status();
  v1::OpenSessionRequest request;
  request.set_client_name(options.client_name);
  request.set_lease_ms(absl::ToInt64Milliseconds(options.lease));
  request.set_model_fingerprint(options.model_fingerprint);
  request.set_cache(options.cache);
  v1::OpenSessionResponse opened;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  const grpc::Status status =
      v1::CacheService::NewStub(*channel)->OpenSession(&context, request, &opened);
  if (!status.ok()) return StatusFromGrpc(status);
  auto fetcher = std::make_unique<PrefixFetcher>(*channel, opened.session());
  absl::Status kept = fetcher->calls_->Keep(*channel, absl::Milliseconds(opened.lease_ms()));
  if (!kept.ok()) return kept;
  return fetcher;
}

PrefixFetcher::PrefixFetcher(const std::shared_ptr<grpc::Channel>& channel,
                             const v1::SessionRef& session)
    : calls_(std::make_unique<Calls>(channel, session)) {}

PrefixFetcher::~PrefixFetcher() = default;

uint64_t PrefixFetcher::Fetch(const PrefixToFetch& prefix, Done done) {
  return calls_->Fetch(prefix, std::move(done));
}

void PrefixFetcher::Cancel(uint64_t fetch) { calls_->Cancel(fetch); }

absl::StatusOr<FetchedFromAfar> PrefixFetcher::Fetch(const PrefixToFetch& prefix) {
  absl::StatusOr<FetchedFromAfar> answer = absl::UnknownError("not ended");
  absl::Notification ended;
  (void)Fetch(prefix, [&](const absl::StatusOr<FetchedFromAfar>& fetched) {
    answer = fetched;
    ended.Notify();
  });
  ended.WaitForNotification();
  return answer;
}

}  // namespace pagoda
