// A daemon in the test's process, and its clients.
#ifndef PAGODA_TESTS_SERVER_TEST_DAEMON_H_
#define PAGODA_TESTS_SERVER_TEST_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "pools/types.h"
#include "server/config/config.h"

namespace pagoda::server {

class Daemon;

inline constexpr uint32_t kTestBlocks = 32;
inline constexpr uint32_t kTestTokensPerBlock = 4;

// A small cache with a unique name, on a separate Unix socket, without TCP and HTTP.
Config TestConfig();

// A client context with a deadline, so that a hanging call ends.
std::unique_ptr<grpc::ClientContext> NewContext();

// The daemon's ErrorInfo; without a reason if the status has none.
google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status);
google::rpc::ErrorInfo InfoOf(const grpc::Status& status);

// The operations that tests use, as messages.
v1::Operation AllocateOp(uint32_t count);
v1::Operation FreeOp(const std::vector<BlockHandle>& blocks);
// The handles in a field of a result.
std::vector<BlockHandle> HandlesOf(const std::string& rows);
v1::Operation AddOp(uint64_t sequence, const std::vector<uint32_t>& tokens);
v1::Operation CommitOp(uint64_t sequence, uint32_t computed_tokens);
v1::Operation FreeSequenceOp(uint64_t sequence);
v1::Operation MatchOp(const std::vector<uint32_t>& tokens);

// The tokens 0, 1, ... count - 1.
std::vector<uint32_t> TokensTo(uint32_t count);

// To the process of the daemon's engine, over its Unix socket.
std::shared_ptr<grpc::Channel> EngineChannelOf(const Daemon& daemon);

// Starts a daemon for each test, and checks at the end that nothing leaked and no invariant broke.
class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() : DaemonTest(TestConfig()) {}
  explicit DaemonTest(Config config);
  ~DaemonTest() override;

  Daemon& daemon() { return *daemon_; }
  std::shared_ptr<grpc::Channel> channel() const { return channel_; }
  std::shared_ptr<grpc::Channel> EngineChannel() { return EngineChannelOf(*daemon_); }
  v1::CacheService::Stub& cache() { return *cache_; }
  v1::EventService::Stub& events() { return *events_; }
  v1::AdminService::Stub& admin() { return *admin_; }

  v1::OpenSessionResponse Open(uint64_t lease_ms = 0);
  v1::SessionRef OpenRef() { return Open().session(); }
  // Runs one batch by Execute.
  grpc::Status Execute(const v1::SessionRef& session, const std::vector<v1::Operation>& operations,
                       v1::BatchResult* result);
  // Runs one operation by Execute. A failed call fails the test.
  v1::OperationResult Run(const v1::SessionRef& session, const v1::Operation& operation);
  // The reason for which an operation failed; "" if it succeeded.
  std::string ReasonFor(const v1::SessionRef& session, const v1::Operation& operation);
  std::vector<BlockHandle> Allocate(const v1::SessionRef& session, uint32_t count);
  // Adds, commits and frees a sequence. Afterwards its full blocks are cached.
  void CacheTokens(const v1::SessionRef& session, const std::vector<uint32_t>& tokens);
  grpc::Status Close(const v1::SessionRef& session);

  v1::GetStatusResponse Status();
  v1::TierStatus Primary() { return Status().windows(0).tiers(0); }

 private:
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CacheService::Stub> cache_;
  std::unique_ptr<v1::EventService::Stub> events_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_TEST_DAEMON_H_
