// Where tenants' batches run: a long one leaves gRPC's threads to the calls of other tenants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/grpcpp.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/callers/tenant_queues.h"
#include "server/calls/rpc_metrics.h"
#include "server/config/tenant_options.h"
#include "server/rpc/cache_service.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda::server {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kShort = kLongBatch - 1;

// Queues whose threads are all occupied.
class OccupiedQueues {
 public:
  OccupiedQueues() {
    for (size_t i = 0; i < queues_.num_threads(); ++i) {
      queues_.RunLater(TenantId(static_cast<uint16_t>(100 + i)), 0, [this, i] {
        begun_.DecrementCount();
        (i == 0 ? free_one_ : free_all_).WaitForNotification();
      });
    }
    begun_.Wait();
  }
  ~OccupiedQueues() {
    if (!free_one_.HasBeenNotified()) free_one_.Notify();
    free_all_.Notify();
  }

  TenantQueues* get() { return &queues_; }
  // From here on one thread works. Call it once.
  void FreeOne() { free_one_.Notify(); }

 private:
  absl::Notification free_one_, free_all_;
  TenantQueues queues_{{}};
  absl::BlockingCounter begun_{static_cast<int>(queues_.num_threads())};
};

// What the tests of RunRead need of a context.
BatchRun::Context ContextOf(TenantQueues* queues, TenantId tenant) {
  BatchRun::Context context;
  context.tenant_queues = queues;
  context.tenant = tenant;
  return context;
}

// Runs a batch as a call does: it is read in its tenant's turn. `ran` gets its operations.
template <class Ran>
void RunBatch(TenantQueues* queues, TenantId tenant, int operations, Ran ran) {
  const BatchRun::Context context = ContextOf(queues, tenant);
  context.InTurn(0, [context, operations, ran] {
    context.RunRead(operations, 0, [operations, ran] { ran(operations); });
  });
}

TEST(TenantBatchesTest, NoOperationOfOtherTenantsRunsBetweenAShortBatchAndItsTurn) {
  constexpr int kTenants = 8, kBatches = 10;
  constexpr TenantId kQuiet{1};
  int others = 0;         // Their operations that have run.
  std::vector<int> seen;  // `others` when each of the quiet tenant's batches ran.
  absl::BlockingCounter left(kTenants * kBatches + 2);
  OccupiedQueues queues;
  for (int i = 0; i < kTenants * kBatches; ++i) {
    RunBatch(queues.get(), TenantId(static_cast<uint16_t>(10 + i % kTenants)), 255,
             [&](int operations) {
               others += operations;
               left.DecrementCount();
             });
  }
  const auto note = [&](int /*operations*/) {
    seen.push_back(others);
    left.DecrementCount();
  };
  RunBatch(queues.get(), kQuiet, kShort, note);
  ASSERT_EQ(seen.size(), 1u) << "it does not wait for a thread of the queues";
  RunBatch(queues.get(), kQuiet, kLongBatch, note);  // Takes its turn among the tenants.
  EXPECT_EQ(seen.size(), 1u);
  queues.FreeOne();
  left.Wait();
  EXPECT_EQ(others, kTenants * kBatches * 255);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], 0);
  EXPECT_EQ(seen[1], kTenants * 255) << "one batch of each tenant that came earlier";
}

TEST(TenantBatchesTest, ABatchThatWaitsAsObjectsIsTheOnlyOneOfItsTenant) {
  constexpr int kBatches = 5;
  int read = 0, ran = 0;
  absl::BlockingCounter left(kBatches);
  OccupiedQueues queues;
  const BatchRun::Context context = ContextOf(queues.get(), TenantId{1});
  for (int i = 0; i < kBatches; ++i) {
    context.InTurn(0, [&, context] {
      EXPECT_EQ(read++, ran) << "an earlier one waits";
      context.RunRead(255, 0, [&] {
        ++ran;
        left.DecrementCount();
      });
    });
  }
  EXPECT_EQ(read, 1);
  queues.FreeOne();
  left.Wait();
  EXPECT_EQ(ran, kBatches);
}

constexpr char kToken[] = "token-of-alice-0123456789";
constexpr char kOperatorToken[] = "token-of-the-operator-0123456789";

Config ConfigWithTokens(const std::string& folder) {
  Config config;
  const auto file = [&](const char* name, const char* token) {
    std::string path = absl::StrCat(folder, "/", name);
    std::ofstream(path) << token << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  };
  config.tenants = {{.name = "alice", .credentials = {.tokens_file = file("alice", kToken)}}};
  config.operators.tokens_file = file("operator", kOperatorToken);
  return config;
}

enum class CallKind : uint8_t { kExecute, kSession };

// A service whose core records on which threads batches run: it asks for the time once for each. A
// test makes one call, because the end of a stream asks for the time too.
class WhereBatchesRunTest : public ::testing::TestWithParam<CallKind> {
 protected:
  WhereBatchesRunTest() {
    absl::StatusOr<CacheLayout> layout = CacheLayout::Create(
        {.tokens_per_block = 4, .layers = {{.num_kv_heads = 1, .head_dim = 1}}});
    auto core = BlockManager::Create({.layout = *std::move(layout),
                                      .tiers = HostTiers({8}),
                                      .pool_mappings = {},
                                      .epoch = Epoch(1),
                                      .tenants = TenantsOf(config_)});
    EXPECT_TRUE(core.ok()) << core.status();
    manager_ = std::make_unique<SharedManager>(*std::move(core), &log_, [this] {
      absl::MutexLock lock(&mutex_);
      on_queues_.push_back(TenantQueues::OnItsThread());
      return SharedManager::Now();
    });
    CacheParts parts;
    parts.manager = manager_.get();
    caches_.Add(std::make_shared<const CacheParts>(std::move(parts)));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::CacheService::NewStub(
        grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  }
  ~WhereBatchesRunTest() override {
    server_->Shutdown();
    std::filesystem::remove_all(folder_);
  }

  static std::unique_ptr<grpc::ClientContext> As(const char* token) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
    context->set_wait_for_ready(true);
    return context;
  }
  v1::SessionRef Open(const char* token) {
    v1::OpenSessionRequest request;
    request.set_client_name("test");
    v1::OpenSessionResponse response;
    const grpc::Status status = stub_->OpenSession(As(token).get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.session();
  }
  static v1::Batch BatchOf(int operations) {
    v1::Batch batch;
    for (int i = 0; i < operations; ++i) batch.add_operations()->mutable_match_prefix();
    return batch;
  }
  void Forget() {
    absl::MutexLock lock(&mutex_);
    on_queues_.clear();
  }
  // Whether each batch since Forget ran on the queues.
  std::vector<bool> OnQueues() {
    absl::MutexLock lock(&mutex_);
    return on_queues_;
  }
  std::vector<bool> AfterExecute(const char* token, int operations) {
    v1::ExecuteRequest request;
    *request.mutable_session() = Open(token);
    *request.mutable_batch() = BatchOf(operations);
    Forget();
    v1::ExecuteResponse response;
    const grpc::Status status = stub_->Execute(As(token).get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.result().results_size(), operations);
    return OnQueues();
  }
  std::vector<bool> AfterCall(const char* token, int operations) {
    return GetParam() == CallKind::kExecute ? AfterExecute(token, operations)
                                            : AfterStream(token, operations);
  }
  // One batch: the next can come before the turn of this one has ended, and then it queues.
  std::vector<bool> AfterStream(const char* token, int operations) {
    v1::SessionRequest request;
    *request.mutable_session() = Open(token);
    *request.mutable_batch() = BatchOf(operations);
    Forget();
    const auto context = As(token);
    const auto stream = stub_->Session(context.get());
    v1::SessionResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_EQ(response.result().results_size(), operations);
    const std::vector<bool> seen = OnQueues();
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return seen;
  }

  std::string folder_ = [] {
    std::string path = absl::StrCat(testing::TempDir(), "/tenant-batches-", getpid());
    std::filesystem::create_directories(path);
    return path;
  }();
  const std::string endpoint_ = absl::StrCat("unix:", folder_, "/socket");
  const Config config_ = ConfigWithTokens(folder_);
  absl::Mutex mutex_;  // Taken under the core's lock.
  std::vector<bool> on_queues_ ABSL_GUARDED_BY(mutex_);
  EventLog log_{EventLog::Limits{.max_events = 1 << 10}};
  std::unique_ptr<SharedManager> manager_;
  CacheDirectory caches_;
  ServingState state_;
  RpcMetrics rpcs_;
  const TenantTable tenants_ = *TenantTable::Create(TenantsOf(config_), 1);
  const std::unique_ptr<Authenticator> authenticator_ = *Authenticator::Create(config_);
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

TEST_P(WhereBatchesRunTest, ALongBatchOfATenantLeavesTheThreadOfItsCall) {
  EXPECT_THAT(AfterCall(kToken, kLongBatch), AllOf(Not(IsEmpty()), Each(true)));
}

TEST_P(WhereBatchesRunTest, AShortOneStays) {
  EXPECT_THAT(AfterCall(kToken, kShort), AllOf(Not(IsEmpty()), Each(false)));
}

TEST_P(WhereBatchesRunTest, ALongBatchOfAnOperatorStays) {
  EXPECT_THAT(AfterCall(kOperatorToken, 255), AllOf(Not(IsEmpty()), Each(false)));
}

INSTANTIATE_TEST_SUITE_P(Calls, WhereBatchesRunTest,
                         ::testing::Values(CallKind::kExecute, CallKind::kSession),
                         [](const auto& call) {
                           return call.param == CallKind::kExecute ? "Execute" : "Session";
                         });

}  // namespace
}  // namespace pagoda::server
