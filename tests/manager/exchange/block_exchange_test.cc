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
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/manager/exchange/oracle_store.h"

namespace pagoda {
namespace {

using Call = OracleStore::Call;

constexpr absl::Duration kLong = absl::Minutes(10);

std::unique_ptr<BlockExchange> Exchange(ExchangedCache& cache, Store& store,
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

FetchedPrefix Fetch(BlockExchange& exchange, const Tokens& tokens, absl::Duration most = kLong) {
  Waiting<FetchedPrefix> waiting;
  exchange.Fetch({.name_space = {}, .tokens = tokens}, most, waiting.done());
  return waiting.Wait();
}

PublishedPrefix Publish(BlockExchange& exchange, const Tokens& tokens) {
  Waiting<PublishedPrefix> waiting;
  exchange.Publish({.name_space = {}, .tokens = tokens}, waiting.done());
  return waiting.Wait();
}

std::array<std::byte, 32> DigestOf(const Tokens& tokens, uint32_t block) {
  return DigestsOf({.name_space = {}, .tokens = tokens}, TokensPerBlock(kBlockTokens), block + 1)
      .back()
      .bytes;
}

// Two machines with one store. The first has computed 10 blocks and published them.
class BlockExchangeTest : public testing::Test {
 protected:
  BlockExchangeTest() {
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
  ExchangedCache here_, there_{{.secondary_blocks = 16, .name = "another name"}};
  std::unique_ptr<BlockExchange> publisher_ = Exchange(here_, store_);
};

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
  ExchangedCache small({.blocks = 4});
  EXPECT_EQ(Fetch(*Exchange(small, store_), tokens_).outcome, FetchOutcome::kNoRoom);
}

TEST_F(BlockExchangeTest, SlotsAreWrittenAfterTheirOldBlocksAreOffloaded) {
  ExchangedCache slow({.blocks = 12, .secondary_blocks = 12, .copy_delay = absl::Milliseconds(20)});
  slow.Compute(TokensOf(8, 40));
  const auto exchange = Exchange(slow, store_);
  EXPECT_EQ(Fetch(*exchange, tokens_).fetched_tokens, 40u);
  EXPECT_EQ(slow.Matched(TokensOf(8, 40)), 40u) << "it was offloaded";
  EXPECT_EQ(slow.Compute(TokensOf(8, 40)), 36u) << "the engine checks the bytes";
}

TEST_F(BlockExchangeTest, ABlockWhoseCopyFailsIsNotPublished) {
  std::atomic<bool> copies_fail = false;
  ExchangedCache cache({.blocks = 12, .secondary_blocks = 12, .copies_fail = &copies_fail});
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

// --- Many at once ---

TEST_F(BlockExchangeTest, AWaitingFetchDoesNotShareTheFirstOnesBounds) {
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
  // The first one is too long for the cache.
  ExchangedCache small({.blocks = 5});
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
}

TEST_F(BlockExchangeTest, OneFetchServesAllWhoWait) {
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

TEST_F(BlockExchangeTest, AWaitingFetchGetsWhatItWantsBeyondTheFirst) {
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

TEST_F(BlockExchangeTest, AWaitingFetchEndsByItsOwnDeadline) {
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

TEST_F(BlockExchangeTest, MoreThanTheBoundIsRefusedAtOnce) {
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

TEST_F(BlockExchangeTest, TheBudgetBoundsWhatIsPublished) {
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

TEST_F(BlockExchangeTest, StopEndsEverything) {
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
                                                .secondary_blocks = seed % 2 == 0 ? 8u : 0u,
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
