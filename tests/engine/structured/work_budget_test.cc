#include "engine/structured/work_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pagoda {
namespace {

class WorkBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WorkBudget::kIsEnforced) GTEST_SKIP() << "sanitizers have their own allocator";
  }
};

constexpr WorkBudget::Limits kMegabyte = {.processor_time = absl::Minutes(1), .bytes = 1 << 20};

TEST_F(WorkBudgetTest, BoundsTheMemoryThatIsHeld) {
  const WorkBudget budget(kMegabyte);
  for (int i = 0; i < 100; ++i) std::vector<char>(100'000, 'a').shrink_to_fit();
  std::vector<std::unique_ptr<std::string>> held;
  held.reserve(100);
  const auto hold = [&] {
    while (held.size() < 100) held.push_back(std::make_unique<std::string>(100'000, 'a'));
  };
  EXPECT_THROW(hold(), BudgetExceeded);
  EXPECT_GE(held.size(), 9u);
  EXPECT_LE(held.size(), 10u);
  EXPECT_THROW(hold(), BudgetExceeded);
  EXPECT_GT(budget.bytes(), 900'000);
  held.clear();
  held.shrink_to_fit();
  EXPECT_LT(budget.bytes(), 10'000);
}

TEST_F(WorkBudgetTest, BoundsTheProcessorTime) {
  int thrown = 0;
  {
    const WorkBudget budget({.processor_time = absl::Milliseconds(20), .bytes = 1 << 20});
    // The second time at once.
    for (int i = 0; i < 2; ++i) {
      try {
        while (true) std::vector<char>(10, 'a').shrink_to_fit();
      } catch (const BudgetExceeded&) {
        ++thrown;
      }
    }
  }
  EXPECT_EQ(thrown, 2);
}

TEST_F(WorkBudgetTest, DoesNotBoundOtherThreads) {
  std::string text;
  const auto grow = [&] { text = std::string(2 << 20, 'a'); };
  {
    const WorkBudget budget(kMegabyte);
    std::thread(grow).join();
    EXPECT_EQ(text.size(), size_t{2} << 20);
    EXPECT_FALSE(budget.exceeded());
    EXPECT_THROW(grow(), BudgetExceeded);
    EXPECT_TRUE(budget.exceeded());
  }
  grow();
}

// Otherwise code that catches the exception could go on with smaller pieces of wrong data.
TEST_F(WorkBudgetTest, ALimitThatWasReachedStaysReached) {
  int thrown = 0;
  {
    const WorkBudget budget(kMegabyte);
    for (const size_t size : {size_t{2} << 20, size_t{100}}) {
      try {
        std::vector<char>(size, 'a').shrink_to_fit();
      } catch (const BudgetExceeded&) {
        ++thrown;
      }
    }
  }
  EXPECT_EQ(thrown, 2);
}

}  // namespace
}  // namespace pagoda
