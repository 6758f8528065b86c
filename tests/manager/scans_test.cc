// Operators' scans of a whole cache: the states of its slots, and its most used prefixes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "manager/shared_manager.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kBlockTokens = 4;

std::vector<TokenId> Range(TokenId first, uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = first + i;
  return tokens;
}
std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ScansTest : public ::testing::Test {
 protected:
  ScansTest() : ScansTest(16, 0) {}
  ScansTest(uint32_t primary, uint32_t lower)
      : manager_(*BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                        .tiers = HostTiers({primary}, {lower}),
                                        .epoch = Epoch{1}}),
                 &log_),
        client_(*OpenLocalCacheClient(&manager_, "test")) {}
  ~ScansTest() override { manager_.Read(&BlockManager::CheckInvariants); }

  template <class Result>
  Result Run(const Operation& operation) {
    return *RunOne<Result>(*client_, operation);
  }
  void Add(uint64_t sequence, std::vector<TokenId> tokens, const NamespaceKey& name_space = {}) {
    const auto size = static_cast<uint32_t>(tokens.size());
    const std::vector<Operation> batch = {
        AddSequence{.sequence = SequenceId{sequence},
                    .name_space = name_space,
                    .tokens = std::move(tokens)},
        CommitTokens{.sequence = SequenceId{sequence}, .computed_tokens = size}};
    const auto result = client_->Execute(batch);
    ASSERT_TRUE(result.ok() && result->results[0].ok() && result->results[1].ok());
  }
  void Free(uint64_t sequence) {
    const auto result =
        client_->Execute(std::vector<Operation>{FreeSequence{.sequence = SequenceId{sequence}}});
    ASSERT_TRUE(result.ok() && result->results[0].ok());
  }
  void Serve(std::vector<TokenId> tokens, const NamespaceKey& name_space = {}) {
    Add(1000, std::move(tokens), name_space);
    Free(1000);
  }
  size_t Count(Tier tier, SlotState state) {
    const std::vector<SlotState> states = manager_.SlotStates(0, tier);
    return static_cast<size_t>(std::count(states.begin(), states.end(), state));
  }

  EventLog log_{{}};
  SharedManager manager_;
  std::unique_ptr<CacheClient> client_;
};

TEST_F(ScansTest, AFreshCacheIsFree) {
  EXPECT_THAT(manager_.SlotStates(0, kPrimaryTier), SizeIs(16));
  EXPECT_EQ(Count(kPrimaryTier, SlotState::kFree), 16u);
  EXPECT_THAT(manager_.SlotStates(0, Tier(1)), IsEmpty());
  EXPECT_THAT(manager_.TopPrefixes(10), IsEmpty());
}

TEST_F(ScansTest, ASlotShowsWhatItsBlockIs) {
  Serve(Range(0, 8));
  Add(1, Range(100, 12));
  const std::vector<SlotState> states = manager_.SlotStates(0, kPrimaryTier);
  using enum SlotState;
  EXPECT_THAT(std::vector<SlotState>(states.begin(), states.begin() + 6),
              ElementsAre(kCached, kCached, kActive, kActive, kActive, kFree));
}

TEST_F(ScansTest, HitsAreOfThosePromptsThatHadAllOfThePrefix) {
  const std::vector<TokenId> system = Range(0, 8);
  Serve(system + Range(100, 5));
  for (TokenId i = 0; i < 3; ++i) Serve(system + Range(200 + 10 * i, 5));
  Serve(system + Range(100, 5));  // Its own block, too.

  const std::vector<PrefixUse> top = manager_.TopPrefixes(10);
  ASSERT_THAT(top, SizeIs(2));
  EXPECT_EQ(top[0].tokens, 8u);
  EXPECT_EQ(top[0].hits, 4u);
  EXPECT_EQ(top[0].saved_tokens, 32u);
  EXPECT_EQ(top[0].first_tokens, Range(0, kBlockTokens));
  EXPECT_EQ(top[0].tier, kPrimaryTier);
  EXPECT_EQ(top[0].hash, HashBlock(HashBlock(BlockHash{0}, {Range(0, 4), {}}), {Range(4, 4), {}}));
  EXPECT_EQ(top[1].tokens, 12u);
  EXPECT_EQ(top[1].hits, 1u);
  EXPECT_THAT(manager_.TopPrefixes(1), SizeIs(1));
}

TEST_F(ScansTest, ANamespaceHasItsOwn) {
  const NamespaceKey salted{.cache_salt = "s"};
  Serve(Range(0, 9), salted);
  Serve(Range(0, 9), salted);
  const std::vector<PrefixUse> top = manager_.TopPrefixes(10);
  ASSERT_THAT(top, SizeIs(1));
  EXPECT_EQ(top[0].name_space, salted);
  EXPECT_EQ(top[0].hits, 1u);
}

TEST_F(ScansTest, HitsOfWhatIsEvictedStayWithWhatWasAbove) {
  const std::vector<TokenId> system = Range(0, 8);
  Serve(system + Range(100, 5));
  Serve(system + Range(100, 5));   // A hit of three blocks.
  Add(1, system + Range(300, 4));  // Holds the system prompt; a hit of two.
  // Everything else must leave.
  Serve(Range(1000, 13 * kBlockTokens));
  const std::vector<PrefixUse> top = manager_.TopPrefixes(10);
  ASSERT_THAT(top, SizeIs(1));
  EXPECT_EQ(top[0].tokens, 8u);
  EXPECT_EQ(top[0].hits, 2u);
}

TEST_F(ScansTest, AResetForgetsHits) {
  Serve(Range(0, 9));
  Serve(Range(0, 9));
  ASSERT_THAT(manager_.TopPrefixes(10), SizeIs(1));
  manager_.ResetPrefixCache();
  EXPECT_THAT(manager_.TopPrefixes(10), IsEmpty());
  Serve(Range(0, 9));
  EXPECT_THAT(manager_.TopPrefixes(10), IsEmpty()) << "its content is new again";
}

class TieredScansTest : public ScansTest {
 protected:
  TieredScansTest() : ScansTest(4, 8) {}
};

TEST_F(TieredScansTest, TheSpareIsInNoCount) {
  Serve(Range(0, 8));
  Serve(Range(0, 9));  // A hit of two blocks.
  Serve(Range(100, 16));
  EXPECT_THAT(manager_.SlotStates(0, Tier(1)), SizeIs(9));
  EXPECT_EQ(Count(Tier(1), SlotState::kSpare), 1u);
  EXPECT_GE(Count(Tier(1), SlotState::kCached), 2u);
  const std::vector<PrefixUse> top = manager_.TopPrefixes(10);
  ASSERT_THAT(top, SizeIs(1));
  EXPECT_EQ(top[0].tier, Tier(1));
}

// More blocks than a chunk of a scan, while other calls change them.
TEST(ScansBesideOthersTest, AnswersWhileTheCacheChanges) {
  constexpr uint32_t kBlocks = 20'000;
  EventLog log({.max_events = 100});
  SharedManager manager(MakeCore(kBlocks, kBlockTokens), &log);
  std::atomic<bool> stop = false;
  std::atomic<uint32_t> batches = 0;
  std::thread writer([&] {
    auto client = *OpenLocalCacheClient(&manager, "writer");
    for (uint32_t i = 0; !stop; ++i) {
      const std::vector<Operation> batch = {
          AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 40) + Range(i * 1000, 500)},
          CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 540},
          FreeSequence{.sequence = SequenceId{1}}};
      ASSERT_TRUE(client->Execute(batch).ok());
      ++batches;
    }
  });
  // The beginning is reused once there were two batches.
  for (int round = 0; round < 50 || batches < 2; ++round) {
    const std::vector<SlotState> states = manager.SlotStates(0, kPrimaryTier);
    EXPECT_EQ(std::count(states.begin(), states.end(), SlotState::kSpare), 0);
    EXPECT_THAT(states, SizeIs(kBlocks));
    for (const PrefixUse& use : manager.TopPrefixes(10)) {
      EXPECT_EQ(use.saved_tokens, use.hits * use.tokens);
      EXPECT_EQ(use.first_tokens, Range(0, kBlockTokens)) << "only the shared beginning is reused";
    }
  }
  stop = true;
  writer.join();
  EXPECT_THAT(manager.TopPrefixes(10), SizeIs(1));
  manager.Read(&BlockManager::CheckInvariants);
}

}  // namespace
}  // namespace pagoda
