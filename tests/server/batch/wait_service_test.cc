// CacheService while copies are held back: calls wait, threads do not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/calls/rpc_metrics.h"
#include "server/config/config.h"
#include "server/rpc/cache_service.h"
#include "tests/server/held_copies.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

constexpr std::chrono::seconds kCallDeadline(30);
constexpr absl::Duration kSoon = absl::Seconds(3);  // Well before a wait times out.

v1::Batch WaitThenAllocate(Ticket ticket) {
  v1::Batch batch;
  batch.add_operations()->mutable_wait_for_ticket()->set_ticket(ticket.value());
  batch.add_operations()->mutable_allocate_blocks()->set_count(1);
  return batch;
}

std::string ReasonIn(const v1::OperationResult& result) {
  google::rpc::ErrorInfo info;
  if (result.has_error()) result.error().details(0).UnpackTo(&info);
  return info.reason();
}

class WaitServiceTest : public ::testing::Test {
 protected:
  WaitServiceTest() {
    CacheParts parts;
    parts.manager = &copies_.manager();
    caches_.Add(std::make_shared<const CacheParts>(std::move(parts)));
  }
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::CacheService::NewStub(
        grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  }
  void TearDown() override { server_->Shutdown(); }

  static void SetDeadline(grpc::ClientContext& context,
                          std::chrono::milliseconds deadline = kCallDeadline) {
    context.set_deadline(std::chrono::system_clock::now() + deadline);
  }

  grpc::Status Execute(grpc::ClientContext& context, const v1::Batch& batch,
                       v1::BatchResult* result,
                       std::chrono::milliseconds deadline = kCallDeadline) {
    SetDeadline(context, deadline);
    v1::ExecuteRequest request;
    SessionToProto(session_, request.mutable_session());
    *request.mutable_batch() = batch;
    v1::ExecuteResponse response;
    const grpc::Status status = stub_->Execute(&context, request, &response);
    *result = response.result();
    return status;
  }

  v1::SessionRequest Request(const v1::Batch& batch, uint64_t batch_id) {
    v1::SessionRequest request;
    SessionToProto(session_, request.mutable_session());
    *request.mutable_batch() = batch;
    request.set_batch_id(batch_id);
    return request;
  }

  void EnterDrain() {
    state_.Enter(ServingState::Phase::kDraining);
    service_.EndStreamsForDrain();
  }

  const std::string endpoint_ =
      absl::StrCat("unix:", testing::TempDir(), "/pagoda-wait-test-", getpid(), ".sock");
  HeldCopies copies_;
  const SessionRef session_ = copies_.Open();
  const Ticket ticket_ = copies_.Offload(session_, {1, 2, 3, 4, 5, 6, 7, 8});
  CacheDirectory caches_;
  ServingState state_;
  // No callers are configured, so every caller can do everything.
  RpcMetrics rpcs_;
  const TenantTable tenants_ = *TenantTable::Create({}, 1);
  const std::unique_ptr<Authenticator> authenticator_ = *Authenticator::Create(Config());
  const Admission admission_{/*max_calls=*/1000, &rpcs_.open_calls(), authenticator_.get(),
                             &tenants_};
  CacheService service_{{.default_lease = absl::Seconds(30), .max_lease = absl::Hours(1)},
                        &caches_,
                        &state_,
                        &admission_,
                        &rpcs_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::CacheService::Stub> stub_;
};

// More calls than gRPC has threads: no call blocks one.
TEST_F(WaitServiceTest, ManyCallsWaitAndOthersAreServed) {
  constexpr int kCalls = 64;
  std::vector<std::thread> calls;
  std::vector<v1::BatchResult> results(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([this, result = &results[i]] {
      grpc::ClientContext context;
      v1::Batch batch;
      batch.add_operations()->mutable_wait_for_ticket()->set_ticket(ticket_.value());
      EXPECT_TRUE(Execute(context, batch, result).ok());
    });
  }
  const absl::Time start = absl::Now();
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    v1::BatchResult result;
    ASSERT_TRUE(Execute(context, {}, &result).ok());
  }
  EXPECT_LT(absl::Now() - start, kSoon);
  copies_.Finish();
  for (std::thread& call : calls) call.join();
  for (const v1::BatchResult& result : results) {
    EXPECT_EQ(result.results(0).wait_for_ticket().completed_ticket(), ticket_.value());
  }
}

TEST_F(WaitServiceTest, AStreamGoesOnBehindTheWait) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = stub_->Session(&context);
  ASSERT_TRUE(stream->Write(Request(WaitThenAllocate(ticket_), 1)));
  ASSERT_TRUE(stream->Write(Request({}, 2)));
  // Another call of the same session overtakes it.
  grpc::ClientContext other;
  v1::BatchResult result;
  ASSERT_TRUE(Execute(other, {}, &result).ok());
  EXPECT_LT(result.completed_ticket(), ticket_.value());
  copies_.Finish();
  v1::SessionResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.batch_id(), 1u);
  EXPECT_TRUE(response.result().results(0).has_wait_for_ticket());
  EXPECT_EQ(response.result().results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.batch_id(), 2u);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(WaitServiceTest, AClientThatGoesEndsItsWaits) {
  {
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = stub_->Session(&context);
    ASSERT_TRUE(stream->Write(Request({}, 1)));
    v1::SessionResponse response;
    ASSERT_TRUE(stream->Read(&response));
    ASSERT_TRUE(stream->Write(Request(WaitThenAllocate(ticket_), 2)));
    grpc::ClientContext call;
    std::thread execute([&] {
      v1::BatchResult result;
      EXPECT_EQ(Execute(call, WaitThenAllocate(ticket_), &result).error_code(),
                grpc::StatusCode::CANCELLED);
    });
    absl::SleepFor(absl::Milliseconds(100));  // Both wait, or are about to.
    context.TryCancel();
    call.TryCancel();
    execute.join();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The server has no open call: none waits for the copies, which never finish.
  const absl::Time start = absl::Now();
  server_->Shutdown();
  EXPECT_LT(absl::Now() - start, kSoon);
}

TEST_F(WaitServiceTest, TheDeadlineOfTheCallEndsItsWait) {
  const absl::Time start = absl::Now();
  grpc::ClientContext call;
  v1::BatchResult result;
  const grpc::Status status =
      Execute(call, WaitThenAllocate(ticket_), &result, std::chrono::milliseconds(200));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // Neither the client nor the server's call waits for the copies, which never finish.
  server_->Shutdown();
  EXPECT_LT(absl::Now() - start, kSoon);
}

TEST_F(WaitServiceTest, ADrainEndsTheWaits) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = stub_->Session(&context);
  ASSERT_TRUE(stream->Write(Request(WaitThenAllocate(ticket_), 1)));
  v1::BatchResult result;
  std::thread execute([&] {
    grpc::ClientContext call;
    EXPECT_TRUE(Execute(call, WaitThenAllocate(ticket_), &result).ok());
  });
  absl::SleepFor(absl::Milliseconds(200));  // Both wait.
  const absl::Time start = absl::Now();
  EnterDrain();
  execute.join();
  EXPECT_EQ(ReasonIn(result.results(0)), "DRAINING");
  EXPECT_EQ(result.results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  v1::SessionResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(ReasonIn(response.result().results(0)), "DRAINING");
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(absl::Now() - start, kSoon);
}

}  // namespace
}  // namespace pagoda::server
