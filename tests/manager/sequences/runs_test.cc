// Many blocks of one request at once: the core must do the same as for one block after another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

constexpr uint32_t kBlockTokens = 4;
constexpr int kSteps = 600;

// Which blocks the core handles in runs. Where every block is in the sample of the statistics,
// and where a sequence names a retention, even an empty one, it handles one block after another.
enum class Way { kRuns, kOneByOne };

struct Setting {
  std::string policy;
  bool sliding = false;
  uint32_t lower = 0;
  LifecycleEvents lifecycle = LifecycleEvents::kRaw;
  uint32_t tenants = 0;
  bool journal = false;
};

class World {
 public:
  World(const Setting& setting, Way way) : way_(way) {
    std::vector<LayerSpec> layers = {{.num_kv_heads = 1, .head_dim = 1}};
    std::vector<uint32_t> primary = {60};
    std::vector<uint32_t> lower = {setting.lower};
    if (setting.sliding) {
      layers.push_back({.window = WindowSize{10}, .num_kv_heads = 1, .head_dim = 1});
      primary.push_back(40);
      lower.push_back(setting.lower);
    }
    std::vector<TenantOptions> tenants(setting.tenants);
    for (TenantOptions& tenant : tenants) tenant.name = "tenant";
    core_ = *BlockManager::Create(
        {.layout = *CacheLayout::Create(
             {.name = "test", .tokens_per_block = kBlockTokens, .layers = layers}),
         .tiers = HostTiers(primary, setting.lower == 0 ? std::vector<uint32_t>() : lower),
         .eviction_policy = setting.policy,
         .lifecycle_events = setting.lifecycle,
         .epoch = Epoch{1},
         .tenants = std::move(tenants),
         .journal_slots = setting.journal,
         .reuse_sample = way == Way::kRuns ? 0u : 1u});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  }

  BlockManager& core() { return *core_; }
  SessionId session() const { return session_; }
  absl::Status Add(SequenceId id, const Tokens& prompt, const SequenceRetention* retention,
                   absl::Time now) {
    static const SequenceRetention kNone;
    if (retention == nullptr && way_ == Way::kOneByOne) retention = &kNone;
    return core_->sequences()
        .AddSequence(session_, id,
                     SequencePrompt{.name_space = {}, .tokens = prompt, .retention = retention},
                     now)
        .status();
  }

 private:
  const Way way_;
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
};

// The same random calls to two worlds.
class Twins {
 public:
  Twins(const Setting& setting, uint64_t seed)
      : random_(seed), runs_(setting, Way::kRuns), single_(setting, Way::kOneByOne) {}

  void Step() {
    now_ += absl::Milliseconds(1);
    const uint32_t dice = Pick(16);
    if (dice < 6 || running_.empty()) return Add();
    if (dice < 8) return Append();
    if (dice < 13) return Free();
    if (dice == 13) return Take();
    if (dice == 14) return Prioritize();
    return Rare();
  }

  void Compare() {
    runs_.core().CheckInvariants();
    const EventBatch a = runs_.core().TakeEvents(), b = single_.core().TakeEvents();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(a[i] == b[i]) << "revision " << a[i].revision.value();
    }
    events_ += a.size();
    for (const CacheInfo::Window& window : runs_.core().info().windows) {
      ASSERT_EQ(runs_.core().DumpTree(window.window), single_.core().DumpTree(window.window));
    }
    for (const auto& [id, length] : running_) {
      const auto one = runs_.core().sequences().FindSequence(runs_.session(), id);
      const auto two = single_.core().sequences().FindSequence(single_.session(), id);
      for (size_t w = 0; w < (*one)->windows.size(); ++w) {
        ASSERT_EQ((*one)->windows[w].table, (*two)->windows[w].table);
      }
    }
    CompareChanges();
    CompareCounters();
  }
  uint64_t events() const { return events_; }
  uint64_t evicted() { return runs_.core().Stats().windows[0].counters.evicted_blocks; }

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  template <class Call>
  bool Both(const Call& call) {
    const absl::Status one = call(runs_), two = call(single_);
    EXPECT_EQ(one, two);
    for (World* world : {&runs_, &single_}) {
      for (const Order& copy : world->core().TakeOrders()) {
        world->core().Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
      }
    }
    return one.ok();
  }

  // Prompts that share beginnings.
  Tokens Prompt() {
    Tokens prompt(1 + Pick(150));
    const uint32_t stem = Pick(5), stem_end = Pick(60);
    for (uint32_t i = 0; i < prompt.size(); ++i) prompt[i] = i < stem_end ? stem : Pick(3);
    return prompt;
  }
  void Add() {
    const SequenceId id{++last_};
    const Tokens prompt = Prompt();
    const SequenceRetention kept{
        .ranges = {{.retention = {.priority = Priority{50}, .duration = absl::Milliseconds(20)}}}};
    const SequenceRetention* const retention = Pick(8) == 0 ? &kept : nullptr;
    if (!Both([&](World& world) { return world.Add(id, prompt, retention, now_); })) return;
    running_[id] = static_cast<uint32_t>(prompt.size());
    const auto found = runs_.core().sequences().FindSequence(runs_.session(), id);
    const uint32_t least = (*found)->computed_tokens;
    const uint32_t computed = least + Pick(running_[id] - least + 1);
    Commit(id, {}, Pick(4) == 0 ? computed : running_[id]);
  }
  void Commit(SequenceId id, const Tokens& tokens, uint32_t computed) {
    Both([&](World& world) {
      return world.core()
          .sequences()
          .AppendTokens(world.session(), id, tokens, computed, now_)
          .status();
    });
  }
  std::map<SequenceId, uint32_t>::iterator Any() {
    return std::next(running_.begin(), Pick(static_cast<uint32_t>(running_.size())));
  }
  void Append() {
    const auto sequence = Any();
    const Tokens tokens(1 + Pick(20), Pick(3));
    const uint32_t computed = sequence->second + static_cast<uint32_t>(tokens.size());
    const bool grows = Both([&](World& world) {
      return world.core()
          .sequences()
          .AppendTokens(world.session(), sequence->first, tokens, computed, now_)
          .status();
    });
    if (grows) sequence->second = computed;
  }
  void Free() {
    const auto sequence = Any();
    Both([&](World& world) {
      return world.core().sequences().FreeSequence(world.session(), sequence->first, now_);
    });
    running_.erase(sequence);
  }
  void Take() {
    std::vector<BlockHandle> one(1 + Pick(20)), two(one.size());
    const bool taken = Both([&](World& world) {
      return world.core()
          .raw_blocks()
          .AllocateBlocks(world.session(), kFullAttention,
                          absl::MakeSpan(&world == &runs_ ? one : two), now_)
          .status();
    });
    if (!taken) return;
    ASSERT_EQ(one, two);
    std::vector<BlockRef> refs;
    for (const BlockHandle& handle : one) refs.push_back(handle.ref());
    Both([&](World& world) {
      return world.core().raw_blocks().FreeBlocks(world.session(), kFullAttention, refs, now_);
    });
  }
  void Prioritize() {
    const SequenceRetention retention{
        .ranges = {{.retention = {.priority = Priority{static_cast<uint8_t>(Pick(60))}}}}};
    const Tokens prompt = Prompt();
    Both([&](World& world) {
      return world.core().prefixes().SetRetention(PromptOf({}, prompt), retention, now_).status();
    });
  }
  void Rare() {
    const Tokens prompt = Prompt();
    if (Pick(2) == 0) {
      Both([&](World& world) {
        return world.core().prefixes().Invalidate(PromptOf({}, prompt), now_).status();
      });
    } else {
      Both([&](World& world) {
        return world.core()
            .prefixes()
            .Pin(world.session(), PromptOf({}, prompt), absl::Milliseconds(5), now_)
            .status();
      });
    }
  }

  // The journal of slots.
  void CompareChanges() {
    const auto one = runs_.core().TakeSlotChanges(), two = single_.core().TakeSlotChanges();
    ASSERT_EQ(one.size(), two.size());
    for (size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(one[i].slot, two[i].slot);
      ASSERT_EQ(one[i].content.has_value(), two[i].content.has_value());
      if (one[i].content.has_value()) {
        ASSERT_EQ(one[i].content->block, two[i].content->block);
        ASSERT_EQ(one[i].content->tokens, two[i].content->tokens);
      }
    }
  }
  void CompareCounters() {
    const WindowStats one = runs_.core().Stats().windows[0];
    const WindowStats two = single_.core().Stats().windows[0];
    ASSERT_EQ(one.tiers[0].cached, two.tiers[0].cached);
    ASSERT_EQ(one.tiers[0].free, two.tiers[0].free);
    ASSERT_EQ(one.cached_by_priority, two.cached_by_priority);
    ASSERT_EQ(one.counters.evicted_blocks, two.counters.evicted_blocks);
    ASSERT_EQ(one.counters.allocated_blocks, two.counters.allocated_blocks);
    ASSERT_EQ(one.counters.freed_blocks, two.counters.freed_blocks);
    ASSERT_EQ(one.tenants[0].removed_blocks, two.tenants[0].removed_blocks);
  }

  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  World runs_, single_;
  std::map<SequenceId, uint32_t> running_;  // And their tokens.
  uint64_t last_ = 0;
  uint64_t events_ = 0;
};

class RunsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void Check(Setting setting) {
    setting.policy = GetParam();
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Twins twins(setting, seed);
      for (int step = 0; step < kSteps; ++step) {
        twins.Step();
        twins.Compare();
        ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
      }
      EXPECT_GT(twins.events(), 300u);
      if (setting.lower == 0) {
        EXPECT_GT(twins.evicted(), 100u);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Policies, RunsTest, ::testing::Values("lru", "learned"),
                         [](const auto& param) { return param.param; });

TEST_P(RunsTest, ARunEqualsItsBlocksOneByOne) { Check({}); }
TEST_P(RunsTest, WithEventsOfEveryBlockAndAJournal) {
  Check({.lifecycle = LifecycleEvents::kAll, .journal = true});
}
TEST_P(RunsTest, WithASlidingWindow) { Check({.sliding = true}); }
TEST_P(RunsTest, WithATierBelow) { Check({.lower = 40, .journal = true}); }
TEST_P(RunsTest, WithATenant) { Check({.lifecycle = LifecycleEvents::kAll, .tenants = 1}); }

// The blocks of each Stored event of a prompt of 10,000 blocks, for both ways.
std::vector<std::vector<size_t>> SizesOfEvents(uint32_t block_tokens) {
  std::vector<std::vector<size_t>> sizes;
  for (const Way way : {Way::kRuns, Way::kOneByOne}) {
    auto core = *BlockManager::Create(
        {.layout = *CacheLayout::Create({.name = "test",
                                         .tokens_per_block = block_tokens,
                                         .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
         .tiers = HostTiers({20'000}),
         .epoch = Epoch{1}});
    const SessionId session =
        core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
    Tokens prompt(block_tokens * 10'000);
    for (uint32_t i = 0; i < prompt.size(); ++i) prompt[i] = i;
    const SequenceRetention none;
    const auto added = core->sequences().AddSequence(
        session, SequenceId{1},
        SequencePrompt{
            .name_space = {}, .tokens = prompt, .retention = way == Way::kRuns ? nullptr : &none},
        absl::UnixEpoch());
    EXPECT_TRUE(added.ok());
    core->TakeEvents();
    EXPECT_TRUE(core->sequences()
                    .CommitTokens(session, SequenceId{1}, {}, static_cast<uint32_t>(prompt.size()),
                                  absl::UnixEpoch())
                    .ok());
    sizes.emplace_back();
    size_t next = 0;
    for (const Event& event : core->TakeEvents()) {
      const auto& stored = std::get<StoredEvent>(event.what);
      sizes.back().push_back(stored.blocks.size());
      EXPECT_EQ(stored.tokens.size(), stored.blocks.size() * block_tokens);
      for (const TokenId token : stored.tokens) EXPECT_EQ(token, next++);
    }
  }
  return sizes;
}

// Events are bounded: a run that is longer than an event goes on in the next one.
TEST(LongRunTest, ARunOfManyBlocksIsSplitAmongEvents) {
  const std::vector<std::vector<size_t>> by_blocks = SizesOfEvents(4);
  EXPECT_THAT(by_blocks[0], ::testing::ElementsAre(kMaxStoredBlocks, kMaxStoredBlocks,
                                                   10'000 - 2 * kMaxStoredBlocks));
  EXPECT_EQ(by_blocks[0], by_blocks[1]);
  const std::vector<std::vector<size_t>> by_tokens = SizesOfEvents(64);
  EXPECT_THAT(by_tokens[0], ::testing::Each(::testing::Le(kMaxStoredTokens / 64)));
  EXPECT_EQ(by_tokens[0].front(), kMaxStoredTokens / 64);
  EXPECT_EQ(by_tokens[0], by_tokens[1]);
}

}  // namespace
}  // namespace pagoda
