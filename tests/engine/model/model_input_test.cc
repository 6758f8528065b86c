#include "engine/model/backend/model_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<SlotIndex> Slots(std::initializer_list<uint32_t> slots) {
  std::vector<SlotIndex> result;
  for (const uint32_t slot : slots) result.push_back(SlotIndex(slot));
  return result;
}

TEST(WindowsOfTest, AscendEachOnce) {
  ModelConfig config;
  for (const WindowSize window :
       {WindowSize(24), kFullAttention, WindowSize(8), WindowSize(24), kFullAttention}) {
    config.layers.push_back({.window = window});
  }
  EXPECT_THAT(WindowsOf(config), ElementsAre(WindowSize(8), WindowSize(24), kFullAttention));
}

// Only inputs with a sequence of the long range have ranges at all.
TEST(MakeInputTest, GivesEachTokenItsSequencesRotaryRange) {
  const WindowSize windows[] = {kFullAttention};
  const std::vector<TokenId> tokens = {1, 2, 3};
  const auto slots = Slots({0});
  const absl::Span<const SlotIndex> tables[] = {slots};
  const auto sequence = [&](size_t count, RotaryRange range) {
    return SequenceInput{.tokens = absl::MakeConstSpan(tokens).first(count),
                         .tables = tables,
                         .rotary_range = range};
  };
  constexpr RotaryRange kShort = RotaryRange::kShort, kLong = RotaryRange::kLong;
  ModelInput input;
  MakeInput({sequence(1, kShort), sequence(2, kLong), sequence(1, kShort), sequence(1, kLong),
             sequence(3, kShort)},
            windows, 4, input);
  EXPECT_THAT(input.rotary_ranges,
              ElementsAre(kShort, kLong, kLong, kShort, kLong, kShort, kShort, kShort));
  MakeInput({sequence(3, kLong)}, windows, 4, input);
  EXPECT_THAT(input.rotary_ranges, ElementsAre(kLong, kLong, kLong));
  MakeInput({sequence(2, kShort), sequence(1, kShort)}, windows, 4, input);
  EXPECT_THAT(input.rotary_ranges, IsEmpty());
}

TEST(MakeInputTest, PutsSequencesSideBySide) {
  const WindowSize windows[] = {WindowSize(8), kFullAttention};
  const std::vector<TokenId> prompt = {7, 8, 9, 10, 11, 12};
  const std::vector<TokenId> next = {5};
  const auto first_sliding = Slots({3, 1}), first_full = Slots({0, 4, 6});
  const auto second_full = Slots({2, 5, 8, 9});
  std::vector<SlotIndex> second_sliding = Slots({0, 0, 7, 2});
  second_sliding[0] = second_sliding[1] = kNoSlot;
  const absl::Span<const SlotIndex> first_tables[] = {first_sliding, first_full};
  const absl::Span<const SlotIndex> second_tables[] = {second_sliding, second_full};
  const SequenceInput sequences[] = {
      {.tokens = prompt, .first_position = 0, .tables = first_tables, .num_logits = 2},
      {.tokens = next, .first_position = 13, .tables = second_tables, .num_logits = 1}};
  ModelInput input;
  // Twice: the earlier content must be gone.
  for (int i = 0; i < 2; ++i) {
    MakeInput(sequences, windows, 4, input);
    EXPECT_THAT(input.tokens, ElementsAre(7, 8, 9, 10, 11, 12, 5));
    EXPECT_THAT(input.positions, ElementsAre(0, 1, 2, 3, 4, 5, 13));
    EXPECT_THAT(input.query_starts, ElementsAre(0, 6, 7));
    EXPECT_THAT(input.context_lengths, ElementsAre(6, 14));
    EXPECT_THAT(input.logit_rows, ElementsAre(4, 5, 6));
    ASSERT_EQ(input.windows.size(), 2u);
    EXPECT_EQ(input.windows[0].window, WindowSize(8));
    EXPECT_EQ(input.windows[0].block_table_stride, 4u);
    EXPECT_THAT(input.windows[0].block_tables, ElementsAre(3, 1, -1, -1, -1, -1, 7, 2));
    EXPECT_THAT(input.windows[0].token_slots, ElementsAre(12, 13, 14, 15, 4, 5, 2 * 4 + 1));
    EXPECT_EQ(input.windows[1].window, kFullAttention);
    EXPECT_THAT(input.windows[1].block_tables, ElementsAre(0, 4, 6, -1, 2, 5, 8, 9));
    EXPECT_THAT(input.windows[1].token_slots, ElementsAre(0, 1, 2, 3, 16, 17, 9 * 4 + 1));
  }
}

// One number per token. Its 64 bits are enough for a pool of more than 2^31 tokens.
TEST(MakeInputTest, TokenSlotsAreOneListOf64Bits) {
  static_assert(std::is_same_v<decltype(ModelInput::Window::token_slots), std::vector<int64_t>>);
  const WindowSize windows[] = {kFullAttention};
  const std::vector<TokenId> tokens = {1, 2, 3};
  const auto table = Slots({2'000'000'000, 7});
  const absl::Span<const SlotIndex> tables[] = {table};
  const SequenceInput sequence{.tokens = tokens, .first_position = 30, .tables = tables};
  ModelInput input;
  MakeInput({&sequence, 1}, windows, 32, input);
  EXPECT_THAT(input.windows[0].token_slots, ElementsAre(64'000'000'030, 64'000'000'031, 7 * 32));
}

TEST(MakeInputDeathTest, StopsWhereATokenHasNoSlot) {
  const WindowSize windows[] = {kFullAttention};
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<SlotIndex> short_table = Slots({1}), hole = {kNoSlot};
  ModelInput input;
  for (const auto& [table, first, what] :
       {std::tuple(&short_table, 3u, "covers the tokens"), std::tuple(&hole, 0u, "has a slot")}) {
    const absl::Span<const SlotIndex> tables[] = {*table};
    const SequenceInput sequence{.tokens = tokens, .first_position = first, .tables = tables};
    EXPECT_DEATH(MakeInput({&sequence, 1}, windows, 4, input), what);
  }
}

}  // namespace
}  // namespace pagoda
