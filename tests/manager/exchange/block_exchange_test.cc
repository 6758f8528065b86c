#include "manager/exchange/block_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/manager/exchange/exchange_fixture.h"

namespace pagoda {
namespace {

using BlockExchangeTest = ExchangeFixture;

// --- Round trips ---

TEST_F(BlockExchangeTest, APrefixComputedHereIsServedThere) {
  const auto exchange = Exchange(there_, store_);
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 0, 10);
  EXPECT_EQ(there_.Compute(tokens_), 10 * kBlockTokens) << "the engine checks the bytes";
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kCached, 10, 0);
  EXPECT_EQ(exchange->stats().fetched_blocks, 10u);
  EXPECT_GT(exchange->stats().bytes_per_second, 0);
}

TEST_F(BlockExchangeTest, OnlyWhatIsMissingIsFetched) {
  const auto exchange = Exchange(there_, store_);
  there_.Compute(Tokens(tokens_.begin(), tokens_.begin() + 4 * kBlockTokens + 1));
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 4, 6);
  EXPECT_EQ(there_.Compute(tokens_), 10 * kBlockTokens);
}

TEST_F(BlockExchangeTest, APromptOfWholeBlocksIsFetchedWhole) {
  const auto exchange = Exchange(there_, store_);
  const Tokens whole(tokens_.begin(), tokens_.begin() + 10 * kBlockTokens);
  ExpectFetch(Fetch(*exchange, whole), FetchOutcome::kFetched, 0, 10);
  EXPECT_EQ(there_.Matched(whole), 10 * kBlockTokens);
  ExpectFetch(Fetch(*exchange, whole), FetchOutcome::kCached, 10, 0);
}

TEST_F(BlockExchangeTest, TheStoreCanHaveMoreOrLessThanThePrompt) {
  const auto exchange = Exchange(there_, store_);
  ExpectFetch(Fetch(*exchange, Tokens(tokens_.begin(), tokens_.begin() + 3 * kBlockTokens)),
              FetchOutcome::kFetched, 0, 3);
  ExpectFetch(Fetch(*exchange, TokensOf(1, 20 * kBlockTokens)), FetchOutcome::kFetched, 3, 7);
  ExpectFetch(Fetch(*exchange, TokensOf(1, 20 * kBlockTokens)), FetchOutcome::kMissing, 10, 0);
  ExpectFetch(Fetch(*exchange, TokensOf(2, 20 * kBlockTokens)), FetchOutcome::kMissing, 0, 0);
  ExpectFetch(Fetch(*exchange, {1, 2}), FetchOutcome::kCached, 0, 0);
}

TEST_F(BlockExchangeTest, NothingIsWrittenTwice) {
  const PublishedPrefix again = Publish(*publisher_, tokens_);
  EXPECT_EQ(again.blocks, 10u);
  EXPECT_EQ(again.written, 0u);
  const Tokens longer = TokensOf(1, 12 * kBlockTokens);
  here_.Compute(longer);
  EXPECT_EQ(Publish(*publisher_, longer).written, 2u);
  EXPECT_EQ(store_.size(), 12u);
  EXPECT_EQ(Publish(*publisher_, TokensOf(7, 40)).blocks, 0u) << "it is not cached";
}

TEST_F(BlockExchangeTest, AFullCacheStillPublishes) {
  here_.Take(54);
  EXPECT_EQ(Publish(*publisher_, tokens_).blocks, 10u);
  store_.Remove(DigestOf(tokens_, 5));
  EXPECT_EQ(Publish(*publisher_, tokens_).written, 1u) << "it takes no block of its own";
  here_.Drop();
  ExchangedCache small({.blocks = 10});
  small.Compute(Tokens(tokens_.begin(), tokens_.begin() + 40));
  store_.Remove(DigestOf(tokens_, 5));
  EXPECT_EQ(Publish(*Exchange(small, store_), tokens_).written, 1u) << "it is all of the cache";
}

TEST_F(BlockExchangeTest, NamespacesAndModelsShareNothing) {
  const auto exchange = Exchange(there_, store_);
  for (const NamespaceKey& other :
       {NamespaceKey{.cache_salt = "salt"}, NamespaceKey{.lora_id = 1}}) {
    Waiting<FetchedPrefix> waiting;
    exchange->Fetch({.name_space = other, .tokens = tokens_}, kLong, waiting.done());
    EXPECT_EQ(waiting.Wait().outcome, FetchOutcome::kMissing);
  }
  ExchangedCache other_model({.model = "org/other"});
  EXPECT_EQ(Fetch(*Exchange(other_model, store_), tokens_).outcome, FetchOutcome::kMissing);
}

TEST_F(BlockExchangeTest, ExtrasAndItemsAreContent) {
  StoredPrompt prompt = {.name_space = {}, .tokens = tokens_};
  prompt.extra_token_ids.assign(tokens_.size(), 0);
  prompt.extra_token_ids[5] = 9;
  prompt.multimodal_items = {{.digest = {1}, .token_start = 30, .token_count = 9}};
  const auto exchange = Exchange(there_, store_);
  Waiting<FetchedPrefix> waiting;
  exchange->Fetch(prompt, kLong, waiting.done());
  const FetchedPrefix fetched = waiting.Wait();
  EXPECT_EQ(fetched.fetched_tokens, kBlockTokens) << "only the first block has no extras";
  const StoredPrompt cut = FirstOf(prompt, TokensPerBlock(kBlockTokens), 32);
  EXPECT_EQ(cut.extra_token_ids.size(), 32u);
  EXPECT_EQ(cut.multimodal_items[0].token_count, 2u);
}

TEST_F(BlockExchangeTest, KeyedPrefixes) {
  const NamespaceKey keyed = {.keyed = true};
  std::vector<ClientKey> keys;
  for (const char* name : {"a", "b", "c"}) keys.push_back(*ClientKey::Make(name));
  const absl::StatusOr<std::unique_ptr<CacheClient>> client =
      OpenLocalCacheClient(&here_.manager(), "keyed");
  ASSERT_TRUE(RunOne<AddedSequence>(**client, AddSequence{.sequence = SequenceId(1),
                                                          .name_space = keyed,
                                                          .tokens = {},
                                                          .reserved_tokens = 0,
                                                          .extra_token_ids = {},
                                                          .multimodal_items = {},
                                                          .retention = {},
                                                          .keys = keys})
                  .ok());
  ASSERT_TRUE(
      RunOne<CommittedTokens>(
          **client, CommitTokens{.sequence = SequenceId(1), .tokens = {}, .computed_tokens = 12})
          .ok());
  ASSERT_TRUE(RunOne<FreedSequence>(**client, FreeSequence{.sequence = SequenceId(1)}).ok());
  Waiting<PublishedPrefix> published;
  publisher_->Publish({.name_space = keyed, .keys = keys}, published.done());
  EXPECT_EQ(published.Wait().written, 3u);
  const auto exchange = Exchange(there_, store_);
  Waiting<FetchedPrefix> fetched;
  exchange->Fetch({.name_space = keyed, .keys = keys}, kLong, fetched.done());
  ExpectFetch(fetched.Wait(), FetchOutcome::kFetched, 0, 3);
}

TEST_F(BlockExchangeTest, ATenantIsChargedAndBounded) {
  ExchangedCache cache({.tenants = {{.name = "red", .quota_blocks = {4, 4, 4, 4}}}});
  const NamespaceKey red = {.tenant = "red"};
  here_.Compute(tokens_, red);
  Waiting<PublishedPrefix> published;
  publisher_->Publish({.name_space = red, .tokens = tokens_}, published.done());
  EXPECT_EQ(published.Wait().written, 10u);
  const auto exchange = Exchange(cache, store_);
  Waiting<FetchedPrefix> too_much, fits;
  exchange->Fetch({.name_space = red, .tokens = tokens_}, kLong, too_much.done());
  EXPECT_EQ(too_much.Wait().outcome, FetchOutcome::kNoRoom);
  exchange->Fetch({.name_space = red, .tokens = Tokens(tokens_.begin(), tokens_.begin() + 16)},
                  kLong, fits.done());
  EXPECT_EQ(fits.Wait().fetched_tokens, 16u);
  EXPECT_TRUE(cache.NothingHeld());
}

// --- Failures ---

TEST_F(BlockExchangeTest, TheVerifiedBlocksBeforeABadOneAreKept) {
  const auto exchange = Exchange(there_, store_);
  const auto bad = DigestOf(tokens_, 6);
  for (const StoreOutcome outcome :
       {StoreOutcome::kInvalid, StoreOutcome::kTimedOut, StoreOutcome::kUnreachable,
        StoreOutcome::kRefused, StoreOutcome::kMissing}) {
    Publish(*publisher_, tokens_);  // The invalid one was withdrawn.
    there_.manager().ResetPrefixCache();
    store_.SetJudge([&](Call call, const StoreKey& key) {
      return call == Call::kGet && key.digest == bad ? outcome : StoreOutcome::kOk;
    });
    ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kPartly, 0, 6);
    EXPECT_EQ(there_.Matched(tokens_), 6 * kBlockTokens);
  }
  EXPECT_EQ(exchange->stats().invalid_blocks, 1u);
  store_.SetJudge(nullptr);
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 6, 4);
  EXPECT_EQ(there_.Compute(tokens_), 10 * kBlockTokens);
}

TEST_F(BlockExchangeTest, AStoreThatFailsIsAMiss) {
  const auto exchange = Exchange(there_, store_);
  for (const Call call : {Call::kExists, Call::kGet}) {
    store_.SetJudge([call](Call asked, const StoreKey&) {
      return asked == call ? StoreOutcome::kUnreachable : StoreOutcome::kOk;
    });
    ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFailed, 0, 0);
  }
  EXPECT_EQ(there_.Matched(tokens_), 0u);
  store_.SetJudge([](Call, const StoreKey&) { return StoreOutcome::kRefused; });
  const PublishedPrefix published = Publish(*publisher_, tokens_);
  EXPECT_EQ(published.failed, 10u);
  EXPECT_TRUE(here_.NothingHeld());
}

TEST_F(BlockExchangeTest, TheDeadlineIsTheShorterOne) {
  BlockExchange::Options options;
  options.fetch_base = absl::Seconds(3);
  options.fetch_per_1k_tokens = absl::Seconds(25);  // 40 tokens: 1 s.
  const auto exchange = Exchange(there_, store_, options);
  Fetch(*exchange, tokens_);
  EXPECT_GT(store_.last_timeout(), absl::Seconds(3));
  EXPECT_LE(store_.last_timeout(), absl::Seconds(4));
  there_.manager().ResetPrefixCache();
  Fetch(*exchange, tokens_, absl::Seconds(2));
  EXPECT_LE(store_.last_timeout(), absl::Seconds(2));
}

TEST_F(BlockExchangeTest, AFetchThatIsPredictedSlowerIsNotBegun) {
  BlockExchange::Options options;
  options.assumed_bytes_per_second = 1e6;
  options.recompute_tokens_per_second = 1e6;
  const auto exchange = Exchange(there_, store_, options);
  const int gets = store_.calls(Call::kGet);
  // A block has 4 tokens and some hundred bytes.
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kSlower, 0, 0);
  EXPECT_EQ(store_.calls(Call::kGet), gets);
  options.recompute_tokens_per_second = 1;
  ExpectFetch(Fetch(*Exchange(there_, store_, options), tokens_), FetchOutcome::kFetched, 0, 10);
}

TEST_F(BlockExchangeTest, AMeasuredRateReplacesTheAssumedOne) {
  BlockExchange::Options options;
  options.assumed_bytes_per_second = 1e15;
  options.recompute_tokens_per_second = 100;  // 40 tokens: 400 ms.
  const auto exchange = Exchange(there_, store_, options);
  store_.Hold();
  Waiting<FetchedPrefix> slow;
  exchange->Fetch({.name_space = {}, .tokens = tokens_}, kLong, slow.done());
  while (store_.held() == 0) absl::SleepFor(absl::Milliseconds(1));
  store_.AnswerHeld();  // Exists.
  while (store_.held() == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Seconds(1));
  store_.Release();
  EXPECT_EQ(slow.Wait().outcome, FetchOutcome::kFetched);
  there_.manager().ResetPrefixCache();
  EXPECT_EQ(Fetch(*exchange, tokens_).outcome, FetchOutcome::kSlower);
}

TEST_F(BlockExchangeTest, WithoutRoomNothingIsFetched) {
  const auto exchange = Exchange(there_, store_);
  there_.Take(60);
  const FetchedPrefix fetched = Fetch(*exchange, tokens_);
  EXPECT_EQ(fetched.outcome, FetchOutcome::kNoRoom);
  there_.Drop();
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 0, 10);
  // A prompt that is longer than the cache is fetched as far as it fits.
  ExchangedCache small({.blocks = 4});
  EXPECT_EQ(Fetch(*Exchange(small, store_), tokens_).fetched_tokens, 4 * kBlockTokens);
}

TEST_F(BlockExchangeTest, SlotsAreWrittenAfterTheirOldBlocksAreOffloaded) {
  ExchangedCache slow({.blocks = 12, .lower_blocks = 12, .copy_delay = absl::Milliseconds(20)});
  slow.Compute(TokensOf(8, 40));
  const auto exchange = Exchange(slow, store_);
  EXPECT_EQ(Fetch(*exchange, tokens_).fetched_tokens, 40u);
  EXPECT_EQ(slow.Matched(TokensOf(8, 40)), 40u) << "it was offloaded";
  EXPECT_EQ(slow.Compute(TokensOf(8, 40)), 36u) << "the engine checks the bytes";
}

TEST_F(BlockExchangeTest, AFetchEndsByItsDeadlineWhileCopiesRun) {
  ExchangedCache slow({.blocks = 12, .lower_blocks = 12, .copy_delay = absl::Seconds(1)});
  slow.Compute(TokensOf(8, 40));
  const int gets = store_.calls(Call::kGet);
  {
    const auto exchange = Exchange(slow, store_);
    const absl::Time begin = absl::Now();
    EXPECT_EQ(Fetch(*exchange, tokens_, absl::Milliseconds(100)).outcome, FetchOutcome::kFailed);
    EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  }  // The exchange ends before the copies.
  slow.WaitForCopies();
  EXPECT_TRUE(slow.NothingHeld());
  EXPECT_EQ(store_.calls(Call::kGet), gets);
}

TEST_F(BlockExchangeTest, ABlockWhoseCopyFailsIsNotPublished) {
  std::atomic<bool> copies_fail = false;
  ExchangedCache cache({.blocks = 12, .lower_blocks = 12, .copies_fail = &copies_fail});
  cache.Compute(TokensOf(8, 40));
  cache.Compute(TokensOf(9, 40));  // Some of the first prompt's blocks go to the second tier.
  cache.WaitForCopies();
  const size_t before = store_.size();
  copies_fail = true;
  const auto exchange = Exchange(cache, store_);
  const PublishedPrefix published = Publish(*exchange, TokensOf(8, 40));
  EXPECT_GT(published.failed, 0u);
  EXPECT_EQ(store_.size(), before + published.written);
  // What was published is right.
  copies_fail = false;
  ExchangedCache other({.blocks = 32});
  Fetch(*Exchange(other, store_), TokensOf(8, 40));
  other.Compute(TokensOf(8, 40));
}

TEST_F(BlockExchangeTest, AnInvalidValueIsWithdrawnAndPublishedAgain) {
  const auto exchange = Exchange(there_, store_);
  const auto bad = DigestOf(tokens_, 6);
  store_.SetJudge([&](Call call, const StoreKey& key) {
    return call == Call::kGet && key.digest == bad ? StoreOutcome::kInvalid : StoreOutcome::kOk;
  });
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kPartly, 0, 6);
  store_.SetJudge(nullptr);
  EXPECT_EQ(store_.size(), 9u);
  EXPECT_EQ(Publish(*publisher_, tokens_).written, 1u);
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 6, 4);
}

TEST_F(BlockExchangeTest, BadPromptsAreRefused) {
  const auto exchange = Exchange(there_, store_);
  const auto outcome = [&](const StoredPrompt& prompt) {
    Waiting<FetchedPrefix> fetched;
    Waiting<PublishedPrefix> published;
    exchange->Fetch(prompt, kLong, fetched.done());
    exchange->Publish(prompt, published.done());
    published.Wait();
    return fetched.Wait().outcome;
  };
  EXPECT_EQ(outcome({.name_space = {}}), FetchOutcome::kRefused);
  EXPECT_EQ(outcome({.name_space = {}, .tokens = tokens_, .extra_token_ids = {1, 2, 3}}),
            FetchOutcome::kRefused);
  EXPECT_EQ(outcome({.name_space = {.keyed = true}, .tokens = tokens_}), FetchOutcome::kRefused);
  EXPECT_EQ(outcome({.name_space = {}, .keys = {*ClientKey::Make("a")}}), FetchOutcome::kRefused);
  EXPECT_EQ(outcome({.name_space = {},
                     .tokens = tokens_,
                     .multimodal_items = {{.digest = {1}, .token_start = 40, .token_count = 9}}}),
            FetchOutcome::kRefused);
  // An item may end behind the whole blocks.
  EXPECT_EQ(outcome({.name_space = {},
                     .tokens = tokens_,
                     .multimodal_items = {{.digest = {1}, .token_start = 2, .token_count = 41}}}),
            FetchOutcome::kMissing);
}

TEST_F(BlockExchangeTest, AStoreThatIsFastAgainIsFoundOut) {
  BlockExchange::Options options;
  options.assumed_bytes_per_second = 1;
  options.recompute_tokens_per_second = 100;
  options.probe_interval = absl::Seconds(1);
  const auto exchange = Exchange(there_, store_, options);
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kSlower, 0, 0);
  absl::SleepFor(absl::Milliseconds(1200));
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 0, 10);
  there_.manager().ResetPrefixCache();
  ExpectFetch(Fetch(*exchange, tokens_), FetchOutcome::kFetched, 0, 10);
}

}  // namespace
}  // namespace pagoda
