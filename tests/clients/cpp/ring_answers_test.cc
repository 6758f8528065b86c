// The client's promise, through rings: its results are those of gRPC, also while the rings break
// again and again. The same random batches go to one daemon over gRPC and to another through rings.
#include <stdio.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cpp/grpc_cache_client.h"
#include "gtest/gtest.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "tests/clients/fixtures/random_batches.h"
#include "tests/server/test_daemon.h"
#include "wire/ring/ring_layout.h"

namespace pagoda {
namespace {

// The rings' memory that this process has mapped, as the client or as the daemon.
std::vector<ring::Control*> MappedRings() {
  std::vector<ring::Control*> found;
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[1024];
  while (fgets(line, sizeof(line), maps) != nullptr) {
    uintptr_t begin = 0;
    if (std::string(line).find("pagoda-rings") == std::string::npos) continue;
    if (sscanf(line, "%" SCNxPTR, &begin) == 1) {
      found.push_back(reinterpret_cast<ring::Control*>(begin));
    }
  }
  fclose(maps);
  return found;
}

// The last copy that a batch's results wait for.
Ticket LastCopy(const BatchResult& batch) {
  Ticket last;
  for (const auto& result : batch.results) {
    if (!result.ok()) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { value.ready; }) last = std::max(last, value.ready);
        },
        *result);
  }
  return last;
}

// Runs a batch, and returns its results as text. Then waits for its copies: a block whose copy is
// under way cannot be evicted, so the time of a copy would change later results.
std::string RunBatch(CacheClient& client, const std::vector<Operation>& batch) {
  const auto result = client.Execute(batch);
  if (!result.ok()) return TextOf(result);
  const Ticket last = LastCopy(*result);
  if (last > result->completed) {
    const auto waited = RunOne<WaitedForTicket>(client, WaitForTicket{last});
    EXPECT_TRUE(waited.ok()) << waited.status();
  }
  return TextOf(result);
}

class RingAnswersTest : public testing::Test {
 protected:
  static std::unique_ptr<server::Daemon> StartDaemon(const server::Config& config) {
    auto daemon = server::Daemon::Start(config);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }
  static std::unique_ptr<CacheClient> Open(const server::Config& config, Transport transport) {
    auto client = OpenGrpcCacheClient({.endpoint = absl::StrCat("unix:", config.server.unix_socket),
                                       .client_name = "test",
                                       .timeout = absl::Seconds(60),
                                       .transport = transport});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  void ExpectSameContent() {
    for (server::Daemon* daemon : {grpc_.get(), ring_.get()}) {
      daemon->manager().Read(&BlockManager::CheckInvariants);
      EXPECT_EQ(daemon->manager().Read(&BlockManager::Stats).sequences, 0u);
      EXPECT_EQ(daemon->manager().Read(&BlockManager::Stats).sessions, 0u);
    }
    const TierOccupancy kept = grpc_->manager().Read(&BlockManager::Stats).windows[0].tiers[0];
    EXPECT_EQ(ring_->manager().Read(&BlockManager::Stats).windows[0].tiers[0].cached, kept.cached);
    EXPECT_EQ(ring_->manager().Read(&BlockManager::Stats).windows[0].tiers[0].free, kept.free);
  }

  const server::Config grpc_config_ = server::TestConfig();
  const server::Config ring_config_ = server::TestConfig();
  const std::unique_ptr<server::Daemon> grpc_ = StartDaemon(grpc_config_);
  const std::unique_ptr<server::Daemon> ring_ = StartDaemon(ring_config_);
};

TEST_F(RingAnswersTest, ResultsAreThoseOfGrpc) {
  auto expected = Open(grpc_config_, Transport::kGrpc);
  auto tested = Open(ring_config_, Transport::kRings);
  RandomBatches batches;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<Operation> batch = batches.Next();
    ASSERT_EQ(RunBatch(*tested, batch), RunBatch(*expected, batch)) << "batch " << i;
    ASSERT_EQ(TransportOf(*tested), Transport::kRings) << "batch " << i;
  }
  expected.reset();
  tested.reset();
  ExpectSameContent();
}

TEST_F(RingAnswersTest, ResultsAreThoseOfGrpcWhileTheRingsBreak) {
  auto expected = Open(grpc_config_, Transport::kGrpc);
  auto tested = Open(ring_config_, Transport::kRings);
  RandomBatches batches;
  std::mt19937_64 random(5);
  int broken = 0;
  const absl::Time end = absl::Now() + absl::Seconds(60);
  for (int i = 0; broken < 3 && absl::Now() < end; ++i) {
    const std::vector<Operation> batch = batches.Next();
    ASSERT_EQ(RunBatch(*tested, batch), RunBatch(*expected, batch)) << "batch " << i;
    if (TransportOf(*tested) != Transport::kRings || random() % 20 != 0) continue;
    // Between two batches nothing moves in the rings, so the next batch meets this.
    for (ring::Control* const rings : MappedRings()) {
      std::atomic<uint64_t>* const positions[] = {&rings->requests.written, &rings->requests.read,
                                                  &rings->answers.read};
      positions[random() % 3]->store(random());
    }
    ++broken;
  }
  EXPECT_EQ(broken, 3) << "the client asks for rings again after a while";
  expected.reset();
  tested.reset();
  ExpectSameContent();
}

TEST_F(RingAnswersTest, ABatchThatIsRefusedAsAWholeHasTheErrorOfGrpc) {
  auto expected = Open(grpc_config_, Transport::kGrpc);
  auto tested = Open(ring_config_, Transport::kRings);
  const std::vector<Operation> batch(5000, FreeSequence{SequenceId(1)});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(TextOf(tested->Execute(batch)), TextOf(expected->Execute(batch)));
    EXPECT_EQ(TransportOf(*tested), Transport::kRings);
  }
  EXPECT_FALSE(tested->Execute(batch).ok());
}

// The answer does not fit in the ring. The batch is not run twice.
TEST_F(RingAnswersTest, LongMessagesGoOverGrpc) {
  auto expected = Open(grpc_config_, Transport::kGrpc);
  auto tested = Open(ring_config_, Transport::kRings);
  std::vector<Operation> batch(3000, FreeSequence{SequenceId(1)});
  batch[0] = AllocateBlocks{kFullAttention, 2};
  const auto answer = tested->Execute(batch);
  ASSERT_EQ(TextOf(answer), TextOf(expected->Execute(batch)));
  EXPECT_EQ(ring_->manager().Read(&BlockManager::Stats).windows[0].tiers[0].active, 2u);
  std::vector<TokenId> prompt(100'000, 1);
  const std::vector<Operation> long_request(1, MatchPrefix{.tokens = prompt});
  EXPECT_EQ(TextOf(tested->Execute(long_request)), TextOf(expected->Execute(long_request)));
  EXPECT_EQ(TransportOf(*tested), Transport::kRings) << "the rings have not ended";
}

}  // namespace
}  // namespace pagoda
