#include "server/bridges/numbered_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace pagoda::server {
namespace {

using Ring = NumberedRing<std::string>;

void Push(Ring& ring, uint64_t number, size_t bytes = 1) {
  ring.Push(number, std::make_shared<const std::string>(absl::StrCat(number)), bytes);
}

TEST(NumberedRingTest, KnowsWhatIsGoneAndWhatNeverWas) {
  Ring ring({.max_items = 3}, 1000);
  EXPECT_EQ(ring.next(), 1000u);
  EXPECT_EQ(ring.oldest(), 1000u);
  EXPECT_EQ(*ring.At(1000), nullptr) << "the next one is not an error";
  EXPECT_EQ(ring.From(0).item, nullptr);
  for (uint64_t number = 1000; number < 1005; ++number) Push(ring, number);
  EXPECT_EQ(ring.next(), 1005u);
  EXPECT_EQ(ring.oldest(), 1002u);
  for (uint64_t number = 1002; number < 1005; ++number) {
    EXPECT_EQ(**ring.At(number), absl::StrCat(number));
  }
  EXPECT_EQ(*ring.At(1005), nullptr);
  for (const uint64_t gone : {1000, 1001}) {
    EXPECT_TRUE(absl::IsOutOfRange(ring.At(gone).status())) << gone;
  }
  for (const uint64_t never : {uint64_t{1}, uint64_t{999}, uint64_t{1006}, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsDataLoss(ring.At(never).status())) << never;
  }
}

TEST(NumberedRingTest, GivesTheFirstThatIsKept) {
  Ring ring({.max_items = 3}, 10);
  for (uint64_t number = 10; number < 15; ++number) Push(ring, number);
  for (const auto& [from, first] : {std::pair(0, 12), {11, 12}, {12, 12}, {13, 13}, {14, 14}}) {
    const Ring::Entry entry = ring.From(from);
    EXPECT_EQ(entry.number, static_cast<uint64_t>(first));
    EXPECT_EQ(*entry.item, absl::StrCat(first));
  }
  EXPECT_EQ(ring.From(15).item, nullptr);
  EXPECT_EQ(ring.From(~uint64_t{0}).item, nullptr);
}

TEST(NumberedRingTest, IsBoundedInBytesButKeepsTheLastItem) {
  Ring ring({.max_bytes = 100}, 1);
  for (uint64_t number = 1; number <= 5; ++number) Push(ring, number, 40);
  EXPECT_FALSE(ring.At(3).ok());
  EXPECT_TRUE(ring.At(4).ok());
  Push(ring, 6, 1000);
  EXPECT_FALSE(ring.At(5).ok());
  EXPECT_EQ(**ring.At(6), "6");
}

}  // namespace
}  // namespace pagoda::server
