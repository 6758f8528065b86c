// Prefixes that clients pin: pins, their budget, their leases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

#include "manager/sequences/session_endings.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PinsTest : public ConformanceTest {
 protected:
  PinnedPrefix Pin(const Tokens& tokens, absl::Duration lease = absl::InfiniteDuration()) {
    const auto pinned = Run(PinPrefix{.tokens = tokens, .lease = lease});
    EXPECT_TRUE(pinned.ok()) << pinned.status();
    return pinned.ok() ? *pinned : PinnedPrefix{};
  }
  void Unpin(PinId pin) { EXPECT_TRUE(Run(UnpinPrefix{.pin = pin}).ok()); }
  // The pins whose ends were reported since the events were last taken.
  std::vector<EndedPin> TakeEnds() {
    std::vector<EndedPin> ends;
    for (const UpdatedEvent& updated : OfType<UpdatedEvent>(TakeEvents())) {
      if (updated.ended_pin.has_value()) ends.push_back(*updated.ended_pin);
    }
    return ends;
  }
  // Checks that pin 1 ended because of a removal, and holds nothing any more.
  void ExpectCut(RemovalReason removal) {
    EXPECT_THAT(TakeEnds(), testing::ElementsAre(
                                EndedPin{PinId{1}, PinEnd::kPrefixLeft, std::optional(removal)}));
    EXPECT_EQ(core_->Stats().pins, 0u);
    for (const WindowStats& window : core_->Stats().windows) EXPECT_EQ(window.pinned_blocks, 0u);
    ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = PinId{1}});
  }
};

// Scenario 30. Peers pin a request's blocks; here a pin names a cached prefix.
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

// Scenario 30, the regression: a block that nothing held was pinned and unpinned, and was then free
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

TEST_F(PinsTest, AFullPoolOfPinsHasNoFreeBlock) {
  Make(4, 2);
  Serve(1, Range(0, 7));
  const PinnedPrefix pinned = Pin(Range(0, 7));
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{2}, .tokens = {9}});
  Unpin(pinned.pin);
  EXPECT_EQ(Add(2, {9}), 0u);
}

TEST_F(PinsTest, APinIsNoEventAndItsEndIsOne) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  TakeEvents();
  const PinId pin = Pin(Range(0, 7)).pin;
  EXPECT_THAT(TakeEvents(), IsEmpty());
  Unpin(pin);
  const auto ended = TakeOnly<UpdatedEvent>();
  EXPECT_EQ(ended.id, RequireCached(Range(0, 7)).id) << "the last block of the prefix";
  EXPECT_EQ(ended.hash, RequireCached(Range(0, 7)).hash);
  EXPECT_EQ(ended.ended_pin, (EndedPin{.pin = pin, .why = PinEnd::kUnpinned, .removal = {}}));
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
  // It must not be taken over now.
  EXPECT_EQ(Add(1, Range(0, 7)), 6u);
  EXPECT_TRUE(Cached(Range(0, 5)).has_value());
}

TEST_F(PinsTest, TheBudgetIsKept) {
  Make({.windows = {{.primary = 8, .lower = 8}}, .pin_budget_permille = 250});  // 4 blocks.
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
  TakeEvents();
  Maintain();
  EXPECT_EQ(Primary().pinned, 0u);
  EXPECT_EQ(TakeOnly<UpdatedEvent>().ended_pin,
            (EndedPin{.pin = pinned.pin, .why = PinEnd::kExpired, .removal = {}}));
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
  ASSERT_TRUE(core_->endings().CloseSession(other->ref, now_).ok());
  EXPECT_EQ(Primary().pinned, 2u);
  Unpin(pinned->pin);  // Any session may.
  EXPECT_EQ(Primary().pinned, 0u);
}

TEST_F(PinsTest, APinHoldsABlockInTheTierWhereItIs) {
  Make(4, 2, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 7)})->blocks, 2u);
  Pin(Range(0, 7));
  EXPECT_EQ(Lower().pinned, 2u);
  EXPECT_EQ(Primary().pinned, 0u);
  for (uint64_t id = 2; id < 8; ++id) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Serve(id, Range(first, first + 7));
  }
  EXPECT_EQ(Lower().pinned, 2u) << "others were displaced";
  EXPECT_EQ(Lower().cached, 2u);
}

TEST_F(PinsTest, AMatchBringsUpWhatIsPinnedBelow) {
  Make(4, 3, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 7)})->blocks, 2u);
  const PinId pin = Pin(Range(0, 7)).pin;
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  EXPECT_EQ(Primary().pinned, 2u);
  EXPECT_EQ(Lower().pinned, 0u);
  Free(2);
  Unpin(pin);
  EXPECT_EQ(Available(), 3u);
}

// An operator's reset overrides a pin: the prefix is forgotten, and the pin ends with it.
TEST_F(PinsTest, AnInvalidationEndsThePin) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  Pin(Range(0, 7));
  TakeEvents();
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = Range(0, 3)})->removed_blocks, 2u);
  EXPECT_EQ(CachedBlocks(), 0u);
  EXPECT_EQ(Primary().free, 8u);
  ExpectCut(RemovalReason::kInvalidated);
  EXPECT_EQ(Add(2, Range(100, 131)), 0u) << "all blocks are there for a prompt of 32 tokens";
}

TEST_F(PinsTest, AResetEndsThePin) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  Pin(Range(0, 7));
  TakeEvents();
  EXPECT_EQ(core_->ResetPrefixCache(now_), 2u);
  Maintain();
  EXPECT_EQ(Primary().free, 8u);
  ExpectCut(RemovalReason::kCleared);
  EXPECT_EQ(Add(2, Range(100, 131)), 0u) << "all blocks are there for a prompt of 32 tokens";
}

TEST_F(PinsTest, APinEndsBeforeItsBlocksLeave) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  Pin(Range(0, 7));
  TakeEvents();
  ASSERT_TRUE(Run(InvalidatePrefix{.tokens = Range(0, 3)}).ok());
  const std::vector<Event> events = TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_TRUE(std::get<UpdatedEvent>(events[0].what).ended_pin.has_value());
  EXPECT_THAT(std::get<RemovedEvent>(events[1].what).blocks, SizeIs(2));
}

// The pin would cover less than it promised.
TEST_F(PinsTest, APinEndsAsAWholeWherePartOfItsPrefixLeaves) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  Pin(Range(0, 7));
  const PinId shorter = Pin(Range(0, 3)).pin;
  TakeEvents();
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = Range(0, 7)})->removed_blocks, 1u);
  EXPECT_THAT(TakeEnds(), SizeIs(1)) << "the pin of what stays goes on";
  EXPECT_EQ(core_->Stats().pins, 1u);
  EXPECT_EQ(Primary().pinned, 1u);
  Unpin(shorter);
  EXPECT_EQ(Primary().cached, 1u);
  EXPECT_EQ(Primary().free, 7u);
}

TEST_F(PinsTest, ASequenceKeepsTheBlocksThatAPinLoses) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  Pin(Range(0, 7));
  TakeEvents();
  ASSERT_TRUE(Run(InvalidatePrefix{}).ok());
  ExpectCut(RemovalReason::kInvalidated);
  EXPECT_EQ(Primary().active, 2u);
  Free(1);
  EXPECT_EQ(Primary().free, 8u);
}

TEST_F(PinsTest, ALostCopyEndsThePin) {
  copies_ = Copies::kByHand;
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 7)})->blocks, 2u);
  ASSERT_EQ(Pin(Range(0, 7)).blocks, 2u);
  TakeEvents();
  Complete(pending().begin()->first, absl::DataLossError("planted"));  // The leaf's.
  ExpectCut(RemovalReason::kLost);
  CompleteAll();
  EXPECT_EQ(CachedBlocks(), 1u);
  EXPECT_EQ(Lower().cached, 1u) << "what is left of the prefix is evictable";
}

// Like WithoutPlaceForAHoleTheSubtreeGoes, with a pin in the subtree.
TEST_F(PinsTest, AHoleThatCannotBeEndsThePinsBelowIt) {
  const WindowSize window{8};
  Make({.windows = {{window, 8}}, .max_holes = 1});
  for (const uint64_t id : {1, 2}) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Add(id, Range(first, first + 11));
    Compute(id, 12);  // Releases the first of three blocks.
  }
  ASSERT_EQ(Pin(Range(100, 111)).blocks, 2u) << "those that its end needs";
  Free(1);
  Add(3, Range(0, 11));
  TakeEvents();
  Add(4, {7});
  ExpectCut(RemovalReason::kEvicted);
  EXPECT_EQ(CachedBlocks(window), 2u);
}

TEST_F(PinsTest, ManyPinsOfABlockEndWithIt) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  for (int i = 0; i < 100; ++i) Pin(Range(0, i % 2 == 0 ? 3 : 7));
  TakeEvents();
  core_->ResetPrefixCache(now_);
  Maintain();
  EXPECT_THAT(TakeEnds(), SizeIs(100));
  EXPECT_EQ(core_->Stats().pins, 0u);
  EXPECT_EQ(Primary().free, 8u);
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
