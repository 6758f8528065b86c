// The client's promise: its results are those of a connection that never breaks. The same random
// batches go to one daemon directly, and to another through a proxy that cuts connections. Results,
// revisions and the remaining content of the caches must be equal.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/grpc_cache_client.h"
#include "gtest/gtest.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "tests/clients/fixtures/cutting_proxy.h"
#include "tests/clients/fixtures/random_batches.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/server/test_daemon.h"

namespace pagoda {
namespace {

constexpr int kBatches = 400;
// A batch is a few pieces in each direction. A new connection is some more.
constexpr uint32_t kLoseOneIn = 16;

class LostAnswersTest : public testing::Test {
 protected:
  static std::unique_ptr<server::Daemon> StartDaemon(const server::Config& config) {
    auto daemon = server::Daemon::Start(config);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }

  static std::unique_ptr<CacheClient> Open(const std::string& socket) {
    auto client = OpenGrpcCacheClient({.endpoint = absl::StrCat("unix:", socket),
                                       .client_name = "test",
                                       .timeout = absl::Seconds(60),
                                       .transport = Transport::kGrpc});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  const TempDirectory directory_;
  const server::Config plain_config_ = server::TestConfig();
  const server::Config cut_config_ = server::TestConfig();
  const std::unique_ptr<server::Daemon> plain_ = StartDaemon(plain_config_);
  const std::unique_ptr<server::Daemon> cut_ = StartDaemon(cut_config_);
  CuttingProxy proxy_{directory_.File("proxy.sock"), cut_config_.server.unix_socket};
};

TEST_F(LostAnswersTest, ResultsAreThoseOfAConnectionThatNeverBreaks) {
  auto expected = Open(plain_config_.server.unix_socket);
  auto tested = Open(directory_.File("proxy.sock"));
  proxy_.LoseOneIn(kLoseOneIn);
  RandomBatches batches;
  for (int i = 0; i < kBatches; ++i) {
    const std::vector<Operation> batch = batches.Next();
    ASSERT_EQ(TextOf(tested->Execute(batch)), TextOf(expected->Execute(batch))) << "batch " << i;
  }
  EXPECT_GT(proxy_.cuts(), kBatches / 40);
  proxy_.LoseOneIn(0);
  expected.reset();
  tested.reset();
  for (server::Daemon* daemon : {plain_.get(), cut_.get()}) {
    daemon->manager().Read(&BlockManager::CheckInvariants);
    EXPECT_EQ(daemon->manager().Read(&BlockManager::Stats).sequences, 0u);
    EXPECT_EQ(daemon->manager().Read(&BlockManager::Stats).sessions, 0u);
  }
  const TierOccupancy kept = plain_->manager().Read(&BlockManager::Stats).windows[0].tiers[0];
  EXPECT_EQ(cut_->manager().Read(&BlockManager::Stats).windows[0].tiers[0].cached, kept.cached);
  EXPECT_EQ(cut_->manager().Read(&BlockManager::Stats).windows[0].tiers[0].free, kept.free);
}

}  // namespace
}  // namespace pagoda
