// A decode step in one operation is the same as its appends one after another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/picture.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// --- By hand ---

class AppendStepTest : public ::testing::Test {
 protected:
  AppendStepTest() {
    for (const uint64_t id : {1, 2, 3}) {
      const TokenId first = static_cast<TokenId>(100 * id);
      EXPECT_TRUE(
          Execute(AddSequence{.sequence = SequenceId{id}, .tokens = {first, first + 1, first + 2}})
              .ok());
    }
  }

  absl::StatusOr<OperationResult> Execute(const Operation& operation) {
    return core_->Execute(session_, operation, now_);
  }
  AppendedStep Step(const AppendStep& step) {
    const auto result = Execute(step);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::get<AppendedStep>(*result) : AppendedStep{};
  }
  DescribedSequence Describe(uint64_t id) {
    return std::get<DescribedSequence>(*Execute(DescribeSequence{SequenceId{id}}));
  }

  const absl::Time now_ = absl::FromUnixSeconds(1);
  std::unique_ptr<BlockManager> core_ = MakeCore(8, 4);
  const SessionId session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
};

std::vector<SequenceId> Ids(std::initializer_list<uint64_t> ids) {
  std::vector<SequenceId> sequences;
  for (const uint64_t id : ids) sequences.emplace_back(id);
  return sequences;
}

TEST_F(AppendStepTest, TellsOnlyOfSequencesWithNewBlocks) {
  EXPECT_THAT(Step({.sequences = Ids({1, 2, 3}), .tokens = {7, 8, 9}}).grown, IsEmpty());
  // Sequence 2 has 4 tokens in its block of 4.
  const AppendedStep grown = Step({.sequences = Ids({1, 2, 3}),
                                   .token_counts = {0, 1, 0},
                                   .computed_tokens = {0, 4, 3},
                                   .tokens = {10}});
  EXPECT_THAT(grown.grown, ElementsAre(AppendedStep::Growth{1, 1, 1, Ticket{}}));
  EXPECT_THAT(grown.blocks, ElementsAre(Describe(2).tables[0].blocks[1]));
  EXPECT_THAT(grown.failed, IsEmpty());
  EXPECT_EQ(Describe(2).token_count, 5u);
  EXPECT_EQ(Describe(2).computed_tokens, 4u);
  EXPECT_EQ(Describe(3).computed_tokens, 3u);
  EXPECT_EQ(Describe(1).token_count, 4u);
}

TEST_F(AppendStepTest, EachSequenceSucceedsOrFailsByItself) {
  const AppendedStep step = Step({.sequences = Ids({1, 9, 2, 3}),
                                  .token_counts = {1, 1, 32, 2},
                                  .computed_tokens = {9, 0, 0, 5},
                                  .tokens = std::vector<TokenId>(36, 5)});
  ASSERT_THAT(step.failed, SizeIs(3));
  EXPECT_EQ(step.failed[0].index, 0u);
  EXPECT_EQ(ReasonOf(step.failed[0].status), Reason::kComputedBeyondTokens);
  EXPECT_EQ(step.failed[1].index, 1u);
  EXPECT_EQ(ReasonOf(step.failed[1].status), Reason::kUnknownSequence);
  EXPECT_EQ(step.failed[2].index, 2u);
  EXPECT_EQ(ReasonOf(step.failed[2].status), Reason::kInvalidCount);
  EXPECT_EQ(Describe(1).token_count, 3u);
  EXPECT_EQ(Describe(2).token_count, 3u);
  EXPECT_EQ(Describe(3).token_count, 5u);
  EXPECT_EQ(Describe(3).computed_tokens, 5u);
  // A monitor sees failures by their reason.
  uint64_t failed = 0;
  for (const auto& [key, count] : core_->Stats().operations.failed) failed += count;
  EXPECT_EQ(failed, 3u);
}

TEST_F(AppendStepTest, ASequenceMayBeNamedTwice) {
  EXPECT_THAT(Step({.sequences = Ids({1, 1}), .tokens = {7, 8}}).grown,
              ElementsAre(AppendedStep::Growth{1, 1, 1, Ticket{}}));
  EXPECT_EQ(Describe(1).token_count, 5u);
}

TEST_F(AppendStepTest, ArraysThatDoNotGoTogetherAreRefusedAndNothingChanges) {
  const std::vector<AppendStep> steps = {
      {.tokens = {}},
      {.sequences = Ids({1}), .tokens = {}},
      {.sequences = Ids({1}), .tokens = {1, 2}},
      {.sequences = Ids({1, 2}), .token_counts = {1}, .tokens = {1}},
      {.sequences = Ids({1, 2}), .token_counts = {1, 2}, .tokens = {1, 2}},
      // Their sum exceeds 32 bits.
      {.sequences = Ids({1, 2}), .token_counts = {0xFFFFFFFF, 3}, .tokens = {1, 2}},
      {.sequences = Ids({1}), .computed_tokens = {1, 2}, .tokens = {1}},
      {.sequences = Ids({1}), .known_losses = {1, 2}, .tokens = {1}},
      {.sequences = std::vector<SequenceId>(kMaxStepSequences + 1, SequenceId{1}),
       .tokens = std::vector<TokenId>(kMaxStepSequences + 1, 1)}};
  const std::string before = PictureOf(*core_);
  for (const AppendStep& step : steps) {
    EXPECT_EQ(ReasonOf(Execute(step).status()), Reason::kInvalidArgument);
  }
  EXPECT_EQ(PictureOf(*core_), before);
  EXPECT_EQ(Describe(1).token_count, 3u);
}

// --- Against a twin that appends one after another ---

class Twins {
 public:
  explicit Twins(uint32_t seed) : random_(seed) {
    const bool two_windows = OneIn(2);
    std::vector<LayerSpec> layers = {{.num_kv_heads = 1, .head_dim = 1}};
    if (two_windows) layers.push_back({.window = WindowSize{5}, .num_kv_heads = 1, .head_dim = 1});
    tokens_per_block_ = 1u << Below(3);
    const auto layout = CacheLayout::Create(
        {.name = "twin", .tokens_per_block = tokens_per_block_, .layers = std::move(layers)});
    const std::vector<uint32_t> blocks(two_windows ? 2 : 1, 12 + Below(40));
    const std::vector<uint32_t> below(blocks.size(), OneIn(2) ? 10 : 0);
    for (std::unique_ptr<BlockManager>* core : {&step_, &one_}) {
      *core = *BlockManager::Create(
          {.layout = *layout, .tiers = HostTiers(blocks, below), .epoch = Epoch{1}});
      session_ = (*core)->OpenSession("twin", absl::InfiniteDuration(), now_)->ref.id;
    }
  }

  void Run() {
    for (int i = 0; i < 300; ++i) {
      now_ += absl::Milliseconds(Below(20));
      switch (Below(6)) {
        case 0:
          Both(AddSequence{.sequence = SequenceId(Below(12)), .tokens = Tokens(1 + Below(12))});
          break;
        case 1:
          Both(FreeSequence{SequenceId(Below(12))});
          break;
        case 2:
          Both(ForkSequence{SequenceId(Below(12)), SequenceId(Below(12))});
          break;
        default:
          Step();
      }
      EndCopies(*step_);
      EndCopies(*one_);
      ASSERT_TRUE(SameEvents(step_->TakeEvents(), one_->TakeEvents())) << "operation " << i;
      ASSERT_EQ(PictureOf(*step_), PictureOf(*one_)) << "operation " << i;
    }
    step_->CheckInvariants();
  }
  uint64_t grown() const { return grown_; }
  uint64_t failed() const { return failed_; }
  uint64_t stayed() const { return stayed_; }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  std::vector<TokenId> Tokens(uint32_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = Below(3);
    return tokens;
  }

  void Both(const Operation& operation) {
    const auto of_step = step_->Execute(session_, operation, now_);
    const auto of_one = one_->Execute(session_, operation, now_);
    EXPECT_EQ(of_step.status(), of_one.status());
  }

  void Step() {
    AppendStep step;
    const uint32_t count = 1 + Below(24);
    const bool has_counts = OneIn(2);
    const bool has_computed = OneIn(2);
    for (uint32_t i = 0; i < count; ++i) {
      step.sequences.emplace_back(Below(14));
      const uint32_t tokens = has_counts ? Below(4) : 1;
      if (has_counts) step.token_counts.push_back(tokens);
      for (const TokenId token : Tokens(tokens)) step.tokens.push_back(token);
      if (has_computed) step.computed_tokens.push_back(Computed(step.sequences.back(), tokens));
    }
    if (OneIn(8)) step.known_losses.assign(count, Below(2));
    const auto done = step_->Execute(session_, step, now_);
    ASSERT_TRUE(done.ok()) << done.status();
    Compare(step, std::get<AppendedStep>(*done));
  }

  // Mostly valid values.
  uint32_t Computed(SequenceId sequence, uint32_t new_tokens) {
    const auto found = one_->sequences().FindSequence(session_, sequence);
    if (!found.ok() || OneIn(10)) return Below(9);
    const uint32_t least = (*found)->computed_tokens;
    return least + Below((*found)->token_count + new_tokens - least + 1);
  }

  void Compare(const AppendStep& step, const AppendedStep& done) {
    size_t tokens = 0;
    size_t growth = 0;
    size_t failure = 0;
    size_t blocks = 0;
    for (uint32_t i = 0; i < step.sequences.size(); ++i) {
      const uint32_t count = step.token_counts.empty() ? 1 : step.token_counts[i];
      const auto result = one_->Execute(
          session_,
          AppendTokens{
              .sequence = step.sequences[i],
              .tokens = {step.tokens.begin() + static_cast<std::ptrdiff_t>(tokens),
                         step.tokens.begin() + static_cast<std::ptrdiff_t>(tokens + count)},
              .computed_tokens = step.computed_tokens.empty() ? 0 : step.computed_tokens[i],
              .known_losses = step.known_losses.empty() ? 0 : step.known_losses[i]},
          now_);
      tokens += count;
      if (!result.ok()) {
        ASSERT_LT(failure, done.failed.size());
        EXPECT_EQ(done.failed[failure].index, i);
        EXPECT_EQ(done.failed[failure++].status, result.status());
        continue;
      }
      const auto& appended = std::get<AppendedTokens>(*result);
      const BlockTable& first = appended.added[0];
      if (first.blocks.empty()) {
        ++stayed_;
        continue;
      }
      ASSERT_LT(growth, done.grown.size());
      EXPECT_EQ(done.grown[growth++],
                (AppendedStep::Growth{i, first.first_block,
                                      static_cast<uint32_t>(first.blocks.size()), appended.ready}));
      for (const BlockTable& table : appended.added) {
        for (const BlockHandle& block : table.blocks) {
          ASSERT_LT(blocks, done.blocks.size());
          EXPECT_EQ(done.blocks[blocks++], block);
        }
      }
    }
    EXPECT_EQ(growth, done.grown.size());
    EXPECT_EQ(failure, done.failed.size());
    EXPECT_EQ(blocks, done.blocks.size());
    grown_ += growth;
    failed_ += failure;
  }

  static bool SameEvents(const EventBatch& a, const EventBatch& b) {
    bool same = a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i];
    return same;
  }
  void EndCopies(BlockManager& core) {
    for (const Order& order : core.TakeOrders()) {
      core.Complete(order.lane, order.ticket, absl::OkStatus(), now_);
    }
  }

  std::mt19937 random_;
  absl::Time now_ = absl::FromUnixSeconds(1);
  uint32_t tokens_per_block_ = 0;
  std::unique_ptr<BlockManager> step_;
  std::unique_ptr<BlockManager> one_;
  SessionId session_;
  uint64_t grown_ = 0, failed_ = 0, stayed_ = 0;
};

TEST(AppendStepTwinsTest, AStepIsItsAppends) {
  uint64_t grown = 0;
  uint64_t failed = 0;
  uint64_t stayed = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Twins twins(seed);
    twins.Run();
    if (::testing::Test::HasFailure()) return;
    grown += twins.grown();
    failed += twins.failed();
    stayed += twins.stayed();
  }
  EXPECT_GT(grown, 1000u);
  EXPECT_GT(failed, 1000u);
  EXPECT_GT(stayed, 1000u);
}

}  // namespace
}  // namespace pagoda
