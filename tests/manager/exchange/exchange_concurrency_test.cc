// Many fetches and publishes at once: which fetch waits for another one, bounds, the end, and a
// storm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/manager/exchange/exchange_fixture.h"

namespace pagoda {
namespace {

using ExchangeConcurrencyTest = ExchangeFixture;

TEST_F(ExchangeConcurrencyTest, AWaitingFetchDoesNotShareTheFirstOnesBounds) {
  // The first one has no more time.
  const auto exchange = Exchange(there_, store_);
  store_.Hold();
  Waiting<FetchedPrefix> hasty, patient;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, absl::Milliseconds(50), hasty.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, patient.done());
  while (exchange->stats().joined_fetches < 1) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(60));
  std::atomic<bool> is_first = true;
  const auto first_block = DigestOf(tokens_, 0);
  store_.SetJudge([&](Call call, const StoreKey& key) {
    if (call != Call::kExists || key.digest != first_block) return StoreOutcome::kOk;
    return is_first.exchange(false) ? StoreOutcome::kTimedOut : StoreOutcome::kOk;
  });
  store_.Release();
  EXPECT_EQ(hasty.Wait().outcome, FetchOutcome::kFailed);
  EXPECT_EQ(patient.Wait().fetched_tokens, 40u);
  store_.SetJudge(nullptr);
  // The cache has no room for the first one.
  ExchangedCache small({.blocks = 16});
  small.Take(11);
  const auto short_exchange = Exchange(small, store_);
  store_.Hold();
  Waiting<FetchedPrefix> long_one, short_one;
  short_exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, long_one.done());
  short_exchange->Fetch({.name_space = {}, .tokens = Tokens(tokens_.begin(), tokens_.begin() + 12)},
                        kLong, short_one.done());
  while (short_exchange->stats().joined_fetches < 1) absl::SleepFor(absl::Milliseconds(1));
  store_.Release();
  EXPECT_EQ(long_one.Wait().outcome, FetchOutcome::kNoRoom);
  EXPECT_EQ(short_one.Wait().fetched_tokens, 12u);
  small.Drop();
}

TEST_F(ExchangeConcurrencyTest, OneFetchServesAllWhoWait) {
  const auto exchange = Exchange(there_, store_);
  const int asked = store_.calls(Call::kExists), got = store_.calls(Call::kGet);
  store_.Hold();
  std::vector<Waiting<FetchedPrefix>> waiting(8);
  for (auto& one : waiting)
    exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, one.done());
  while (exchange->stats().joined_fetches < 7) absl::SleepFor(absl::Milliseconds(1));
  store_.Release();
  EXPECT_EQ(waiting[0].Wait().outcome, FetchOutcome::kFetched);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(waiting[i].Wait().outcome, FetchOutcome::kCached);
  EXPECT_EQ(store_.calls(Call::kExists), asked + 1);
  EXPECT_EQ(store_.calls(Call::kGet), got + 1);
}

TEST_F(ExchangeConcurrencyTest, AWaitingFetchGetsWhatItWantsBeyondTheFirst) {
  const auto exchange = Exchange(there_, store_);
  store_.Hold();
  Waiting<FetchedPrefix> first, second;
  exchange->Fetch({.name_space = {}, .tokens = Tokens(tokens_.begin(), tokens_.begin() + 12)},
                  kLong, first.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, second.done());
  while (exchange->stats().joined_fetches < 1) absl::SleepFor(absl::Milliseconds(1));
  store_.Release();
  EXPECT_EQ(first.Wait().fetched_tokens, 12u);
  ExpectFetch(second.Wait(), FetchOutcome::kFetched, 3, 7);
}

TEST_F(ExchangeConcurrencyTest, AWaitingFetchEndsByItsOwnDeadline) {
  const auto exchange = Exchange(there_, store_);
  store_.Hold();
  Waiting<FetchedPrefix> first, second;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, first.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, absl::Milliseconds(100), second.done());
  EXPECT_EQ(second.Wait().outcome, FetchOutcome::kFailed);
  EXPECT_FALSE(first.has_ended());
  store_.Release();
  EXPECT_EQ(first.Wait().outcome, FetchOutcome::kFetched);
}

TEST_F(ExchangeConcurrencyTest, MoreThanTheBoundIsRefusedAtOnce) {
  BlockExchange::Options options;
  options.max_waiting = 2;
  const auto exchange = Exchange(there_, store_, options);
  store_.Hold();
  Waiting<FetchedPrefix> first, second;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, first.done());
  exchange->Fetch({.name_space = {}, .tokens = TokensOf(3, 40)}, kLong, second.done());
  EXPECT_EQ(Fetch(*exchange, tokens_).outcome, FetchOutcome::kRefused);
  EXPECT_EQ(exchange->stats().waiting, 2u);
  store_.Release();
  EXPECT_EQ(first.Wait().outcome, FetchOutcome::kFetched);
  EXPECT_EQ(second.Wait().outcome, FetchOutcome::kMissing);
}

TEST_F(ExchangeConcurrencyTest, PromptsAreBoundedByTheirBytesToo) {
  BlockExchange::Options options;
  options.max_waiting_bytes = 5000;
  const auto exchange = Exchange(there_, store_, options);
  EXPECT_EQ(Fetch(*exchange, TokensOf(3, 2000)).outcome, FetchOutcome::kRefused);
  store_.Hold();
  Waiting<FetchedPrefix> first;
  exchange->Fetch({.name_space = {}, .tokens = TokensOf(3, 800)}, kLong, first.done());
  EXPECT_EQ(Fetch(*exchange, TokensOf(4, 800)).outcome, FetchOutcome::kRefused);
  store_.Release();
  EXPECT_EQ(first.Wait().outcome, FetchOutcome::kMissing);
  EXPECT_EQ(Fetch(*exchange, TokensOf(4, 800)).outcome, FetchOutcome::kMissing) << "there is room";
}

TEST_F(ExchangeConcurrencyTest, TheBudgetBoundsWhatIsPublished) {
  ExchangedCache cache;
  cache.Compute(TokensOf(5, 40));
  BlockExchange::Options options;
  options.publish_bytes_per_second = 1;  // So a block a burst, and then none for minutes.
  const auto exchange = Exchange(cache, store_, options);
  const PublishedPrefix published = Publish(*exchange, TokensOf(5, 40));
  EXPECT_EQ(published.written, 1u);
  EXPECT_EQ(published.skipped, 9u);
  EXPECT_EQ(Publish(*exchange, TokensOf(5, 40)).written, 0u);
  EXPECT_EQ(exchange->stats().skipped_blocks, 18u);
}

TEST_F(ExchangeConcurrencyTest, StopEndsEverything) {
  const auto exchange = Exchange(there_, store_);
  store_.Hold();
  Waiting<FetchedPrefix> fetched, joined;
  Waiting<PublishedPrefix> published;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, fetched.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, joined.done());
  std::thread stopper([&] { exchange->Stop(); });
  absl::SleepFor(absl::Milliseconds(50));
  store_.Stop();
  stopper.join();
  EXPECT_TRUE(fetched.has_ended());
  EXPECT_EQ(fetched.Wait().outcome, FetchOutcome::kCancelled);
  EXPECT_TRUE(joined.has_ended());
  EXPECT_EQ(Fetch(*exchange, tokens_).outcome, FetchOutcome::kCancelled);
  EXPECT_EQ(Publish(*exchange, tokens_).blocks, 0u);
  exchange->Stop();
  EXPECT_TRUE(there_.NothingHeld());
}

TEST(BlockExchangeCreateTest, CachesThatCannotExchangeAreRefused) {
  OracleStore store;
  const auto code = [&](const ExchangedCache::Options& options) {
    ExchangedCache cache(options);
    return BlockExchange::Create(&cache.manager(), &cache.pools(), &store, {}).status().code();
  };
  EXPECT_EQ(code({.model = ""}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.windows = {kFullAttention, WindowSize(8)}}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({.windows = {WindowSize(8)}}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({}), absl::StatusCode::kOk);
}

// Caches that are far too small, engines, fetches and publishes at once, and a store that forgets
// and fails at random. The engines check every cached byte that they find.
TEST(BlockExchangeStormTest, NoEngineFindsWrongBytes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    OracleStore store;
    std::atomic<uint32_t> step = seed * 1000;
    store.SetJudge([&step](Call call, const StoreKey& key) {
      std::minstd_rand random(step++ ^ std::to_integer<uint32_t>(key.digest[0]));
      random.discard(3);
      const uint32_t roll = random() % 100;
      if (call == Call::kPut) return roll < 20 ? StoreOutcome::kRefused : StoreOutcome::kOk;
      constexpr StoreOutcome kBad[] = {StoreOutcome::kMissing, StoreOutcome::kInvalid,
                                       StoreOutcome::kTimedOut, StoreOutcome::kUnreachable};
      return roll < 15 ? kBad[roll % 4] : StoreOutcome::kOk;
    });
    ExchangedCache caches[2] = {ExchangedCache({.blocks = 24,
                                                .lower_blocks = seed % 2 == 0 ? 8u : 0u,
                                                .copy_delay = absl::Microseconds(seed % 4 * 200)}),
                                ExchangedCache({.blocks = 16})};
    std::unique_ptr<BlockExchange> exchanges[2];
    for (int i = 0; i < 2; ++i) exchanges[i] = Exchange(caches[i], store);
    std::atomic<int> ends = 0;
    int begun = 0;
    std::mt19937 random(seed);
    for (int round = 0; round < 120; ++round) {
      const uint32_t i = random() % 2;
      const Tokens tokens = TokensOf(random() % 4, 1 + random() % 40);
      switch (random() % 4) {
        case 0:
          ++begun;
          exchanges[i]->Fetch({.name_space = {}, .tokens = tokens}, kLong,
                              [&ends](const FetchedPrefix&) { ++ends; });
          break;
        case 1:
          ++begun;
          exchanges[i]->Publish({.name_space = {}, .tokens = tokens},
                                [&ends](const PublishedPrefix&) { ++ends; });
          break;
        case 2:
          Fetch(*exchanges[i], tokens);
          break;
        default:
          // A fetch can take the room between the question and the answer, so ask while there is
          // none.
          while (exchanges[i]->stats().waiting > 0) std::this_thread::yield();
          caches[i].TryCompute(tokens);
      }
    }
    for (int i = 0; i < 2; ++i) {
      while (exchanges[i]->stats().waiting > 0) std::this_thread::yield();
      caches[i].WaitForCopies();
      EXPECT_TRUE(caches[i].NothingHeld()) << seed;
      exchanges[i]->Stop();
    }
    EXPECT_EQ(ends, begun);
  }
}

}  // namespace
}  // namespace pagoda
