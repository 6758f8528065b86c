#include "pools/types.h"

#include <gtest/gtest.h>

#include <optional>

namespace pagoda {
namespace {

TEST(MediumTest, EveryNameNamesItsMedium) {
  for (const Medium medium : kAllMedia) EXPECT_EQ(MediumFromName(MediumName(medium)), medium);
  EXPECT_EQ(MediumName(Medium::kGpu), "gpu");
  EXPECT_EQ(MediumName(Medium::kHost), "host");
  EXPECT_EQ(MediumName(Medium::kDisk), "disk");
}

TEST(MediumTest, OtherTextsNameNone) {
  for (const char* text : {"", "GPU", "gpu ", "auto", "unknown", "disks"}) {
    EXPECT_EQ(MediumFromName(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace pagoda
