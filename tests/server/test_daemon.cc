#include "tests/server/test_daemon.h"

#include <grpc/grpc.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "wire/rows.h"

namespace pagoda::server {
namespace {

// Only a hang takes this long.
constexpr std::chrono::seconds kCallDeadline(30);

// Keeps gRPC from ending with each daemon of a test, which may take 10 s. See main() of pagodad.
class KeptGrpc : public testing::Environment {
  void SetUp() override { grpc_init(); }
};
[[maybe_unused]] const testing::Environment* const kKeptGrpc =
    testing::AddGlobalTestEnvironment(new KeptGrpc);

}  // namespace

Config TestConfig() {
  static int count = 0;
  const std::string name = absl::StrCat("server-test-", getpid(), "-", ++count);
  Config config;
  config.cache.name = name;
  config.cache.tokens_per_block = kTestTokensPerBlock;
  config.cache.primary = BlockBudget{{kTestBlocks}};
  config.cache.primary_memory = PrimaryMemory::kHost;
  config.cache.huge_pages = HugePages::kOff;
  config.cache.layers = {{.count = 2, .num_kv_heads = 2, .head_dim = 8}};
  config.server.unix_socket = absl::StrCat(::testing::TempDir(), "/", name, ".sock");
  config.server.grpc_address = "";
  config.server.http_address = "";
  config.server.drain_timeout = absl::Seconds(20);
  config.engine.unix_socket = absl::StrCat(::testing::TempDir(), "/", name, "-engine.sock");
  config.engine.grpc_address = "";
  config.engine.http_address = "";
  config.events.flush_interval = absl::Milliseconds(1);
  config.log.level = LogLevel::kError;
  return config;
}

std::shared_ptr<grpc::Channel> EngineChannelOf(const Daemon& daemon) {
  const v1::CacheEngine addresses = daemon.engine_addresses();
  EXPECT_EQ(addresses.grpc_size(), 1);
  return grpc::CreateChannel(addresses.grpc(0), grpc::InsecureChannelCredentials());
}

std::unique_ptr<grpc::ClientContext> NewContext() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kCallDeadline);
  return context;
}

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  for (const auto& detail : status.details()) {
    if (detail.UnpackTo(&info)) break;
  }
  return info;
}

google::rpc::ErrorInfo InfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return InfoOf(details);
}

v1::Operation AllocateOp(uint32_t count) {
  v1::Operation operation;
  operation.mutable_allocate_blocks()->set_count(count);
  return operation;
}

v1::Operation FreeOp(const std::vector<BlockHandle>& blocks) {
  v1::Operation operation;
  std::vector<BlockRef> refs;
  for (const BlockHandle& block : blocks) refs.push_back(block.ref());
  operation.mutable_free_blocks()->set_blocks(RowsToBytes<BlockRef>(refs));
  return operation;
}

std::vector<BlockHandle> HandlesOf(const std::string& rows) {
  const auto handles = RowsFromBytes<BlockHandle>(rows);
  EXPECT_TRUE(handles.has_value());
  return handles.value_or(std::vector<BlockHandle>());
}

v1::Operation AddOp(uint64_t sequence, const std::vector<uint32_t>& tokens) {
  v1::Operation operation;
  operation.mutable_add_sequence()->set_sequence_id(sequence);
  operation.mutable_add_sequence()->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return operation;
}

v1::Operation CommitOp(uint64_t sequence, uint32_t computed_tokens) {
  v1::Operation operation;
  operation.mutable_commit_tokens()->set_sequence_id(sequence);
  operation.mutable_commit_tokens()->set_computed_tokens(computed_tokens);
  return operation;
}

v1::Operation FreeSequenceOp(uint64_t sequence) {
  v1::Operation operation;
  operation.mutable_free_sequence()->set_sequence_id(sequence);
  return operation;
}

v1::Operation MatchOp(const std::vector<uint32_t>& tokens) {
  v1::Operation operation;
  operation.mutable_match_prefix()->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return operation;
}

std::vector<uint32_t> TokensTo(uint32_t count) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = i;
  return tokens;
}

DaemonTest::DaemonTest(Config config) {
  SetLogLevel(config.log.level);
  const std::string target = absl::StrCat("unix:", config.server.unix_socket);
  auto started = Daemon::Start(std::move(config));
  EXPECT_TRUE(started.ok()) << started.status();
  daemon_ = std::move(started).value();  // Ends the test program if the daemon did not start.
  channel_ = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  cache_ = v1::CacheService::NewStub(channel_);
  events_ = v1::EventService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
}

DaemonTest::~DaemonTest() {
  for (const CachePtr& cache : daemon_->caches().All()) {
    cache->manager->Read(&BlockManager::CheckInvariants);
  }
}

v1::OpenSessionResponse DaemonTest::Open(uint64_t lease_ms) {
  v1::OpenSessionRequest request;
  request.set_client_name("test");
  request.set_lease_ms(lease_ms);
  v1::OpenSessionResponse response;
  const grpc::Status status = cache().OpenSession(NewContext().get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

grpc::Status DaemonTest::Execute(const v1::SessionRef& session,
                                 const std::vector<v1::Operation>& operations,
                                 v1::BatchResult* result) {
  v1::ExecuteRequest request;
  *request.mutable_session() = session;
  request.mutable_batch()->mutable_operations()->Add(operations.begin(), operations.end());
  v1::ExecuteResponse response;
  const grpc::Status status = cache().Execute(NewContext().get(), request, &response);
  *result = response.result();
  return status;
}

v1::OperationResult DaemonTest::Run(const v1::SessionRef& session, const v1::Operation& operation) {
  v1::BatchResult batch;
  const grpc::Status status = Execute(session, {operation}, &batch);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(batch.results_size(), 1);
  return batch.results_size() == 1 ? batch.results(0) : v1::OperationResult();
}

std::string DaemonTest::ReasonFor(const v1::SessionRef& session, const v1::Operation& operation) {
  const v1::OperationResult result = Run(session, operation);
  return result.has_error() ? InfoOf(result.error()).reason() : "";
}

std::vector<BlockHandle> DaemonTest::Allocate(const v1::SessionRef& session, uint32_t count) {
  const v1::OperationResult result = Run(session, AllocateOp(count));
  EXPECT_FALSE(result.has_error()) << result.error().message();
  return HandlesOf(result.allocate_blocks().blocks());
}

void DaemonTest::CacheTokens(const v1::SessionRef& session, const std::vector<uint32_t>& tokens) {
  constexpr uint64_t kSequence = 1'000'000;
  v1::BatchResult batch;
  const grpc::Status status =
      Execute(session,
              {AddOp(kSequence, tokens), CommitOp(kSequence, static_cast<uint32_t>(tokens.size())),
               FreeSequenceOp(kSequence)},
              &batch);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (const v1::OperationResult& result : batch.results()) {
    ASSERT_FALSE(result.has_error()) << result.error().message();
  }
}

grpc::Status DaemonTest::Close(const v1::SessionRef& session) {
  v1::CloseSessionRequest request;
  *request.mutable_session() = session;
  v1::CloseSessionResponse response;
  return cache().CloseSession(NewContext().get(), request, &response);
}

v1::GetStatusResponse DaemonTest::Status() {
  v1::GetStatusResponse response;
  const grpc::Status status = admin().GetStatus(NewContext().get(), {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (const v1::WindowStatus& window : response.windows()) {
    for (const v1::TierStatus& tier : window.tiers()) {
      EXPECT_EQ(tier.free_blocks() + tier.cached_blocks() + tier.active_blocks() +
                    tier.pinned_blocks() + tier.in_flight_blocks(),
                tier.capacity_blocks());
    }
  }
  return response;
}

}  // namespace pagoda::server
