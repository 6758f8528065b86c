// Two machines with a store between them that a test commands, and calls that wait for their end.
#ifndef PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGE_FIXTURE_H_
#define PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGE_FIXTURE_H_

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "manager/exchange/block_exchange.h"
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/manager/exchange/oracle_store.h"

namespace pagoda {

using Call = OracleStore::Call;

inline constexpr absl::Duration kLong = absl::Minutes(10);

inline std::unique_ptr<BlockExchange> Exchange(ExchangedCache& cache, Store& store,
                                               BlockExchange::Options options = {}) {
  if (options.fetch_base == BlockExchange::Options().fetch_base) options.fetch_base = kLong;
  absl::StatusOr<std::unique_ptr<BlockExchange>> exchange =
      BlockExchange::Create(&cache.manager(), &cache.pools(), &store, options);
  EXPECT_TRUE(exchange.ok()) << exchange.status();
  return *std::move(exchange);
}

// A call whose end a test waits for.
template <class Result>
class Waiting {
 public:
  auto done() {
    return [this](const Result& result) {
      result_ = result;
      end_.Notify();
    };
  }
  Result Wait() {
    end_.WaitForNotification();
    return result_;
  }
  bool has_ended() const { return end_.HasBeenNotified(); }

 private:
  absl::Notification end_;
  Result result_;
};

inline FetchedPrefix Fetch(BlockExchange& exchange, const Tokens& tokens,
                           absl::Duration most = kLong) {
  Waiting<FetchedPrefix> waiting;
  exchange.Fetch({.name_space = {}, .tokens = tokens}, most, waiting.done());
  return waiting.Wait();
}

inline PublishedPrefix Publish(BlockExchange& exchange, const Tokens& tokens) {
  Waiting<PublishedPrefix> waiting;
  exchange.Publish({.name_space = {}, .tokens = tokens}, waiting.done());
  return waiting.Wait();
}

inline std::array<std::byte, 32> DigestOf(const Tokens& tokens, uint32_t block) {
  return DigestsOf({.name_space = {}, .tokens = tokens}, TokensPerBlock(kBlockTokens), block + 1)
      .back()
      .bytes;
}

// Two machines with one store. The first has computed 10 blocks and published them.
class ExchangeFixture : public testing::Test {
 protected:
  ExchangeFixture() {
    here_.Compute(tokens_);
    const PublishedPrefix published = Publish(*publisher_, tokens_);
    EXPECT_EQ(published.blocks, 10u);
    EXPECT_EQ(published.written, 10u);
    EXPECT_TRUE(here_.NothingHeld());
  }

  void ExpectFetch(const FetchedPrefix& fetched, FetchOutcome outcome, uint32_t cached_blocks,
                   uint32_t fetched_blocks) {
    EXPECT_EQ(fetched.outcome, outcome) << FetchOutcomeName(fetched.outcome);
    EXPECT_EQ(fetched.cached_tokens, cached_blocks * kBlockTokens);
    EXPECT_EQ(fetched.fetched_tokens, fetched_blocks * kBlockTokens);
    EXPECT_TRUE(there_.NothingHeld());
  }

  const Tokens tokens_ = TokensOf(1, 10 * kBlockTokens + 3);
  OracleStore store_;
  ExchangedCache here_, there_{{.lower_blocks = 16, .name = "another name"}};
  std::unique_ptr<BlockExchange> publisher_ = Exchange(here_, store_);
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGE_FIXTURE_H_
