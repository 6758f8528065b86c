#include "events/event.h"

#include <gtest/gtest.h>

#include <set>

namespace pagoda {
namespace {

TEST(EventTest, EveryReasonHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(RemovalReason::kLost); ++i) {
    names.insert(RemovalReasonName(static_cast<RemovalReason>(i)));
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(RemovalReasonName(RemovalReason::kLost), "lost");
}

}  // namespace
}  // namespace pagoda
