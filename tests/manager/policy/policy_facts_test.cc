// What an eviction policy is told about blocks, from their publication to their eviction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/accounts/tenants.h"
#include "manager/block_manager.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/warm_restart.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kBlockTokens = 4;
constexpr TenantId kRed{1};

// The calls of all policies of a cache, in words, in order.
struct Heard {
  std::vector<std::string> calls;
  // By tier and block: its slot and its hash.
  std::map<std::pair<size_t, BlockId>, std::pair<SlotIndex, BlockHash>> blocks;
  bool keeps = false;  // What Keeps() answers.
};

// "lru", which records its calls.
class RecordingPolicy final : public EvictionPolicy {
 public:
  RecordingPolicy(size_t tier, TenantId tenant, std::unique_ptr<EvictionPolicy> lru, Heard* heard)
      : tier_(tier), tenant_(tenant), lru_(std::move(lru)), heard_(*heard) {}

  bool follows_contents() const override { return true; }
  void Inserted(const BlockFacts& block) override {
    Note("inserted", block);
    EXPECT_NE(block.hash, BlockHash{});
    const auto [place, is_new] =
        heard_.blocks.insert({{tier_, block.block}, {block.slot, block.hash}});
    EXPECT_TRUE(is_new) << "it left the tier before it came again";
    lru_->Inserted(block);
  }
  void Touched(const BlockFacts& block) override {
    Note("touched", block);
    CheckPlace(block);
    lru_->Touched(block);
  }
  void Removed(const BlockFacts& block) override {
    Note("removed", block);
    CheckPlace(block);
    heard_.blocks.erase({tier_, block.block});
    lru_->Removed(block);
  }
  void Released(const BlockFacts& block) override {
    Note("released", block);
    CheckPlace(block);
    lru_->Released(block);
  }
  void Unparked(const BlockFacts& block) override {
    Note("unparked", block);
    CheckPlace(block);
    lru_->Unparked(block);
  }
  void Withdrawn(const BlockFacts& block) override {
    Note("withdrawn", block);
    CheckPlace(block);
    lru_->Withdrawn(block);
  }
  SlotIndex Victim() const override { return lru_->Victim(); }
  bool Keeps(const BlockFacts& candidate, const BlockFacts& comes, Tier from) const override {
    CheckPlace(candidate);
    EXPECT_EQ(candidate.slot, Victim());
    const auto above = heard_.blocks.find({from.value(), comes.block});
    EXPECT_NE(above, heard_.blocks.end());
    EXPECT_LT(from.value(), tier_);
    return heard_.keeps;
  }

 private:
  void Note(const char* call, const BlockFacts& block) {
    EXPECT_EQ(block.tenant, tenant_);
    const char* const origin =
        block.content.origin() == ContentOrigin::kPrompt ? "prompt" : "reply";
    heard_.calls.push_back(absl::StrCat("t", absl::ToUnixSeconds(block.time), " tier ", tier_, ": ",
                                        call, " depth ", block.content.log2_depth(), " ", origin,
                                        " of ", block.content.log2_request_tokens(), " uses ",
                                        block.uses, " priority ", block.priority.value()));
  }
  // Checks that the block is in the slot where it was inserted, with the same content.
  void CheckPlace(const BlockFacts& block) const {
    const auto found = heard_.blocks.find({tier_, block.block});
    ASSERT_NE(found, heard_.blocks.end());
    EXPECT_EQ(found->second.first, block.slot);
    EXPECT_EQ(found->second.second, block.hash);
  }

  const size_t tier_;
  const TenantId tenant_;
  const std::unique_ptr<EvictionPolicy> lru_;
  Heard& heard_;
};

class PolicyFactsTest : public ::testing::Test {
 protected:
  // A window's tiers are made in their order.
  void Make(std::vector<uint32_t> tiers, std::vector<TenantOptions> tenants = {}) {
    ManagerOptions options{.layout = TinyLayout(kBlockTokens), .tiers = {}, .epoch = Epoch{1}};
    options.tiers = tiers.size() == 1 ? HostTiers({tiers[0]}) : HostTiers({tiers[0]}, {tiers[1]});
    options.tenants = std::move(tenants);
    options.make_policies = [this](const PolicyTiers& of_window, uint16_t num_tenants) {
      TierPolicies policies = *MakeEvictionPolicies("lru", of_window, num_tenants);
      for (size_t t = 0; t < kMaxTiers; ++t) {
        if (of_window[t].num_slots != 0) num_slots_.push_back(of_window[t].num_slots);
        for (uint16_t i = 0; i < policies[t].size(); ++i) {
          policies[t][i] =
              std::make_unique<RecordingPolicy>(t, TenantId{i}, std::move(policies[t][i]), &heard_);
        }
      }
      return policies;
    };
    core_ = *BlockManager::Create(std::move(options));
  }
  void Open(TenantId tenant = kDefaultTenant) {
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_, tenant)->ref.id;
  }
  static std::vector<TokenId> Tokens(uint32_t count, TokenId first = 100) {
    std::vector<TokenId> tokens(count);
    for (uint32_t i = 0; i < count; ++i) tokens[i] = first + i;
    return tokens;
  }
  // Each operation is a second after the one before.
  void Tick() { now_ += absl::Seconds(1); }
  void Add(uint64_t name, const std::vector<TokenId>& prompt) {
    Tick();
    const auto added = core_->sequences().AddSequence(session_, SequenceId{name},
                                                      PromptOf(name_space_, prompt), now_);
    EXPECT_TRUE(added.ok()) << added.status();
  }
  void Append(uint64_t name, const std::vector<TokenId>& tokens, uint32_t computed) {
    Tick();
    const auto grown =
        core_->sequences().AppendTokens(session_, SequenceId{name}, tokens, computed, now_);
    EXPECT_TRUE(grown.ok()) << grown.status();
  }
  void Free(uint64_t name) {
    Tick();
    EXPECT_TRUE(core_->sequences().FreeSequence(session_, SequenceId{name}, now_).ok());
  }
  // A prompt of 10 tokens, and a reply of 6: four blocks.
  void AddComputeAndFree() {
    Add(1, Tokens(10));
    Append(1, {}, 10);
    Append(1, Tokens(6, 110), 16);
    Free(1);
  }
  // The calls since the last check, after every invariant is checked.
  std::vector<std::string> TakeHeard() {
    core_->CheckInvariants();
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
    return std::exchange(heard_.calls, {});
  }

  Heard heard_;
  std::vector<uint32_t> num_slots_;  // By tier.
  absl::Time now_ = absl::UnixEpoch();
  NamespaceKey name_space_;
  SessionId session_;
  std::unique_ptr<BlockManager> core_;
};

TEST_F(PolicyFactsTest, APolicyIsMadeForTheSlotsOfItsTier) {
  Make({8, 5});
  EXPECT_THAT(num_slots_, ElementsAre(8, 6)) << "of the lower tier one is spare";
}

TEST_F(PolicyFactsTest, PublishedBlocksTellWhereTheyLieInWhichRequest) {
  Make({8});
  Open();
  AddComputeAndFree();
  // The third block has two tokens of the prompt and two of the reply. The request is longer when
  // it publishes its reply.
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t2 tier 0: inserted depth 0 prompt of 3 uses 0 priority 35",
                          "t2 tier 0: inserted depth 1 prompt of 3 uses 0 priority 35",
                          "t3 tier 0: inserted depth 1 reply of 4 uses 0 priority 35",
                          "t3 tier 0: inserted depth 2 reply of 4 uses 0 priority 35",
                          "t4 tier 0: released depth 2 reply of 4 uses 0 priority 35"));
}

TEST_F(PolicyFactsTest, MatchesCountUpToThree) {
  Make({8});
  Open();
  AddComputeAndFree();
  TakeHeard();
  const char* const uses[] = {"1", "2", "3", "3"};
  for (uint64_t i = 0; i < 4; ++i) {
    Add(2 + i, Tokens(5));
    EXPECT_THAT(TakeHeard(), ElementsAre(absl::StrCat("t", 5 + 2 * i,
                                                      " tier 0: touched depth 0 prompt of 3 uses ",
                                                      uses[i], " priority 35")));
    Free(2 + i);
    EXPECT_THAT(TakeHeard(), IsEmpty()) << "it has a child, and nothing was computed";
  }
}

TEST_F(PolicyFactsTest, APriorityIsHeardAsItWasAndAsItIs) {
  Make({8});
  Open();
  AddComputeAndFree();
  TakeHeard();
  Tick();
  const SequenceRetention high = {
      .ranges = {{.token_start = 0, .token_end = {}, .retention = {.priority = Priority{80}}}}};
  ASSERT_TRUE(core_->prefixes().SetRetention(PromptOf(name_space_, Tokens(16)), high, now_).ok());
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t5 tier 0: withdrawn depth 2 reply of 4 uses 0 priority 35",
                          "t5 tier 0: released depth 2 reply of 4 uses 0 priority 80"));
}

TEST_F(PolicyFactsTest, FactsGoDownAndComeUpWithTheBlock) {
  Make({8, 8});
  Open();
  AddComputeAndFree();
  TakeHeard();
  Add(2, Tokens(17));
  EXPECT_THAT(TakeHeard(), ElementsAre("t5 tier 0: withdrawn depth 2 reply of 4 uses 0 priority 35",
                                       "t5 tier 0: touched depth 0 prompt of 3 uses 1 priority 35",
                                       "t5 tier 0: touched depth 1 prompt of 3 uses 1 priority 35",
                                       "t5 tier 0: touched depth 1 reply of 4 uses 1 priority 35",
                                       "t5 tier 0: touched depth 2 reply of 4 uses 1 priority 35"));
  Free(2);
  TakeHeard();
  Tick();
  ASSERT_EQ(core_->prefixes().Offload(PromptOf(name_space_, Tokens(8)), now_)->blocks, 0u)
      << "its children are nearer";
  EXPECT_THAT(TakeHeard(), IsEmpty());
  Tick();
  ASSERT_EQ(core_->prefixes().Offload(PromptOf(name_space_, Tokens(16)), now_)->blocks, 4u);
  std::vector<std::string> down = TakeHeard();
  ASSERT_GE(down.size(), 5u);
  down.resize(5);
  EXPECT_THAT(down, ElementsAre("t8 tier 0: withdrawn depth 2 reply of 4 uses 1 priority 35",
                                "t8 tier 0: removed depth 2 reply of 4 uses 1 priority 35",
                                "t8 tier 1: inserted depth 2 reply of 4 uses 1 priority 35",
                                "t8 tier 1: released depth 2 reply of 4 uses 1 priority 35",
                                "t8 tier 0: unparked depth 1 reply of 4 uses 1 priority 35"));
  Add(3, Tokens(5));
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t9 tier 1: removed depth 0 prompt of 3 uses 1 priority 35",
                          "t9 tier 0: inserted depth 0 prompt of 3 uses 1 priority 35",
                          "t9 tier 0: touched depth 0 prompt of 3 uses 2 priority 35"));
}

TEST_F(PolicyFactsTest, APolicyCanKeepABlockInsteadOfOneFromAbove) {
  for (const bool keeps : {false, true}) {
    Make({4, 4});
    heard_ = {};
    Open();
    uint64_t name = 0;
    const auto serve = [&] {
      ++name;
      Add(name, Tokens(16, static_cast<TokenId>(1'000 * name)));
      Append(name, {}, 16);
      Free(name);
      TakeHeard();
    };
    const auto in_tier = [&](size_t tier) {
      return std::count_if(heard_.blocks.begin(), heard_.blocks.end(),
                           [tier](const auto& block) { return block.first.first == tier; });
    };
    serve();
    heard_.keeps = keeps;
    serve();
    EXPECT_EQ(in_tier(1), 4) << "the tier had space";
    const auto below = heard_.blocks;
    serve();
    EXPECT_EQ(in_tier(0), 4);
    EXPECT_EQ(in_tier(1), 4);
    const auto stayed = std::count_if(below.begin(), below.end(), [&](const auto& block) {
      const auto now = heard_.blocks.find(block.first);
      return block.first.first == 1 && now != heard_.blocks.end() && now->second == block.second;
    });
    EXPECT_EQ(stayed, keeps ? 4 : 0);
    // An operator's order is obeyed nevertheless.
    Tick();
    ASSERT_EQ(core_->prefixes().Offload(PromptOf(name_space_, Tokens(16, 3'000)), now_)->blocks,
              4u);
    EXPECT_EQ(in_tier(0), 0);
  }
}

TEST_F(PolicyFactsTest, ABlockIsHeardOfByItsOwnersPolicy) {
  Make({8}, {{.name = "red"}});
  Open(kRed);
  name_space_ = {.tenant = "red"};
  AddComputeAndFree();
  EXPECT_EQ(TakeHeard().size(), 5u) << "each with the tenant of the policy that heard of it";
}

TEST_F(PolicyFactsTest, ABlockThatIsTakenOverAndPublishedAgainBeginsAnew) {
  Make({4});
  Open();
  AddComputeAndFree();
  TakeHeard();
  Add(2, Tokens(16));  // Its last token has to be computed, in the block that has it.
  EXPECT_THAT(TakeHeard(), ElementsAre("t5 tier 0: withdrawn depth 2 reply of 4 uses 0 priority 35",
                                       "t5 tier 0: removed depth 2 reply of 4 uses 0 priority 35",
                                       "t5 tier 0: touched depth 0 prompt of 3 uses 1 priority 35",
                                       "t5 tier 0: touched depth 1 prompt of 3 uses 1 priority 35",
                                       "t5 tier 0: touched depth 1 reply of 4 uses 1 priority 35"));
  Free(2);
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t6 tier 0: inserted depth 2 prompt of 4 uses 0 priority 35",
                          "t6 tier 0: released depth 2 prompt of 4 uses 0 priority 35"));
  Add(3, Tokens(4, 500));
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t7 tier 0: withdrawn depth 2 prompt of 4 uses 0 priority 35",
                          "t7 tier 0: removed depth 2 prompt of 4 uses 0 priority 35",
                          "t7 tier 0: unparked depth 1 reply of 4 uses 1 priority 35"));
}

TEST_F(PolicyFactsTest, OfABlockOfAnEarlierRunTheDepthIsKnown) {
  Make({8, 8});
  const auto slot = [](Tier tier, uint32_t index) { return SlotRef{tier, SlotIndex{index}}; };
  Tick();
  const std::vector<RecoveredWindow> found = {
      {.window = kFullAttention,
       .blocks = {{.slot = slot(kPrimaryTier, 3), .tokens = Tokens(4)},
                  {.slot = slot(Tier(1), 5), .parent = 0, .tokens = Tokens(4, 104)}}}};
  ASSERT_TRUE(core_->restart().Restore(found, now_).ok());
  EXPECT_THAT(TakeHeard(),
              ElementsAre("t1 tier 0: inserted depth 0 prompt of 0 uses 0 priority 35",
                          "t1 tier 1: inserted depth 1 prompt of 0 uses 0 priority 35",
                          "t1 tier 1: released depth 1 prompt of 0 uses 0 priority 35",
                          "t1 tier 0: released depth 0 prompt of 0 uses 0 priority 35"));
}

}  // namespace
}  // namespace pagoda
