// Fetches that name their source: another store than the exchange's own.
#include "manager/exchange/fetch_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "manager/exchange/block_exchange.h"
#include "tests/manager/exchange/exchange_fixture.h"
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/manager/exchange/oracle_store.h"

namespace pagoda {
namespace {

std::shared_ptr<FetchSource> SourceOf(OracleStore& store) {
  return std::make_shared<FetchSource>(std::shared_ptr<Store>(std::shared_ptr<void>(), &store));
}

class FetchSourceTest : public ExchangeFixture {
 protected:
  // The peer has what the first machine has; the second machine's own store is empty.
  const std::shared_ptr<FetchSource> peer_ = SourceOf(store_);
  OracleStore own_;
};

TEST_F(FetchSourceTest, AFetchAsksItsSource) {
  const auto exchange = Exchange(there_, own_);
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kMissing, 0, 0);
  Waiting<FetchedPrefix> waiting;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, waiting.done(), peer_);
  ExpectFetch(waiting.Wait(), FetchOutcome::kFetched, 0, 10);
  EXPECT_EQ(own_.calls(Call::kExists), 1);
  EXPECT_EQ(own_.calls(Call::kGet), 0);
  // The own store is not faster for it.
  EXPECT_GT(peer_->bytes_per_second(), 0);
  EXPECT_EQ(exchange->stats().bytes_per_second, 0);
}

// A tenant names a source that answers what it likes: other tenants do not read it.
TEST_F(FetchSourceTest, ATenantsSourceIsForItselfUnlessItIsTrusted) {
  ExchangedCache shared({.tenants = {{.name = "alice", .shares = true}, {.name = "bob"}}});
  const auto exchange = Exchange(shared, own_);
  const auto fetch = [&](const std::string& tenant, const NamespaceKey& name_space,
                         const std::shared_ptr<FetchSource>& source) {
    Waiting<FetchedPrefix> waiting;
    exchange->Fetch({.name_space = name_space, .tenant = tenant, .tokens = tokens_}, kLong,
                    waiting.done(), source);
    return waiting.Wait().outcome;
  };
  EXPECT_EQ(fetch("alice", {}, peer_), FetchOutcome::kRefused);
  EXPECT_EQ(store_.calls(Call::kGet), 0);
  EXPECT_EQ(shared.Matched(tokens_), 0u);
  EXPECT_NE(fetch("bob", {.tenant = "bob"}, peer_), FetchOutcome::kRefused) << "its own namespace";
  EXPECT_NE(fetch("alice", {}, nullptr), FetchOutcome::kRefused) << "the operator's store";
  const auto trusted =
      std::make_shared<FetchSource>(std::shared_ptr<Store>(std::shared_ptr<void>(), &store_), true);
  EXPECT_EQ(fetch("alice", {}, trusted), FetchOutcome::kFetched);
  EXPECT_EQ(shared.Matched(tokens_), 10 * kBlockTokens);
}

TEST_F(FetchSourceTest, WithoutAStoreThereAreOnlySources) {
  absl::StatusOr<std::unique_ptr<BlockExchange>> exchange =
      BlockExchange::Create(&there_.manager(), &there_.pools(), nullptr, {.fetch_base = kLong});
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  ExpectFetch(Fetch(**exchange, tokens_), FetchOutcome::kNoSource, 0, 0);
  EXPECT_EQ(Publish(**exchange, tokens_).blocks, 0u);
  Waiting<FetchedPrefix> waiting;
  (*exchange)->Fetch({.name_space = {}, .tokens = tokens_}, kLong, waiting.done(), peer_);
  ExpectFetch(waiting.Wait(), FetchOutcome::kFetched, 0, 10);
  EXPECT_EQ((*exchange)->stats().waiting, 0u);
}

TEST_F(FetchSourceTest, AFetchDoesNotWaitForOneOfAnotherSource) {
  const auto exchange = Exchange(there_, own_);
  own_.Hold();
  Waiting<FetchedPrefix> first, same, other;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, first.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, same.done());
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, other.done(), peer_);
  EXPECT_EQ(other.Wait().outcome, FetchOutcome::kFetched);
  EXPECT_FALSE(first.has_ended());
  EXPECT_EQ(exchange->stats().joined_fetches, 1u);
  own_.Release();
  // The own store misses; the blocks are there all the same.
  EXPECT_EQ(first.Wait().outcome, FetchOutcome::kMissing);
  EXPECT_EQ(same.Wait().outcome, FetchOutcome::kMissing);
  EXPECT_EQ(own_.calls(Call::kExists), 1);
  EXPECT_TRUE(there_.NothingHeld());
}

TEST_F(FetchSourceTest, InvalidValuesOfAnotherDaemonAreNotWithdrawn) {
  const auto exchange = Exchange(there_, own_);
  store_.SetJudge([](Call call, const StoreKey&) {
    return call == Call::kGet ? StoreOutcome::kInvalid : StoreOutcome::kOk;
  });
  const int puts = store_.calls(Call::kPut);
  Waiting<FetchedPrefix> waiting;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, waiting.done(), peer_);
  ExpectFetch(waiting.Wait(), FetchOutcome::kFailed, 0, 0);
  EXPECT_EQ(exchange->stats().invalid_blocks, 10u);
  EXPECT_EQ(store_.calls(Call::kPut), puts);
  EXPECT_EQ(own_.calls(Call::kPut), 0);
}

TEST(FetchSourceRateTest, ItRemembersHowFastFetchesWere) {
  OracleStore store;
  const std::shared_ptr<FetchSource> source = SourceOf(store);
  const absl::Time now = absl::UnixEpoch();
  const auto is_slower = [&](absl::Duration otherwise, absl::Time at) {
    return source->IsSlower(1000, otherwise, 500, absl::Seconds(10), at);
  };
  EXPECT_EQ(source->bytes_per_second(), 0);
  EXPECT_FALSE(is_slower(absl::Seconds(2), now));  // 500 bytes per second are assumed.
  EXPECT_TRUE(is_slower(absl::Milliseconds(1999), now));
  source->Note(4000, absl::Seconds(1));
  EXPECT_EQ(source->bytes_per_second(), 4000);
  EXPECT_FALSE(is_slower(absl::Milliseconds(250), now));
  source->Note(2000, absl::Seconds(1));
  EXPECT_EQ(source->bytes_per_second(), 3600);
  source->Note(0, absl::Seconds(5));
  EXPECT_EQ(source->bytes_per_second(), 2880);
  // It has counted as slow since `now`.
  EXPECT_TRUE(is_slower(absl::Milliseconds(1), now + absl::Seconds(9)));
  EXPECT_FALSE(is_slower(absl::Milliseconds(1), now + absl::Seconds(10)));
  EXPECT_TRUE(is_slower(absl::Milliseconds(1), now + absl::Seconds(19)));
}

}  // namespace
}  // namespace pagoda
