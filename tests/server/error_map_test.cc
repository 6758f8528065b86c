#include "server/error_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "pools/error.h"

namespace pagoda::server {
namespace {

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  EXPECT_GE(status.details_size(), 1);
  EXPECT_TRUE(status.details(0).UnpackTo(&info));
  return info;
}

TEST(ErrorMapTest, EveryReasonHasItsCodeAndName) {
  for (int r = 1; r <= static_cast<int>(Reason::kInvalidCheckpoint); ++r) {
    const auto reason = static_cast<Reason>(r);
    const google::rpc::Status status = ToProtoStatus(MakeError(reason, "what went wrong"));
    EXPECT_EQ(status.code(), static_cast<int>(ReasonCode(reason)));
    EXPECT_EQ(status.message(), "what went wrong");
    EXPECT_EQ(InfoOf(status).reason(), ReasonName(reason));
    EXPECT_EQ(InfoOf(status).domain(), "pagoda");
  }
}

TEST(ErrorMapTest, OnlyExhaustionSaysWhenToRetry) {
  const google::rpc::Status exhausted = ToProtoStatus(MakeError(Reason::kBlocksExhausted, ""));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(exhausted.details_size(), 2);
  ASSERT_TRUE(exhausted.details(1).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().nanos(), 0);
  EXPECT_EQ(ToProtoStatus(MakeError(Reason::kUnknownSequence, "")).details_size(), 1);
}

TEST(ErrorMapTest, AnErrorMadeElsewhereHasItsCodeAsReason) {
  EXPECT_EQ(InfoOf(ToProtoStatus(absl::CancelledError("stop"))).reason(), "CANCELLED");
}

TEST(ErrorMapTest, AGrpcStatusCarriesTheSameDetailsAndMetadata) {
  const grpc::Status status =
      ToGrpcStatus(MakeError(Reason::kRevisionCompacted, "gone"), {{"oldest_revision", "17"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), "gone");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(InfoOf(details).metadata().at("oldest_revision"), "17");
}

TEST(ErrorMapTest, OkIsOkWithoutDetails) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus());
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.error_details(), "");
}

}  // namespace
}  // namespace pagoda::server
