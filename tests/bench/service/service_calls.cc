#include "tests/bench/service/service_calls.h"

#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "clients/cpp/channel.h"
#include "tests/bench/service/bench_server.h"
#include "tests/bench/service/noop_service.h"

namespace pagoda::bench {

using pagoda::v1::ExecuteRequest;
using pagoda::v1::ExecuteResponse;
using pagoda::v1::SessionRef;
using pagoda::v1::SessionRequest;
using pagoda::v1::SessionResponse;

void RequireOk(const grpc::Status& status, const char* what) {
  if (!status.ok()) {
    std::fprintf(stderr, "service_bench: %d: %s\n", static_cast<int>(status.error_code()),
                 status.error_message().c_str());
  }
  PAGODA_CHECK(status.ok(), what);
}

Connection::Connection(const std::string& endpoint, Target target, const Caller& caller)
    : target_(target),
      cache_name_(caller.cache),
      channel_(*MakeChannel(endpoint, {.token = caller.token})),
      cache_(channel_),
      admin_(channel_),
      noop_(channel_) {}

namespace {

pagoda::v1::OpenCacheRequest CacheRequest(const std::string& name, uint64_t host_bytes) {
  pagoda::v1::OpenCacheRequest request;
  request.set_name(name);
  request.mutable_identity()->set_model("bench");
  request.set_tokens_per_block(kServiceTokensPerBlock);
  request.add_layers();
  pagoda::v1::TierSize* const tier = request.add_tiers();
  tier->set_medium(pagoda::v1::MEDIUM_HOST);
  tier->set_bytes(host_bytes);
  return request;
}

}  // namespace

void Connection::OpenCache(const pagoda::v1::OpenCacheRequest& request) {
  pagoda::v1::OpenCacheResponse response;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  RequireOk(cache_.OpenCache(&context, request, &response), "a cache opens");
  PAGODA_CHECK(response.created(), "the cache is new");
}

void Connection::OpenCache(const std::string& name, uint64_t host_bytes) {
  pagoda::v1::OpenCacheRequest request = CacheRequest(name, host_bytes);
  pagoda::v1::LayerGroup* const layers = request.mutable_layers(0);
  layers->set_count(1);
  layers->set_kind(pagoda::v1::LAYER_KIND_KEY_VALUE);
  layers->set_num_kv_heads(1);
  layers->set_head_dim(1);
  layers->set_dtype(pagoda::v1::DTYPE_FLOAT32);
  OpenCache(request);
}

void Connection::OpenPages(const std::string& name, uint64_t host_bytes) {
  constexpr uint32_t kLayers = 32;
  pagoda::v1::OpenCacheRequest request = CacheRequest(name, host_bytes);
  pagoda::v1::LayerGroup* const layers = request.mutable_layers(0);
  layers->set_count(kLayers);
  layers->set_kind(pagoda::v1::LAYER_KIND_OPAQUE);
  layers->set_bytes_per_block((uint64_t{2} << 20) / kLayers);
  OpenCache(request);
}

void Connection::DropCache(const std::string& name) {
  const uint64_t before = FreeCacheBytes();
  pagoda::v1::DropCacheRequest request;
  request.set_name(name);
  request.set_force(true);
  pagoda::v1::DropCacheResponse response;
  grpc::ClientContext context;
  RequireOk(admin_.DropCache(&context, request, &response), "a cache is dropped");
  while (FreeCacheBytes() == before) absl::SleepFor(absl::Milliseconds(1));
}

uint64_t Connection::FreeCacheBytes() {
  pagoda::v1::ListCachesResponse response;
  grpc::ClientContext context;
  RequireOk(admin_.ListCaches(&context, {}, &response), "the caches are listed");
  return response.budgets(0).free_bytes();
}

SessionRef Connection::OpenSession() {
  pagoda::v1::OpenSessionRequest request;
  request.set_client_name("service_bench");
  request.set_lease_ms(3'600'000);  // The no-op handler keeps none alive.
  request.set_cache(cache_name_);
  pagoda::v1::OpenSessionResponse response;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);  // On a busy machine the first attempt to connect can time out.
  RequireOk(cache_.OpenSession(&context, request, &response), "a session opens");
  map_socket_ = response.map_socket();
  return response.session();
}

void Connection::CloseSession(const SessionRef& session) {
  pagoda::v1::CloseSessionRequest request;
  *request.mutable_session() = session;
  pagoda::v1::CloseSessionResponse response;
  grpc::ClientContext context;
  RequireOk(cache_.CloseSession(&context, request, &response), "a session closes");
}

void Connection::Execute(const ExecuteRequest& request, ExecuteResponse* response) {
  grpc::ClientContext context;
  const grpc::Status status = target_ != Target::kNoop ? cache_.Execute(&context, request, response)
                                                       : noop_.Execute(&context, request, response);
  RequireOk(status, "a call succeeds");
}

void Connection::ExecuteAsync(grpc::ClientContext* context, const ExecuteRequest* request,
                              ExecuteResponse* response, std::function<void(grpc::Status)> done) {
  if (target_ != Target::kNoop) {
    cache_.async()->Execute(context, request, response, std::move(done));
  } else {
    noop_.async()->Execute(context, request, response, std::move(done));
  }
}

std::unique_ptr<SessionStub> Connection::Session(grpc::ClientContext* context) {
  return target_ != Target::kNoop ? cache_.Session(context) : noop_.Session(context);
}

void Connection::SessionAsync(grpc::ClientContext* context, SessionReactor* reactor) {
  if (target_ != Target::kNoop) {
    cache_.async()->Session(context, reactor);
  } else {
    noop_.async()->Session(context, reactor);
  }
}

SessionStream::SessionStream(const std::string& endpoint, Target target, const Caller& caller)
    : connection_(endpoint, target, caller), session_(connection_.OpenSession()) {
  if (target == Target::kRings) {
    auto rings = RingStream::Open(connection_.map_socket(), session_, absl::Seconds(10));
    PAGODA_CHECK(rings.ok(), "the daemon gives rings");
    rings_ = *std::move(rings);
  } else {
    stream_ = connection_.Session(&context_);
  }
  SessionRequest request;
  *request.mutable_session() = session_;
  SessionResponse response;
  Call(request, &response);
}

SessionStream::~SessionStream() {
  if (stream_ != nullptr) {
    stream_->WritesDone();
    RequireOk(stream_->Finish(), "a stream ends well");
  }
  connection_.CloseSession(session_);
}

void SessionStream::Call(const SessionRequest& request, SessionResponse* response) {
  if (rings_ != nullptr) {
    bool sent = false;
    auto answer = rings_->Call(request, absl::Now() + absl::Seconds(10), sent);
    PAGODA_CHECK(answer.ok() && answer->has_value(), "a batch is answered");
    *response = **std::move(answer);
  } else {
    PAGODA_CHECK(stream_->Write(request) && stream_->Read(response), "a batch is answered");
  }
  const pagoda::v1::BatchResult& result = response->result();
  PAGODA_CHECK(result.results_size() == request.batch().operations_size(),
               "every operation is answered");
  for (const pagoda::v1::OperationResult& one : result.results()) {
    PAGODA_CHECK(!one.has_error(), "every operation succeeds");
  }
}

}  // namespace pagoda::bench
