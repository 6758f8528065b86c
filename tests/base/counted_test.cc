#include "base/counted.h"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

TEST(CountedTest, OneIsSingular) {
  EXPECT_EQ(Counted(0, "session"), "0 sessions");
  EXPECT_EQ(Counted(1, "session"), "1 session");
  EXPECT_EQ(Counted(2000, "retention range"), "2000 retention ranges");
  EXPECT_EQ(Counted(2, "copy"), "2 copies");
  EXPECT_EQ(Counted(2, "batch"), "2 batches");
  EXPECT_EQ(Counted(2, "key"), "2 keys");
}

}  // namespace
}  // namespace pagoda
