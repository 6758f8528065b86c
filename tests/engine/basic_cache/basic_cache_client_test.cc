#include "engine/basic_cache/basic_cache_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tests/engine/schedule/arithmetic_model.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kTokensPerBlock = 8;
const std::vector<WindowSize> kFull = {kFullAttention};

TEST(BasicCacheTest, RefusesAsTheManagerDoes) {
  const auto spec = ArithmeticModel::Spec(kFull, kTokensPerBlock);
  EXPECT_FALSE(MakeBasicCacheClient({.spec = spec, .max_sequence_tokens = 8}).ok());
  for (const KvArrangement arrangement :
       {KvArrangement::kTensorPerSequence, KvArrangement::kTokenFlat}) {
    auto client = *MakeBasicCacheClient(
        {.spec = spec, .max_sequences = 1, .max_sequence_tokens = 9, .arrangement = arrangement});
    const auto reason = [&](Operation operation) {
      return ReasonOf(client->Execute({&operation, 1})->results.front().status());
    };
    const SequenceId one(1), two(2);
    EXPECT_EQ(reason(FreeSequence{one}), Reason::kUnknownSequence);
    EXPECT_EQ(reason(AddSequence{.sequence = one}), Reason::kInvalidCount);
    EXPECT_EQ(reason(AddSequence{.sequence = one, .tokens = {1, 2}, .reserved_tokens = 17}),
              Reason::kInvalidCount);
    EXPECT_EQ(reason(AddSequence{.sequence = one, .tokens = {1, 2}}), Reason::kNone);
    EXPECT_EQ(reason(AddSequence{.sequence = one, .tokens = {1}}), Reason::kSequenceExists);
    EXPECT_EQ(reason(AddSequence{.sequence = two, .tokens = {1}}), Reason::kBlocksExhausted);
    EXPECT_EQ(reason(ForkSequence{one, two}), Reason::kBlocksExhausted);
    EXPECT_EQ(reason(CommitTokens{.sequence = one, .tokens = {1}}), Reason::kReservationExceeded);
    EXPECT_EQ(reason(CommitTokens{.sequence = one, .computed_tokens = 3}),
              Reason::kComputedBeyondTokens);
    EXPECT_EQ(reason(CommitTokens{.sequence = one, .computed_tokens = 2}), Reason::kNone);
    EXPECT_EQ(reason(CommitTokens{.sequence = one, .computed_tokens = 1}),
              Reason::kComputedBackwards);
    EXPECT_EQ(reason(ReserveTokens{.sequence = one, .count = 15}), Reason::kInvalidCount);
    EXPECT_EQ(reason(TruncateSequence{.sequence = one, .token_count = 3}), Reason::kInvalidCount);
    Operation pin = PinPrefix{};
    EXPECT_EQ(client->Execute({&pin, 1})->results.front().status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

// The lowest free slots come first, whoever had them before.
TEST(BasicCacheTest, ATokenFlatCacheGivesSlotsAsSequencesGrow) {
  auto client = *MakeBasicCacheClient({.spec = ArithmeticModel::Spec(kFull, kTokensPerBlock),
                                       .max_sequences = 3,
                                       .max_sequence_tokens = 5 * kTokensPerBlock,
                                       .arrangement = KvArrangement::kTokenFlat});
  const auto run = [&](Operation operation) {
    return *client->Execute({&operation, 1})->results.front();
  };
  const auto slots = [&](SequenceId id) {
    const OperationResult described = run(DescribeSequence{id});
    std::vector<uint32_t> list;
    for (const auto& block : std::get<DescribedSequence>(described).tables.front().blocks) {
      list.push_back(block.slot.value());
    }
    return list;
  };
  const std::vector<TokenId> block(kTokensPerBlock, 7);
  const SequenceId a(1), b(2), c(3);
  run(AddSequence{.sequence = a, .tokens = block});
  run(AddSequence{.sequence = b, .tokens = block});
  run(AppendTokens{.sequence = a, .tokens = block});
  run(ReserveTokens{.sequence = b, .count = 2 * kTokensPerBlock});
  EXPECT_THAT(slots(a), ElementsAre(0, 2));
  EXPECT_THAT(slots(b), ElementsAre(1, 3, 4));
  run(TruncateSequence{.sequence = b, .token_count = 1});
  run(FreeSequence{a});
  run(ForkSequence{b, c});
  run(AppendTokens{.sequence = b, .tokens = block});
  run(AppendTokens{.sequence = c, .tokens = {1}});
  EXPECT_THAT(slots(b), ElementsAre(1, 2));
  EXPECT_THAT(slots(c), ElementsAre(0));
}

}  // namespace
}  // namespace pagoda
