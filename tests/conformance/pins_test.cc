// Prefixes that are kept by name: pins, their budget, their leases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;

class PinsTest : public ConformanceTest {
 protected:
  PinnedPrefix Pin(const Tokens& tokens, absl::Duration lease = absl::InfiniteDuration()) {
    const auto pinned = Run(PinPrefix{.tokens = tokens, .lease = lease});
    EXPECT_TRUE(pinned.ok()) << pinned.status();
    return pinned.ok() ? *pinned : PinnedPrefix{};
  }
  void Unpin(PinId pin) { EXPECT_TRUE(Run(UnpinPrefix{.pin = pin}).ok()); }
};

// Scenario 30. Peers pin a request's blocks; here a pin names a prefix that is cached.
TEST_F(PinsTest, APinOutlivesItsSequence) {
  Make(4, 4);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const PinnedPrefix pinned = Pin(Range(0, 7));
  EXPECT_EQ(pinned.pinned_tokens, 8u);
  EXPECT_EQ(pinned.blocks, 2u);
  EXPECT_EQ(Primary().pinned, 2u) << "pinned before active";
  Free(1);
  EXPECT_EQ(Available(), 2u);
  Unpin(pinned.pin);
  EXPECT_EQ(Available(), 4u);
  EXPECT_EQ(Primary().cached, 2u);
}

TEST_F(PinsTest, OfNothingThereIsNoPin) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  EXPECT_EQ(Pin(Range(100, 107)).pin, PinId{});
  EXPECT_EQ(core_->Stats().pins, 0u);
}

// Scenario 30, the regression: a block that nobody held was pinned and unpinned, and was free
// twice.
TEST_F(PinsTest, PinningWhatNobodyHoldsDoesNotMakeBlocks) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  const PinnedPrefix pinned = Pin(Range(0, 7));
  EXPECT_EQ(Available(), 2u);
  Unpin(pinned.pin);
  EXPECT_EQ(Available(), 4u);
  ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = pinned.pin});
  Add(2, Range(100, 115));  // All four.
  std::set<uint32_t> slots;
  for (const BlockHandle& block : Table(2)) slots.insert(block.slot.value());
  EXPECT_EQ(slots.size(), 4u);
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{3}, .tokens = {1}});
}

TEST_F(PinsTest, APinnedPrefixIsNotEvicted) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  Pin(Range(0, 7));
  for (uint64_t id = 2; id < 6; ++id) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Serve(id, Range(first, first + 7));
  }
  EXPECT_EQ(Match(Range(0, 8)), 8u);
  EXPECT_EQ(Add(6, Range(0, 8)), 8u) << "and it is everyone's to use";
  EXPECT_EQ(Primary().pinned, 2u);
}

TEST_F(PinsTest, AFullPoolOfPinsHasNoRoom) {
  Make(4, 2);
  Serve(1, Range(0, 7));
  const PinnedPrefix pinned = Pin(Range(0, 7));
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{2}, .tokens = {9}});
  Unpin(pinned.pin);
  EXPECT_EQ(Add(2, {9}), 0u);
}

TEST_F(PinsTest, APinIsNoEvent) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  TakeEvents();
  Unpin(Pin(Range(0, 7)).pin);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

TEST_F(PinsTest, PinsAreCounted) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  const PinnedPrefix longer = Pin(Range(0, 7)), shorter = Pin(Range(0, 3));
  EXPECT_EQ(shorter.blocks, 1u);
  EXPECT_EQ(Primary().pinned, 2u) << "a block that two pins hold counts once";
  Unpin(longer.pin);
  EXPECT_EQ(Primary().pinned, 1u);
  EXPECT_EQ(Primary().cached, 1u);
  Unpin(shorter.pin);
  EXPECT_EQ(Primary().pinned, 0u);
}

TEST_F(PinsTest, ATailIsPinnedToo) {
  Make(4, 4);
  Serve(1, Range(0, 5));
  const PinnedPrefix pinned = Pin(Range(0, 5));
  EXPECT_EQ(pinned.pinned_tokens, 6u);
  EXPECT_EQ(Primary().pinned, 2u);
  // Nobody may take it over now.
  EXPECT_EQ(Add(1, Range(0, 7)), 6u);
  EXPECT_TRUE(Cached(Range(0, 5)).has_value());
}

TEST_F(PinsTest, TheBudgetIsKept) {
  Make({.windows = {{.primary = 8, .secondary = 8}}, .pin_budget_permille = 250});  // 4 blocks.
  Serve(1, Range(0, 15));
  Serve(2, Range(100, 103));
  EXPECT_EQ(Pin(Range(0, 11)).blocks, 3u);
  EXPECT_EQ(Pin(Range(0, 15)).blocks, 4u) << "three of them are pinned already";
  ExpectRefused(Reason::kPinBudgetExceeded, PinPrefix{.tokens = Range(100, 103)});
  EXPECT_EQ(Pin(Range(0, 7)).blocks, 2u);
}

TEST_F(PinsTest, ALeaseEndsAPin) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  const PinnedPrefix pinned = Pin(Range(0, 7), absl::Seconds(10));
  Advance(absl::Seconds(10) - absl::Milliseconds(1));
  Maintain();
  EXPECT_EQ(Primary().pinned, 2u);
  Advance(absl::Milliseconds(1));
  Maintain();
  EXPECT_EQ(Primary().pinned, 0u);
  ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = pinned.pin});
}

TEST_F(PinsTest, PinsAreListed) {
  Make(4, 8);
  const NamespaceKey salted{.cache_salt = "s"};
  Serve(1, Range(0, 7));
  Add(2, Range(0, 3), salted);
  Compute(2, 4);
  Free(2);
  const PinId first = Pin(Range(0, 7)).pin;
  const auto second =
      Run(PinPrefix{.name_space = salted, .tokens = Range(0, 9), .lease = absl::Seconds(10)});
  const auto listed = Run(ListPins{});
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->pinned_blocks, 3u);
  EXPECT_EQ(listed->budget_blocks, 8u);
  ASSERT_EQ(listed->pins.size(), 2u);
  EXPECT_EQ(listed->pins[0].pin, first);
  EXPECT_EQ(listed->pins[0].client_name, "test");
  EXPECT_EQ(listed->pins[0].pinned_tokens, 8u);
  EXPECT_EQ(listed->pins[0].expires, absl::InfiniteFuture());
  EXPECT_EQ(listed->pins[1].pin, second->pin);
  EXPECT_EQ(listed->pins[1].name_space, salted);
  EXPECT_EQ(listed->pins[1].pinned_tokens, 4u) << "as far as it is cached";
  EXPECT_EQ(listed->pins[1].blocks, 1u);
  EXPECT_EQ(listed->pins[1].expires, now_ + absl::Seconds(10));
}

TEST_F(PinsTest, ASessionsEndDoesNotEndItsPins) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  const auto other = core_->OpenSession("other", absl::InfiniteDuration(), now_);
  const auto pinned = Run(other->ref.id, PinPrefix{.tokens = Range(0, 7)});
  ASSERT_TRUE(pinned.ok());
  ASSERT_TRUE(core_->CloseSession(other->ref, now_).ok());
  EXPECT_EQ(Primary().pinned, 2u);
  Unpin(pinned->pin);  // Any session may.
  EXPECT_EQ(Primary().pinned, 0u);
}

TEST_F(PinsTest, APinHoldsABlockInTheTierWhereItIs) {
  Make(4, 2, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 7)})->blocks, 2u);
  Pin(Range(0, 7));
  EXPECT_EQ(Secondary().pinned, 2u);
  EXPECT_EQ(Primary().pinned, 0u);
  for (uint64_t id = 2; id < 8; ++id) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Serve(id, Range(first, first + 7));
  }
  EXPECT_EQ(Secondary().pinned, 2u) << "others were displaced";
  EXPECT_EQ(Secondary().cached, 2u);
}

TEST_F(PinsTest, AMatchBringsUpWhatIsPinnedBelow) {
  Make(4, 3, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 7)})->blocks, 2u);
  const PinId pin = Pin(Range(0, 7)).pin;
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  EXPECT_EQ(Primary().pinned, 2u);
  EXPECT_EQ(Secondary().pinned, 0u);
  Free(2);
  Unpin(pin);
  EXPECT_EQ(Available(), 3u);
}

// An operator's word is stronger than a pin: the prefix is forgotten, the memory stays whoever's it
// was until the pin ends.
TEST_F(PinsTest, APinnedPrefixCanBeInvalidated) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  const PinnedPrefix pinned = Pin(Range(0, 7));
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = Range(0, 3)})->removed_blocks, 2u);
  EXPECT_EQ(CachedBlocks(), 0u);
  EXPECT_EQ(Primary().pinned, 2u);
  Unpin(pinned.pin);
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(PinsTest, PinsOfNothingAreRefused) {
  Make(4, 4);
  ExpectRefused(Reason::kInvalidCount, PinPrefix{});
  ExpectRefused(Reason::kInvalidArgument,
                PinPrefix{.tokens = Range(0, 7), .lease = absl::ZeroDuration()});
  ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = PinId{77}});
}

}  // namespace
}  // namespace pagoda
