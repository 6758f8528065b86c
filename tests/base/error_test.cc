#include "base/error.h"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

TEST(ErrorTest, CarriesReasonCodeAndMessage) {
  const absl::Status status = MakeError(Reason::kBlocksExhausted, "3 needed, 1 free");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), Reason::kBlocksExhausted);
  EXPECT_EQ(status.message(), "3 needed, 1 free");
}

TEST(ErrorTest, AStatusMadeElsewhereHasNoReason) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::NotFoundError("x")), Reason::kNone);
}

TEST(ErrorTest, NamesAreStableAndRoundTrip) {
  EXPECT_EQ(ReasonName(Reason::kBlocksExhausted), "BLOCKS_EXHAUSTED");
  for (int i = 1; i <= static_cast<int>(Reason::kInvalidCheckpoint); ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason) << i;
  }
  EXPECT_EQ(ReasonFromName("NO_SUCH_REASON"), Reason::kNone);
}

}  // namespace
}  // namespace pagoda
