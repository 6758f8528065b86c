#include "server/store/publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "tests/manager/exchange/exchange_fixture.h"
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/manager/exchange/oracle_store.h"

namespace pagoda::server {
namespace {

constexpr absl::Duration kDelay = absl::Milliseconds(200);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(500);

uint64_t Dropped(const PublisherStats& stats, PublishDrop why) {
  return stats.dropped[static_cast<size_t>(why)];
}

// A cache, a store that the test commands, and a publisher whose clock the test moves.
class PublisherTest : public testing::Test {
 protected:
  ~PublisherTest() override {
    if (exchange_ != nullptr) {
      store_.Release();
      publisher_.reset();
      exchange_->Stop();
    }
  }
  void Make(ExchangedCache::Options cache, StorePublisher::Options options = {},
            BlockExchange::Options exchange = {}) {
    if (!cache.publish_min_uses.has_value()) cache.publish_min_uses = 0;
    cache_ = std::make_unique<ExchangedCache>(cache);
    exchange_ = Exchange(*cache_, store_, exchange);
    options.delay = kDelay;
    options.first_retry = kFirstRetry;
    options.clock = [this] { return absl::UnixEpoch() + absl::Milliseconds(now_ms_.load()); };
    auto publisher = StorePublisher::Create(&cache_->manager(), exchange_.get(), options);
    ASSERT_TRUE(publisher.ok()) << publisher.status();
    publisher_ = *std::move(publisher);
  }
  void Advance(absl::Duration time) { now_ms_ += absl::ToInt64Milliseconds(time); }
  // Lets the blocks that are listed gather, and begins to publish them.
  void Gather() {
    publisher_->Tick();
    Advance(kDelay);
    publisher_->Tick();
  }
  // Waits for what is in flight.
  PublisherStats Settle() {
    while (publisher_->stats().in_flight > 0) absl::SleepFor(absl::Milliseconds(1));
    return Checked();
  }
  // Until nothing waits: time passes as needed.
  PublisherStats RunToEnd() {
    for (int i = 0; i < 10'000; ++i) {
      publisher_->Tick();
      const PublisherStats stats = Settle();
      if (stats.waiting == 0 && stats.queued_blocks == 0) return stats;
      Advance(absl::Milliseconds(100));
    }
    ADD_FAILURE() << "it does not end";
    return {};
  }
  PublisherStats Checked() {
    const PublisherStats stats = publisher_->stats();
    EXPECT_EQ(stats.listed,
              stats.published +
                  std::accumulate(stats.dropped.begin(), stats.dropped.end(), uint64_t{0}) +
                  stats.waiting + stats.in_flight);
    return stats;
  }
  void FailPuts(std::function<bool(const StoreKey&)> fails = [](const StoreKey&) { return true; }) {
    store_.SetJudge([fails = std::move(fails)](Call call, const StoreKey& key) {
      return call == Call::kPut && fails(key) ? StoreOutcome::kUnreachable : StoreOutcome::kOk;
    });
  }
  static Tokens Blocks(uint32_t seed, uint32_t blocks) {
    return TokensOf(seed, blocks * kBlockTokens);
  }

  std::atomic<int64_t> now_ms_ = 0;
  OracleStore store_;
  std::unique_ptr<ExchangedCache> cache_;
  std::unique_ptr<BlockExchange> exchange_;
  std::unique_ptr<StorePublisher> publisher_;
};

TEST_F(PublisherTest, APromptThatGrowsIsPublishedOnce) {
  Make({});
  publisher_->Tick();
  cache_->Compute(Blocks(1, 2));
  publisher_->Tick();
  Advance(kDelay / 2);
  cache_->Compute(Blocks(1, 7));
  publisher_->Tick();
  EXPECT_EQ(publisher_->stats().listed, 0u) << "it gathers";
  EXPECT_EQ(publisher_->stats().queued_blocks, 7u);
  Advance(kDelay / 2);
  publisher_->Tick();
  const PublisherStats stats = Settle();
  EXPECT_EQ(stats.published, 1u);
  EXPECT_EQ(stats.listed, 1u);
  EXPECT_EQ(store_.calls(Call::kExists), 1);
  EXPECT_EQ(store_.size(), 7u);
  EXPECT_TRUE(cache_->NothingHeld());
  // The next one gathers again.
  cache_->Compute(Blocks(1, 9));
  publisher_->Tick();
  EXPECT_EQ(Settle().listed, 1u);
  Gather();
  EXPECT_EQ(Settle().published, 2u);
  EXPECT_EQ(store_.size(), 9u);
}

TEST_F(PublisherTest, OtherMachinesFindWhatWasPublished) {
  Make({});
  const NamespaceKey salted = {.cache_salt = "salt"};
  cache_->Compute(Blocks(1, 5), salted);
  Gather();
  Settle();
  ExchangedCache there;
  const auto exchange = Exchange(there, store_);
  Waiting<FetchedPrefix> fetched;
  exchange->Fetch({.name_space = salted, .tokens = Blocks(1, 5)}, kLong, fetched.done());
  EXPECT_EQ(fetched.Wait().fetched_tokens, 5 * kBlockTokens);
  EXPECT_EQ(there.Compute(Blocks(1, 5), salted), 4 * kBlockTokens) << "the engine checks the bytes";
}

TEST_F(PublisherTest, BlocksAreUsedBeforeTheyArePublished) {
  Make({.publish_min_uses = 2});
  for (int uses = 0; uses < 2; ++uses) {
    cache_->Compute(Blocks(1, 3));
    EXPECT_EQ(RunToEnd().listed, 0u);
  }
  cache_->Compute(TokensOf(1, 3 * kBlockTokens + 1));
  // The last block of a prompt that ends with it is not matched.
  EXPECT_EQ(RunToEnd().published, 1u);
  EXPECT_EQ(store_.size(), 2u);
  // The publish itself has matched the blocks, and lists nothing again.
  EXPECT_EQ(RunToEnd().listed, 1u);
}

TEST_F(PublisherTest, OnlyTheTenantsThatMay) {
  const std::vector<TenantOptions> tenants = {{.name = "red"}, {.name = "blue"}};
  for (const std::vector<std::string>& may :
       std::vector<std::vector<std::string>>{{"red"}, {""}, {"", "blue"}, {}}) {
    SCOPED_TRACE(testing::PrintToString(may));
    publisher_.reset();
    exchange_.reset();
    Make({.tenants = tenants}, {.tenants = may});
    const size_t before = store_.size();
    cache_->Compute(Blocks(11 + static_cast<uint32_t>(before), 3));
    cache_->Compute(Blocks(12 + static_cast<uint32_t>(before), 4), {.tenant = "red"});
    cache_->Compute(Blocks(13 + static_cast<uint32_t>(before), 5), {.tenant = "blue"});
    const PublisherStats stats = RunToEnd();
    const uint64_t expected = may.empty() ? 3 : may.size();
    EXPECT_EQ(stats.published, expected);
    EXPECT_EQ(Dropped(stats, PublishDrop::kTenant), 3 - expected);
    size_t blocks = may.empty() ? 12 : 0;
    for (const std::string& name : may) blocks += name.empty() ? 3 : name == "red" ? 4 : 5;
    EXPECT_EQ(store_.size(), before + blocks);
  }
}

TEST_F(PublisherTest, BadOptionsAreRefused) {
  Make({});
  const auto reason = [&](const StorePublisher::Options& options) {
    return ReasonOf(StorePublisher::Create(&cache_->manager(), exchange_.get(), options).status());
  };
  EXPECT_EQ(reason({.tenants = {"nobody"}}), Reason::kUnknownTenant);
  EXPECT_EQ(reason({.max_in_flight = 0}), Reason::kInvalidArgument);
  EXPECT_EQ(reason({.max_waiting = 0}), Reason::kInvalidArgument);
  EXPECT_EQ(reason({.first_retry = absl::ZeroDuration()}), Reason::kInvalidArgument);
  EXPECT_EQ(reason({.max_tries = 0}), Reason::kInvalidArgument);
}

// --- A store that fails ---

TEST_F(PublisherTest, AStoreThatIsAwayIsAskedLessAndLess) {
  Make({.blocks = 128});
  for (uint32_t seed = 1; seed <= 6; ++seed) cache_->Compute(Blocks(seed, 3));
  FailPuts();
  store_.Hold();
  Gather();
  EXPECT_EQ(publisher_->stats().in_flight, 6u);
  store_.Release();
  PublisherStats stats = Settle();
  EXPECT_EQ(stats.failed_tries, 6u);
  EXPECT_TRUE(stats.is_store_away);
  EXPECT_EQ(stats.waiting, 6u);
  const auto asked = [&] { return store_.calls(Call::kExists); };
  // From here on one at a time, after twice the time.
  int before = asked();
  for (absl::Duration wait = kFirstRetry; wait <= 4 * kFirstRetry; wait *= 2) {
    Advance(wait - absl::Milliseconds(1));
    for (int i = 0; i < 50; ++i) publisher_->Tick();
    Settle();
    EXPECT_EQ(asked(), before) << "nothing happens while it is away";
    Advance(absl::Milliseconds(1));
    for (int i = 0; i < 50; ++i) publisher_->Tick();
    Settle();
    EXPECT_EQ(asked(), ++before);
  }
  store_.SetJudge(nullptr);
  stats = RunToEnd();
  EXPECT_EQ(stats.published, 6u);
  EXPECT_FALSE(stats.is_store_away);
  EXPECT_EQ(store_.size(), 18u);
  EXPECT_TRUE(cache_->NothingHeld());
}

TEST_F(PublisherTest, APrefixIsDroppedAfterSoManyTries) {
  Make({}, {.max_tries = 3});
  cache_->Compute(Blocks(1, 3));
  FailPuts();
  const PublisherStats stats = RunToEnd();
  EXPECT_EQ(Dropped(stats, PublishDrop::kStore), 1u);
  EXPECT_EQ(store_.calls(Call::kPut), 3);
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(PublisherTest, ABlockThatTheStoreRefusesHoldsUpNoOther) {
  Make({});
  const auto bad = DigestOf(Blocks(1, 3), 1);
  FailPuts([bad](const StoreKey& key) { return key.digest == bad; });
  cache_->Compute(Blocks(1, 3));
  Gather();
  PublisherStats stats = Settle();
  EXPECT_FALSE(stats.is_store_away);
  EXPECT_EQ(stats.waiting, 1u);
  EXPECT_EQ(store_.size(), 2u);
  for (int i = 0; i < 20; ++i) publisher_->Tick();
  EXPECT_EQ(Settle().failed_tries, 1u) << "it is not tried again at once";
  cache_->Compute(Blocks(2, 4));
  Gather();
  stats = Settle();
  EXPECT_EQ(stats.published, 1u);
  EXPECT_EQ(store_.size(), 6u);
  store_.SetJudge(nullptr);
  EXPECT_EQ(RunToEnd().published, 2u);
  EXPECT_EQ(store_.size(), 7u);
}

// --- The budget ---

TEST_F(PublisherTest, WhatIsOverTheBudgetWaitsForIt) {
  Make({});
  const double block_bytes = [&] {
    uint64_t bytes = 0;
    for (const PoolLayout& pool : cache_->pools().layout().windows()[0].pools) {
      bytes += pool.slot_stride_bytes();
    }
    return static_cast<double>(bytes);
  }();
  publisher_.reset();
  exchange_.reset();
  BlockExchange::Options exchange;
  exchange.publish_bytes_per_second = 20 * block_bytes;  // 20 blocks at once.
  Make({.blocks = 128}, {}, exchange);
  cache_->Compute(Blocks(1, 30));
  Gather();
  PublisherStats stats = Settle();
  EXPECT_EQ(stats.short_tries, 1u);
  EXPECT_EQ(stats.waiting, 1u);
  EXPECT_GE(store_.size(), 20u);
  EXPECT_LT(store_.size(), 30u);
  for (int i = 0; i < 20; ++i) publisher_->Tick();
  EXPECT_EQ(Settle().short_tries, 1u) << "it is not tried again at once";
  // The exchange's budget follows the real clock.
  while (publisher_->stats().waiting + publisher_->stats().in_flight > 0) {
    absl::SleepFor(absl::Milliseconds(20));
    Advance(absl::Milliseconds(100));
    publisher_->Tick();
  }
  EXPECT_EQ(store_.size(), 30u);
  stats = Checked();
  EXPECT_EQ(Dropped(stats, PublishDrop::kBudget), 0u);
}

TEST_F(PublisherTest, WithoutBudgetAPrefixIsDroppedAtLast) {
  BlockExchange::Options exchange;
  exchange.publish_bytes_per_second = 1e-6;  // A block at the start, and none after it.
  Make({}, {.max_tries = 4}, exchange);
  cache_->Compute(Blocks(1, 3));
  const PublisherStats stats = RunToEnd();
  EXPECT_EQ(store_.size(), 1u);
  EXPECT_EQ(Dropped(stats, PublishDrop::kBudget), 1u);
  EXPECT_EQ(stats.short_tries, 5u) << "the first one wrote something, and does not count";
}

// --- Bounds ---

TEST_F(PublisherTest, OnlySoManyAreInFlight) {
  Make({.blocks = 256}, {.max_in_flight = 3, .max_waiting = 4});
  for (uint32_t seed = 1; seed <= 20; ++seed) cache_->Compute(Blocks(seed, 2));
  store_.Hold();
  Gather();
  for (int i = 0; i < 20; ++i) publisher_->Tick();
  while (store_.held() < 3) absl::SleepFor(absl::Milliseconds(1));
  PublisherStats stats = Checked();
  EXPECT_EQ(stats.in_flight, 3u);
  EXPECT_EQ(stats.waiting, 4u);
  EXPECT_EQ(stats.queued_blocks, 26u) << "the cache keeps the others";
  EXPECT_EQ(store_.held(), 3u);
  store_.Release();
  EXPECT_EQ(RunToEnd().published, 20u);
  EXPECT_EQ(store_.size(), 40u);
}

TEST_F(PublisherTest, TheBytesThatWaitAreBounded) {
  Make({.blocks = 256}, {.max_in_flight = 1, .max_waiting_bytes = 1});
  for (uint32_t seed = 1; seed <= 5; ++seed) cache_->Compute(Blocks(seed, 2));
  store_.Hold();
  Gather();
  for (int i = 0; i < 20; ++i) publisher_->Tick();
  EXPECT_EQ(Checked().waiting, 1u);
  store_.Release();
  EXPECT_EQ(RunToEnd().published, 5u);
}

TEST_F(PublisherTest, PublishesBeginWhileTheExchangeIsIdle) {
  Make({}, {.max_exchange_waiting = 1});
  store_.Hold();
  Waiting<FetchedPrefix> fetched;
  exchange_->Fetch({.name_space = {}, .tokens = Blocks(9, 2)}, kLong, fetched.done());
  cache_->Compute(Blocks(1, 3));
  Gather();
  EXPECT_EQ(Checked().waiting, 1u);
  store_.Release();
  fetched.Wait();
  while (exchange_->stats().waiting > 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(RunToEnd().published, 1u);
}

TEST_F(PublisherTest, WhatHasLeftIsDropped) {
  Make({}, {.max_in_flight = 1});
  for (uint32_t seed = 1; seed <= 3; ++seed) cache_->Compute(Blocks(seed, 2));
  store_.Hold();
  Gather();
  while (store_.held() == 0) absl::SleepFor(absl::Milliseconds(1));
  cache_->manager().ResetPrefixCache();
  store_.Release();
  const PublisherStats stats = RunToEnd();
  EXPECT_EQ(stats.published, 0u);
  EXPECT_GE(Dropped(stats, PublishDrop::kGone), 2u);
  EXPECT_EQ(store_.size(), 0u);
}

// --- The end ---

TEST_F(PublisherTest, StopWaitsForNothingInFlight) {
  Make({}, {.max_in_flight = 1});
  for (uint32_t seed = 1; seed <= 3; ++seed) cache_->Compute(Blocks(seed, 2));
  store_.Hold();
  Gather();
  while (store_.held() == 0) absl::SleepFor(absl::Milliseconds(1));
  publisher_->Stop();
  PublisherStats stats = Checked();
  EXPECT_EQ(Dropped(stats, PublishDrop::kStopped), 2u);
  EXPECT_EQ(stats.in_flight, 1u);
  cache_->Compute(Blocks(7, 2));
  Gather();
  EXPECT_EQ(Checked().listed, 3u) << "nothing begins any more";
  store_.Release();
  EXPECT_EQ(Settle().published, 1u);
  EXPECT_EQ(store_.size(), 2u);
}

TEST_F(PublisherTest, ItCanEndBeforeItsPublishes) {
  Make({});
  cache_->Compute(Blocks(1, 2));
  store_.Hold();
  Gather();
  while (store_.held() == 0) absl::SleepFor(absl::Milliseconds(1));
  publisher_.reset();
  store_.Release();
  exchange_->Stop();
  EXPECT_TRUE(cache_->NothingHeld());
}

TEST_F(PublisherTest, AnExchangeThatIsStoppedFirstIsHarmless) {
  Make({});
  for (uint32_t seed = 1; seed <= 3; ++seed) cache_->Compute(Blocks(seed, 2));
  exchange_->Stop();
  EXPECT_EQ(Dropped(RunToEnd(), PublishDrop::kGone), 3u);
}

// Ticks, engines, a store that comes and goes, and an end in the middle of it.
TEST_F(PublisherTest, AStorm) {
  Make({.blocks = 48, .lower_blocks = 24}, {.max_in_flight = 4, .max_waiting = 16});
  std::atomic<uint32_t> judged = 0;
  store_.SetJudge([&judged](Call, const StoreKey&) {
    return judged++ % 5 == 0 ? StoreOutcome::kTimedOut : StoreOutcome::kOk;
  });
  std::atomic<bool> ends = false;
  std::thread timer([&] {
    while (!ends) {
      Advance(absl::Milliseconds(20));
      publisher_->Tick();
      publisher_->stats();
    }
  });
  // Until something was published, too: the timer's thread can begin late.
  for (uint32_t i = 0; i < 300 || publisher_->stats().published == 0; ++i) {
    cache_->TryCompute(Blocks(i % 17, 1 + i % 9));
  }
  publisher_->Stop();
  ends = true;
  timer.join();
  const PublisherStats stats = Settle();
  EXPECT_GT(stats.published, 0u);
  EXPECT_EQ(stats.waiting, 0u);
  exchange_->Stop();
  EXPECT_TRUE(cache_->NothingHeld());
}

}  // namespace
}  // namespace pagoda::server
