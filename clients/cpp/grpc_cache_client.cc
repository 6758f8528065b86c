#include "clients/cpp/grpc_cache_client.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/backoff.h"
#include "clients/cpp/batch_sender.h"
#include "clients/cpp/channel.h"
#include "clients/cpp/keep_alive.h"
#include "clients/cpp/map_pools.h"
#include "clients/cpp/prefix_fetcher.h"
#include "clients/cpp/resend.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/cache_info.h"
#include "wire/errors.h"
#include "wire/operations.h"
#include "wire/results.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// The pauses between resends. The first one is shorter than an engine's step. The longest one keeps
// the load on a daemon small after a long outage.
constexpr absl::Duration kFirstDelay = absl::Milliseconds(10);
constexpr absl::Duration kMostDelay = absl::Seconds(1);

// How long the client's destructor may take.
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);
constexpr int kCloseTries = 2;

// Checks that there is one result per operation, each of its operation's type: callers access
// results without a check.
absl::Status CheckShape(absl::Span<const Operation> operations, const BatchResult& batch) {
  if (batch.results.size() != operations.size()) {
    return absl::InternalError(absl::StrCat("the daemon answered ", operations.size(),
                                            " operations with ", batch.results.size(), " results"));
  }
  for (size_t i = 0; i < operations.size(); ++i) {
    if (batch.results[i].ok() && batch.results[i]->index() != operations[i].index()) {
      return absl::InternalError(
          absl::StrCat("the daemon answered operation ", i, " with a result of another type"));
    }
  }
  return absl::OkStatus();
}

bool Waits(const Operation& operation) { return std::holds_alternative<WaitForTicket>(operation); }

// Whether a ticket wait ended only because its stream broke. Its copies may not be done yet.
bool WasCutShort(const absl::StatusOr<OperationResult>& result) {
  return absl::IsCancelled(result.status()) && ReasonOf(result.status()) == Reason::kNone;
}

class GrpcCacheClient final : public CacheClient {
 public:
  GrpcCacheClient(std::shared_ptr<grpc::Channel> channel, const GrpcCacheClientOptions& options)
      : channel_(std::move(channel)),
        stub_(v1::CacheService::NewStub(channel_)),
        timeout_(options.timeout),
        attempt_timeout_(std::min(options.attempt_timeout, options.timeout)) {}

  // Ignores errors: if the call fails, the lease ends the session.
  ~GrpcCacheClient() override {
    keep_alive_.reset();
    sender_.reset();
    if (session_.session_id() == 0) return;
    v1::CloseSessionRequest request;
    *request.mutable_session() = session_;
    const absl::Time deadline = absl::Now() + std::min(timeout_, kCloseTimeout);
    grpc::Status status(grpc::StatusCode::UNAVAILABLE, "not tried");
    for (int i = 0; i < kCloseTries && status.error_code() == grpc::StatusCode::UNAVAILABLE; ++i) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(absl::ToChronoTime(deadline));
      v1::CloseSessionResponse response;
      status = stub_->CloseSession(&context, request, &response);
    }
  }

  absl::Status Open(const GrpcCacheClientOptions& options) {
    v1::OpenSessionRequest request;
    request.set_client_name(options.client_name);
    request.set_lease_ms(absl::ToInt64Milliseconds(options.lease));
    request.set_model_fingerprint(options.model_fingerprint);
    request.set_cache(options.cache);
    request.set_tenant(options.tenant);
    v1::OpenSessionResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    const grpc::Status status = stub_->OpenSession(&context, request, &response);
    if (!status.ok()) return StatusFromGrpc(status);
    session_ = response.session();
    info_ = CacheInfoFromProto(response.cache());
    map_socket_ = response.map_socket();
    keep_alive_ = std::make_unique<KeepAlive>(
        channel_, session_, absl::Milliseconds(response.lease_ms()), options.on_session_over);
    if (!keep_alive_->started().ok()) return keep_alive_->started();
    sender_ = std::make_unique<BatchSender>(stub_.get(), session_);
    return ChooseTransport(options);
  }

  Transport transport() const { return sender_->transport(); }
  absl::Status RenewLease(absl::Duration timeout) const { return keep_alive_->Renew(timeout); }

  const CacheInfo& info() const override { return info_; }
  const v1::SessionRef& session() const { return session_; }

  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    const bool waits = std::any_of(operations.begin(), operations.end(), Waits);
    const absl::Duration waiting = waits ? kMaxTicketWait : absl::ZeroDuration();
    const absl::Time deadline = absl::Now() + timeout_ + waiting;
    absl::StatusOr<BatchResult> result =
        Run(operations, steps, attempt_timeout_ + waiting, deadline);
    while (waits && result.ok()) {
      const absl::StatusOr<bool> waited_again =
          WaitAgain(operations, steps, attempt_timeout_ + waiting, deadline, *result);
      if (!waited_again.ok()) return waited_again.status();
      if (!*waited_again) break;
    }
    return result;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return pagoda::MapPools(map_socket_, session_, access, timeout_);
  }

 private:
  absl::Status ChooseTransport(const GrpcCacheClientOptions& options) {
    const bool local = absl::StartsWith(options.endpoint, "unix:") && !map_socket_.empty();
    if (options.transport == Transport::kGrpc) return absl::OkStatus();
    if (options.transport == Transport::kAuto && !local) return absl::OkStatus();
    if (map_socket_.empty()) {
      return absl::UnimplementedError(
          "the daemon has no map socket (server.map_socket), so it gives no rings");
    }
    if (options.transport == Transport::kRings) return sender_->UseRings(map_socket_, timeout_);
    // The client works without them.
    sender_->UseRings(map_socket_, BatchSender::kShortTimeout).IgnoreError();
    return absl::OkStatus();
  }

  // Sends one batch, again if necessary, and converts its result.
  absl::StatusOr<BatchResult> Run(absl::Span<const Operation> operations, StepRange steps,
                                  absl::Duration attempt_timeout, absl::Time deadline) {
    const Resend resend = ResendOf(operations, info_);
    v1::SessionRequest request;
    *request.mutable_batch() = BatchToProto(operations, steps);
    request.set_batch_id(++last_batch_id_);
    // Batch ids are unique in the session, so they also serve as retry ids.
    if (resend == Resend::kUnderId) request.mutable_batch()->set_retry_id(last_batch_id_);

    const absl::StatusOr<v1::SessionResponse> response =
        SendUntilAnswered(request, resend, attempt_timeout, deadline);
    if (!response.ok()) return response.status();
    if (response->batch_id() != request.batch_id()) {
      sender_->Reset();
      return absl::InternalError(absl::StrCat(
          "sent batch ", request.batch_id(), ", the daemon answered batch ", response->batch_id()));
    }
    BatchResult result = BatchResultFromProto(response->result());
    if (absl::Status status = CheckShape(operations, result); !status.ok()) return status;
    return result;
  }

  absl::StatusOr<v1::SessionResponse> SendUntilAnswered(v1::SessionRequest& request, Resend resend,
                                                        absl::Duration attempt_timeout,
                                                        absl::Time deadline) {
    Backoff backoff(kFirstDelay, kMostDelay);
    bool sent = false;
    for (int attempt = 1;; ++attempt) {
      if (absl::Status status = SessionError(); !status.ok()) return status;
      const absl::Time end =
          resend == Resend::kNever ? deadline : std::min(deadline, absl::Now() + attempt_timeout);
      absl::StatusOr<v1::SessionResponse> response = sender_->Send(request, resend, end, sent);
      if (response.ok()) return response;
      if (IsSessionOver(response.status())) return session_error_ = SessionOver(response.status());
      if (!IsAnswerLost(response.status())) return response;

      const bool may_resend = resend != Resend::kNever || !sent;
      const absl::Duration delay = backoff.Next();
      if (!may_resend || absl::Now() + delay >= deadline) {
        return absl::Status(absl::IsDeadlineExceeded(response.status())
                                ? absl::StatusCode::kDeadlineExceeded
                                : absl::StatusCode::kUnavailable,
                            absl::StrCat(std::string(response.status().message()), " (tried ",
                                         attempt, attempt == 1 ? " time" : " times",
                                         sent ? "; whether the batch ran is unknown)" : ")"));
      }
      absl::SleepFor(delay);
    }
  }

  // Repeats the ticket waits that were cut short, in a batch that holds only them, and puts their
  // results into `result`. The batch's other operations have already run. Returns false if no wait
  // was cut short.
  absl::StatusOr<bool> WaitAgain(absl::Span<const Operation> operations, StepRange steps,
                                 absl::Duration attempt_timeout, absl::Time deadline,
                                 BatchResult& result) {
    std::vector<Operation> waits;
    std::vector<size_t> places;
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!Waits(operations[i]) || !WasCutShort(result.results[i])) continue;
      waits.push_back(operations[i]);
      places.push_back(i);
    }
    if (waits.empty()) return false;
    absl::StatusOr<BatchResult> again = Run(waits, steps, attempt_timeout, deadline);
    if (!again.ok()) return again.status();
    for (size_t i = 0; i < places.size(); ++i) {
      result.results[places[i]] = std::move(again->results[i]);
    }
    result.revision = again->revision;
    result.completed = again->completed;
    result.completed_fetch = again->completed_fetch;
    result.completed_backup = again->completed_backup;
    result.shortened = std::move(again->shortened);
    return true;
  }

  // Why the session is over; OK while it is not. An error stays.
  absl::Status SessionError() {
    if (session_error_.ok()) {
      const absl::Status status = keep_alive_->session_error();
      if (!status.ok()) session_error_ = SessionOver(status);
    }
    return session_error_;
  }

  static absl::Status SessionOver(const absl::Status& why) {
    return MakeError(ReasonOf(why), absl::StrCat("the session is over, and what it owned is gone: ",
                                                 std::string(why.message())));
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const absl::Duration timeout_;
  const absl::Duration attempt_timeout_;
  v1::SessionRef session_;
  CacheInfo info_;
  std::string map_socket_;
  absl::Status session_error_;
  std::unique_ptr<BatchSender> sender_;  // Null before the session is open, like keep_alive_.
  uint64_t last_batch_id_ = 0;
  std::unique_ptr<KeepAlive> keep_alive_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CacheClient>> OpenGrpcCacheClient(
    GrpcCacheClientOptions options, std::unique_ptr<PrefixFetcher>* fetcher) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      Connect(options.endpoint, options.timeout, options.credentials);
  if (!channel.ok()) return channel.status();
  auto client = std::make_unique<GrpcCacheClient>(*channel, options);
  if (absl::Status status = client->Open(options); !status.ok()) return status;
  if (fetcher != nullptr) {
    *fetcher = std::make_unique<PrefixFetcher>(*channel, client->session());
  }
  return client;
}

absl::Status RenewLease(const CacheClient& client, absl::Duration timeout) {
  return static_cast<const GrpcCacheClient&>(client).RenewLease(timeout);
}

Transport TransportOf(const CacheClient& client) {
  return static_cast<const GrpcCacheClient&>(client).transport();
}

}  // namespace pagoda
