// Which blocks of a sliding window are evicted first: those that no likely prompt can use.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "manager/block_manager.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

constexpr WindowSize kWindow{16};
constexpr uint32_t kFullBlocks = 1000;  // Enough for everything.

// A cache with a window of 16 tokens and with full attention, of which the window is small.
class Cache {
 public:
  Cache(uint32_t block_tokens, uint32_t sliding_blocks, std::string_view policy)
      : core_(*BlockManager::Create(
            {.layout = *CacheLayout::Create(
                 {.name = "test",
                  .tokens_per_block = block_tokens,
                  .layers = {{.window = kWindow, .num_kv_heads = 1, .head_dim = 1},
                             {.window = kFullAttention, .num_kv_heads = 1, .head_dim = 1}}}),
             .tiers = HostTiers({sliding_blocks, kFullBlocks}),
             .eviction_policy = std::string(policy)})),
        session_(core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id) {}

  // Runs a request, which computes its prompt at once and then its reply. Returns the tokens that
  // matched.
  uint32_t Run(const Tokens& prompt, const Tokens& reply = {}) {
    const SequenceId id{++requests_};
    const auto added = core_->sequences().AddSequence(session_, id, PromptOf({}, prompt), now_);
    EXPECT_TRUE(added.ok()) << added.status();
    auto computed = static_cast<uint32_t>(prompt.size());
    EXPECT_TRUE(core_->sequences().CommitTokens(session_, id, {}, computed, now_).ok());
    for (const TokenId token : reply) {
      EXPECT_TRUE(core_->sequences().AppendTokens(session_, id, {&token, 1}, computed, now_).ok());
      EXPECT_TRUE(core_->sequences().CommitTokens(session_, id, {}, ++computed, now_).ok());
    }
    EXPECT_TRUE(core_->sequences().FreeSequence(session_, id, now_).ok());
    core_->TakeEvents();
    return added->matched_tokens;
  }
  uint32_t Matched(const Tokens& prompt) const {
    return core_->prefixes().Match(PromptOf({}, prompt));
  }

 private:
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  uint64_t requests_ = 0;
};

Tokens RandomTokens(std::mt19937_64& random, size_t count) {
  Tokens tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random());
  return tokens;
}

// The share of the tokens that match, of 160 requests with 30 prompts of 80 tokens. The popularity
// of the prompts is Zipf's. The mean of 20 runs.
double HitRate(uint32_t block_tokens, uint32_t sliding_blocks, std::string_view policy) {
  constexpr uint32_t kPrompts = 30, kRequests = 160, kRuns = 20, kTokens = 80;
  std::vector<double> popularity;
  for (uint32_t i = 1; i <= kPrompts; ++i) popularity.push_back(1.0 / i);
  uint64_t matched = 0;
  for (uint32_t run = 0; run < kRuns; ++run) {
    std::mt19937_64 random(run);
    std::discrete_distribution<size_t> pick(popularity.begin(), popularity.end());
    std::vector<Tokens> prompts;
    while (prompts.size() < kPrompts) prompts.push_back(RandomTokens(random, kTokens));
    Cache cache(block_tokens, sliding_blocks, policy);
    for (uint32_t i = 0; i < kRequests; ++i) matched += cache.Run(prompts[pick(random)]);
  }
  return static_cast<double>(matched) / (uint64_t{kRequests} * kRuns * kTokens);
}

class SlidingEvictionTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Policies, SlidingEvictionTest, ::testing::ValuesIn(EvictionPolicyNames()),
                         [](const auto& param) { return std::string(param.param); });

// A match of all tokens of a prompt but the last one needs 2 of its 5 blocks of 16 tokens: with 60
// slots there is room for all prompts. Of 20 blocks of 4 tokens it needs 5, and a running request
// takes 20: with 170 slots there is.
TEST_P(SlidingEvictionTest, TheMiddleOfPromptsTakesNoSlotsFromTheirEnds) {
  const double ample = HitRate(16, 1000, GetParam());
  EXPECT_GT(HitRate(16, 100, GetParam()), 0.99 * ample);
  EXPECT_GT(HitRate(16, 70, GetParam()), 0.99 * ample);
  EXPECT_GT(HitRate(16, 60, GetParam()), 0.98 * ample);
  EXPECT_GT(HitRate(4, 170, GetParam()), 0.98 * ample);
}

// Blocks of four tokens, and space for two requests of 80 tokens.
class SlidingEndsTest : public SlidingEvictionTest {
 protected:
  static constexpr uint32_t kSlots = 45;

  Tokens New(size_t count) { return RandomTokens(random_, count); }
  // Requests that need all slots.
  void RunOthers(int requests = 3) {
    for (int i = 0; i < requests; ++i) cache_.Run(New(80));
  }

  std::mt19937_64 random_{1};
  Cache cache_{4, kSlots, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Policies, SlidingEndsTest, ::testing::ValuesIn(EvictionPolicyNames()),
                         [](const auto& param) { return std::string(param.param); });

Tokens operator+(Tokens first, const Tokens& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

TEST_P(SlidingEndsTest, WherePromptsBranchTheWindowStays) {
  const Tokens shared = New(40);
  cache_.Run(shared + New(40));
  RunOthers();
  cache_.Run(shared + New(40));
  RunOthers();
  EXPECT_EQ(cache_.Matched(shared + New(8)), 40u);
  EXPECT_EQ(cache_.Matched(Tokens(shared.begin(), shared.begin() + 20) + New(8)), 0u)
      << "no prompt has branched there";
}

// A match of 42 tokens needs blocks 6 to 10, which only the end of the prompt protects. Four other
// requests evict at least 7 of the passed blocks. If one of those five were passed, it would be
// among them, whether the policy evicts the oldest or the newest passed block first.
TEST_P(SlidingEndsTest, TheEndOfAPromptStaysBehindItsReply) {
  const Tokens prompt = New(43);
  cache_.Run(prompt, New(37));
  RunOthers(4);
  EXPECT_EQ(cache_.Matched(prompt), 42u);
}

TEST_P(SlidingEndsTest, TheEndOfARequestStays) {
  const Tokens prompt = New(40), reply = New(40);
  cache_.Run(prompt, reply);
  RunOthers();
  EXPECT_EQ(cache_.Matched(prompt + reply + New(8)), 80u);
}

TEST_P(SlidingEndsTest, TheEndOfAPromptStaysWhereAnotherRequestWentOn) {
  const Tokens prompt = New(40);
  cache_.Run(prompt + New(40));
  cache_.Run(prompt);
  RunOthers();
  EXPECT_EQ(cache_.Matched(prompt + New(8)), 40u);
}

TEST_P(SlidingEndsTest, ABlockThatLeftHasNoMark) {
  for (int i = 0; i < 40; ++i) {  // Every block is once one of those before a branch.
    const Tokens shared = New(60);
    cache_.Run(shared + New(20));
    cache_.Run(shared + New(20));
  }
  const Tokens prompt = New(80);
  cache_.Run(prompt);
  RunOthers();
  EXPECT_EQ(cache_.Matched(prompt), 79u);
}

}  // namespace
}  // namespace pagoda
