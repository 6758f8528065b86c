// Two caches with a real Redis between them.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "manager/exchange/block_exchange.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "tests/manager/exchange/exchange_fixture.h"
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/pools/store/resp_client.h"
#include "tests/wait_until.h"

namespace pagoda {
namespace {

class ExchangeRedisTest : public testing::TestWithParam<ServerKind> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeRedisTest);
INSTANTIATE_TEST_SUITE_P(Servers, ExchangeRedisTest, testing::ValuesIn(InstalledServers()),
                         [](const auto& kind) { return kind.param.name; });

// A machine: a cache, its own connection to the store, and the exchange between them.
struct Machine {
  explicit Machine(const RedisAddress& address) {
    RedisOptions options;
    options.seeds = {address};
    options.max_backoff = absl::Milliseconds(300);
    store = *RedisStore::Create(options);
    exchange = *BlockExchange::Create(&cache.manager(), &cache.pools(), store.get(),
                                      {.fetch_base = absl::Seconds(10)});
  }

  FetchedPrefix Fetch(const Tokens& tokens) {
    const FetchedPrefix fetched = pagoda::Fetch(*exchange, tokens);
    EXPECT_TRUE(cache.NothingHeld());
    return fetched;
  }
  uint32_t Publish(const Tokens& tokens) {
    const uint32_t written = pagoda::Publish(*exchange, tokens).written;
    EXPECT_TRUE(cache.NothingHeld());
    return written;
  }

  ExchangedCache cache{{.blocks = 128}};
  std::unique_ptr<RedisStore> store;
  std::unique_ptr<BlockExchange> exchange;
};

TEST_P(ExchangeRedisTest, APrefixComputedOnOneMachineIsServedOnAnother) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  Machine here(server.address()), there(server.address());
  const Tokens tokens = TokensOf(1, 100 * kBlockTokens + 1);
  here.cache.Compute(tokens);
  EXPECT_EQ(here.Publish(tokens), 100u);
  EXPECT_EQ(there.Fetch(tokens).fetched_tokens, 100 * kBlockTokens);
  EXPECT_EQ(there.cache.Compute(tokens), 100 * kBlockTokens) << "the engine checks the bytes";
}

TEST_P(ExchangeRedisTest, ABrokenValueEndsThePrefixAndIsReplaced) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  Machine here(server.address()), there(server.address());
  const Tokens tokens = TokensOf(1, 20 * kBlockTokens + 1);
  here.cache.Compute(tokens);
  EXPECT_EQ(here.Publish(tokens), 20u);
  const ContentDigest digest =
      DigestsOf({.name_space = {}, .tokens = tokens}, TokensPerBlock(kBlockTokens), 8).back();
  const StoreKey key = {.layout = StoredLayout(here.cache.pools().layout(), 0).bytes,
                        .digest = digest.bytes,
                        .window_size = 0};
  RespClient client(server.port());
  ASSERT_EQ(client.Do({"SETRANGE", StoredName("pagoda:", "", key), "200", "xxxx"}).kind,
            resp::Kind::kInteger);
  const FetchedPrefix fetched = there.Fetch(tokens);
  EXPECT_EQ(fetched.outcome, FetchOutcome::kPartly);
  EXPECT_EQ(fetched.fetched_tokens, 7 * kBlockTokens);
  EXPECT_EQ(there.exchange->stats().invalid_blocks, 1u);
  EXPECT_EQ(there.cache.Compute(tokens), 7 * kBlockTokens);
  // The broken value was withdrawn: it ends after a millisecond.
  uint32_t written = 0;
  ASSERT_TRUE(WaitUntil([&] { return (written = there.Publish(tokens)) > 0; }));
  EXPECT_EQ(written, 1u);
  there.cache.manager().ResetPrefixCache();
  EXPECT_EQ(there.Fetch(tokens).fetched_tokens, 20 * kBlockTokens);
}

TEST_P(ExchangeRedisTest, AServerThatDiesIsAMiss) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  Machine here(server.address()), there(server.address());
  const Tokens tokens = TokensOf(1, 20 * kBlockTokens + 1);
  here.cache.Compute(tokens);
  EXPECT_EQ(here.Publish(tokens), 20u);
  EXPECT_EQ(there.Fetch(TokensOf(2, 80)).outcome, FetchOutcome::kMissing);
  server.Kill();
  const absl::Time start = absl::Now();
  EXPECT_EQ(there.Fetch(tokens).outcome, FetchOutcome::kFailed);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "the deadline of a fetch";
  server.Start();
  ASSERT_TRUE(server.is_up());
  ASSERT_TRUE(WaitUntil([&] { return here.Publish(tokens) > 0; }));
  FetchedPrefix fetched;
  ASSERT_TRUE(WaitUntil([&] {
    fetched = there.Fetch(tokens);  // Its connection comes back later.
    return fetched.fetched_tokens > 0;
  }));
  EXPECT_EQ(fetched.fetched_tokens, 20 * kBlockTokens);
}

}  // namespace
}  // namespace pagoda
