// Prefixes that one daemon fetches from another one.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "manager/cache_lists.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/server/peers/served_peer.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

TEST(PeerFetchTest, APrefixComputedOnOneMachineIsServedOnAnother) {
  ExchangedCache here({.blocks = 128, .name = "one name"});
  const auto server = StartPeer();
  Serve(*server, here);
  FetchingPeer there(*server);
  const Tokens tokens = TokensOf(1, 100 * kBlockTokens + 1);
  here.Compute(tokens);
  EXPECT_EQ(there.Fetch(tokens).fetched_tokens, 100 * kBlockTokens);
  EXPECT_EQ(there.cache.Compute(tokens), 100 * kBlockTokens) << "the engine checks the bytes";
  // The server counts a reply after it has sent it.
  EXPECT_TRUE(WaitUntil([&] { return server->stats().hits == 100; }));
  EXPECT_EQ(there.exchange->stats().invalid_blocks, 0u);
  EXPECT_TRUE(here.NothingHeld());
  EXPECT_EQ(there.Fetch(TokensOf(2, 40)).outcome, FetchOutcome::kMissing);
}

// No wait between the computation and the fetch: the index reads the log when it is asked.
TEST(PeerFetchTest, ABlockCanBeFetchedAsSoonAsItIsCommitted) {
  ExchangedCache here({.blocks = 64});
  const auto server = StartPeer();
  Serve(*server, here);
  FetchingPeer there(*server);
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const Tokens tokens = TokensOf(seed, 5 * kBlockTokens + 1);
    here.Compute(tokens);
    ASSERT_EQ(there.Fetch(tokens).fetched_tokens, 5 * kBlockTokens);
    ASSERT_EQ(there.cache.Compute(tokens), 5 * kBlockTokens);
  }
}

TEST(PeerFetchTest, BlocksComeFromEachTierInMemory) {
  ExchangedCache here({.blocks = 20, .lower_blocks = 40});
  const auto server = StartPeer();
  Serve(*server, here);
  FetchingPeer there(*server);
  const Tokens first = TokensOf(1, 18 * kBlockTokens + 1),
               second = TokensOf(2, 18 * kBlockTokens + 1);
  here.Compute(first);
  here.Compute(second);  // Offloads the first.
  here.WaitForCopies();
  const InspectedPrefix below = *here.manager().Read(
      [&](const BlockManager& core) { return core.lists().InspectPrefix(PromptOf({}, first)); });
  ASSERT_EQ(below.blocks.back().tier, Tier(1));
  EXPECT_EQ(there.Fetch(first).fetched_tokens, 18 * kBlockTokens);
  EXPECT_EQ(there.Fetch(second).fetched_tokens, 18 * kBlockTokens);
  EXPECT_EQ(there.cache.Compute(first), 18 * kBlockTokens);
  EXPECT_EQ(there.cache.Compute(second), 18 * kBlockTokens);
}

TEST(PeerFetchTest, NamespacesAndModelsDoNotMix) {
  ExchangedCache here({.blocks = 64});
  ExchangedCache other_model({.blocks = 64, .model = "org/another"});
  const auto server = StartPeer();
  Serve(*server, here);
  Serve(*server, other_model, "other");
  FetchingPeer there(*server);
  const Tokens salted = TokensOf(1, 41), other = TokensOf(2, 41), common = TokensOf(3, 41);
  here.Compute(salted, {.cache_salt = "salt"});
  other_model.Compute(other);
  here.Compute(common);
  other_model.Compute(common);
  EXPECT_EQ(there.Fetch(salted).outcome, FetchOutcome::kMissing);
  EXPECT_EQ(there.Fetch(other).outcome, FetchOutcome::kMissing);
  EXPECT_EQ(there.Fetch(common).fetched_tokens, 40u);
  EXPECT_EQ(there.cache.Compute(common), 40u);
}

TEST(PeerFetchTest, OneOfSeveralCachesOfAModelHasTheBlock) {
  ExchangedCache first({.blocks = 64}), second({.blocks = 64});
  const auto server = StartPeer();
  Serve(*server, first, "first");
  Serve(*server, second, "second");
  FetchingPeer there(*server);
  const Tokens long_prompt = TokensOf(1, 10 * kBlockTokens + 1);
  first.Compute(FirstOf({.name_space = {}, .tokens = long_prompt}, TokensPerBlock(kBlockTokens),
                        4 * kBlockTokens)
                    .tokens);
  second.Compute(long_prompt);
  EXPECT_EQ(there.Fetch(long_prompt).fetched_tokens, 10 * kBlockTokens);
  EXPECT_EQ(there.cache.Compute(long_prompt), 10 * kBlockTokens);
  server->RemoveCache("second");
  there.cache.manager().ResetPrefixCache();
  EXPECT_EQ(there.Fetch(long_prompt).fetched_tokens, 4 * kBlockTokens);
}

TEST(PeerFetchTest, BothSidesNeedTheSecret) {
  ExchangedCache here({.blocks = 64});
  const auto server = StartPeer({.secret = "a secret"});
  Serve(*server, here);
  const Tokens tokens = TokensOf(1, 41);
  here.Compute(tokens);
  RedisOptions options = {.seeds = {AddressOf(*server)}};
  EXPECT_EQ(FetchingPeer(options).Fetch(tokens).outcome, FetchOutcome::kMissing);
  options.secret = "another";
  EXPECT_EQ(FetchingPeer(options).Fetch(tokens).outcome, FetchOutcome::kMissing);
  options.secret = "a secret";
  FetchingPeer there(options);
  EXPECT_EQ(there.Fetch(tokens).fetched_tokens, 40u);
  EXPECT_EQ(there.cache.Compute(tokens), 40u);
}

TEST(PeerFetchTest, APublishIsRefusedAndHarmsNobody) {
  ExchangedCache here({.blocks = 64});
  const auto server = StartPeer();
  Serve(*server, here);
  FetchingPeer there(*server);
  const Tokens mine = TokensOf(1, 40), theirs = TokensOf(2, 40);
  here.Compute(mine);
  there.cache.Compute(theirs);
  const PublishedPrefix published = Publish(*there.exchange, theirs);
  EXPECT_EQ(published.written, 0u);
  EXPECT_EQ(published.failed, 10u);
  EXPECT_EQ(there.Fetch(mine).fetched_tokens, 40u);
}

// The blocks that are fetched leave and come back all the time, in all tiers, and their slots get
// other bytes. Each byte that the fetching side commits is checked.
TEST(PeerFetchTest, NoWrongByteIsFetchedWhileBlocksAreEvicted) {
  ExchangedCache here({.blocks = 24, .lower_blocks = 16});
  const auto server = StartPeer();
  Serve(*server, here);
  std::atomic<bool> ends = false;
  std::thread engine([&] {
    std::mt19937 random(1);
    while (!ends) here.Compute(TokensOf(random() % 8, random() % 60 + 10));
  });
  std::vector<std::thread> fetchers;
  std::atomic<uint64_t> fetched = 0, invalid = 0;
  for (int i = 0; i < 2; ++i) {
    fetchers.emplace_back([&, i] {
      FetchingPeer there(*server);
      std::mt19937 random(100 + i);
      while (!ends) {
        const Tokens tokens = TokensOf(random() % 8, random() % 60 + 10);
        fetched += there.Fetch(tokens).fetched_tokens;
        there.cache.Compute(tokens);  // Stops the process if cached KV is wrong.
        if (random() % 4 == 0) there.cache.manager().ResetPrefixCache();
      }
      invalid += there.exchange->stats().invalid_blocks;
    });
  }
  absl::SleepFor(absl::Seconds(4));
  ends = true;
  engine.join();
  for (std::thread& fetcher : fetchers) fetcher.join();
  EXPECT_GT(fetched, 1000u);
  EXPECT_GT(server->stats().hits, 1000u);
  EXPECT_GT(server->stats().misses, 0u);
  std::printf("%zu tokens fetched, %zu invalid values, %zu hits, %zu misses\n",
              size_t{fetched.load()}, size_t{invalid.load()}, size_t{server->stats().hits},
              size_t{server->stats().misses});
  EXPECT_TRUE(here.NothingHeld());
}

}  // namespace
}  // namespace pagoda::server
