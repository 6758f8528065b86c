// Clients of both kinds map a daemon's pools.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/cpp/map_pools.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

class MappingTest : public DaemonTest {
 protected:
  MappingTest() : MappingTest(TestConfig()) {}
  explicit MappingTest(const Config& config)
      : DaemonTest(config), endpoint_(absl::StrCat("unix:", config.server.unix_socket)) {}

  std::unique_ptr<CacheClient> Client() {
    return OpenGrpcCacheClient({.endpoint = endpoint_, .client_name = "mapping"}).value();
  }

 private:
  const std::string endpoint_;
};

TEST_F(MappingTest, AClientBesideTheDaemonAndOneInsideMapTheSameBytes) {
  const std::unique_ptr<CacheClient> beside = Client();
  const std::unique_ptr<CacheClient> inside =
      OpenLocalCacheClient(&daemon().manager(), "inside").value();
  const auto theirs = beside->MapPools(MemoryAccess::kReadWrite);
  const auto ours = inside->MapPools(MemoryAccess::kRead);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  ASSERT_TRUE(ours.ok()) << ours.status();
  ASSERT_EQ(theirs->size(), ours->size());
  theirs->front()->slot(SlotIndex{7})[11] = std::byte{0x5a};
  EXPECT_EQ(ours->front()->slot(SlotIndex{7})[11], std::byte{0x5a});
}

TEST_F(MappingTest, OpenSessionSaysWhereAndASessionThatIsOverDoesNotMap) {
  const v1::OpenSessionResponse opened = Open();
  const auto map = [&] {
    return MapPools(opened.map_socket(), opened.session(), MemoryAccess::kReadWrite,
                    absl::Seconds(30))
        .status();
  };
  EXPECT_TRUE(std::filesystem::path(opened.map_socket()).is_absolute());
  EXPECT_TRUE(map().ok()) << map();
  ASSERT_TRUE(Close(opened.session()).ok());
  EXPECT_NE(ReasonOf(map()), Reason::kNone) << map();
}

TEST_F(MappingTest, ADrainingDaemonLetsNobodyNewMap) {
  const v1::OpenSessionResponse opened = Open();
  daemon().Drain();
  for (const MemoryAccess access : {MemoryAccess::kRead, MemoryAccess::kReadWrite}) {
    const absl::Status refused =
        MapPools(opened.map_socket(), opened.session(), access, absl::Seconds(30)).status();
    EXPECT_EQ(ReasonOf(refused), Reason::kDraining) << refused;
  }
}

Config WithoutMapSocket() {
  Config config = TestConfig();
  config.server.map_socket = "";
  return config;
}

class NoMappingTest : public MappingTest {
 protected:
  NoMappingTest() : MappingTest(WithoutMapSocket()) {}
};

TEST_F(NoMappingTest, AClientIsToldThatThereIsNoMapSocket) {
  const auto refused = Client()->MapPools(MemoryAccess::kRead);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
}

}  // namespace
}  // namespace pagoda::server
