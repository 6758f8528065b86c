#include "wire/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "google/rpc/error_details.pb.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  EXPECT_GE(status.details_size(), 1);
  EXPECT_TRUE(status.details(0).UnpackTo(&info));
  return info;
}

TEST(ErrorsTest, EveryReasonHasItsCodeAndName) {
  for (int r = 1; r <= static_cast<int>(Reason::kWholeBlocksOnly); ++r) {
    const auto reason = static_cast<Reason>(r);
    const google::rpc::Status status = ToProtoStatus(MakeError(reason, "what went wrong"));
    EXPECT_EQ(status.code(), static_cast<int>(ReasonCode(reason)));
    EXPECT_EQ(status.message(), "what went wrong");
    EXPECT_EQ(InfoOf(status).reason(), ReasonName(reason));
    EXPECT_EQ(InfoOf(status).domain(), "pagoda");
  }
}

TEST(ErrorsTest, OnlyExhaustionSaysWhenToRetry) {
  const google::rpc::Status exhausted = ToProtoStatus(MakeError(Reason::kBlocksExhausted, ""));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(exhausted.details_size(), 2);
  ASSERT_TRUE(exhausted.details(1).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().nanos(), 0);
  EXPECT_EQ(ToProtoStatus(MakeError(Reason::kUnknownSequence, "")).details_size(), 1);
}

TEST(ErrorsTest, AnErrorMadeElsewhereHasItsCodeAsReason) {
  EXPECT_EQ(InfoOf(ToProtoStatus(absl::CancelledError("stop"))).reason(), "CANCELLED");
}

TEST(ErrorsTest, AGrpcStatusCarriesTheSameDetailsAndMetadata) {
  const grpc::Status status =
      ToGrpcStatus(MakeError(Reason::kRevisionCompacted, "gone"), {{"oldest_revision", "17"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), "gone");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(InfoOf(details).metadata().at("oldest_revision"), "17");
}

TEST(ErrorsTest, ATextThatATerminalObeysIsPrintableAtBothEnds) {
  const grpc::Status sent = ToGrpcStatus(absl::NotFoundError("no cache \x1b[2J\r\xff"));
  EXPECT_EQ(sent.error_message(), "no cache \\u001b[2J\\r\\xff");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(sent.error_details()));
  EXPECT_EQ(details.message(), sent.error_message());
  EXPECT_EQ(StatusFromGrpc(sent).message(), sent.error_message());
  // The sender is no daemon of ours.
  EXPECT_EQ(StatusFromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "\x1b]0;x\x07")).message(),
            "\\u001b]0;x\\u0007");
  details.set_message("forged\nline");
  EXPECT_EQ(StatusFromProto(details).message(), "forged\\nline");
}

TEST(ErrorsTest, OkIsOkWithoutDetails) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus());
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.error_details(), "");
}

// --- As a client receives them ---

google::rpc::Status WithInfo(int code, const std::string& message,
                             const google::rpc::ErrorInfo& info) {
  google::rpc::Status proto;
  proto.set_code(code);
  proto.set_message(message);
  proto.add_details()->PackFrom(info);
  return proto;
}

google::rpc::ErrorInfo Info(const std::string& domain, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain(domain);
  info.set_reason(reason);
  return info;
}

TEST(ErrorsTest, EveryReasonSurvivesTheWire) {
  for (int i = 1; i <= static_cast<int>(Reason::kInvalidCheckpoint); ++i) {
    const auto reason = static_cast<Reason>(i);
    const absl::Status sent = MakeError(reason, "12 of 7");
    const absl::Status received =
        StatusFromProto(WithInfo(static_cast<int>(sent.code()), std::string(sent.message()),
                                 Info("pagoda", std::string(ReasonName(reason)))));
    EXPECT_EQ(received, sent) << ReasonName(reason);
    EXPECT_EQ(ReasonOf(received), reason);
  }
}

TEST(ErrorsTest, AnotherDomainsReasonIsNotOurs) {
  const absl::Status status =
      StatusFromProto(WithInfo(8, "quota", Info("example.com", "BLOCKS_EXHAUSTED")));
  EXPECT_EQ(ReasonOf(status), Reason::kNone);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "quota");
}

TEST(ErrorsTest, AReasonOfALaterDaemonKeepsCodeAndMessage) {
  const absl::Status status =
      StatusFromProto(WithInfo(9, "later", Info("pagoda", "NOT_INVENTED_YET")));
  EXPECT_EQ(ReasonOf(status), Reason::kNone);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ErrorsTest, AGrpcStatusCarriesReasonAndMetadata) {
  google::rpc::ErrorInfo info = Info("pagoda", "REVISION_COMPACTED");
  (*info.mutable_metadata())["oldest_revision"] = "17";
  const grpc::Status status(grpc::StatusCode::OUT_OF_RANGE, "revision 3 is gone",
                            WithInfo(11, "revision 3 is gone", info).SerializeAsString());
  EXPECT_EQ(StatusFromGrpc(status), MakeError(Reason::kRevisionCompacted, "revision 3 is gone"));
  EXPECT_THAT(MetadataOf(status), UnorderedElementsAre(Pair("oldest_revision", "17")));
}

TEST(ErrorsTest, ATransportErrorHasNoReason) {
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "connection refused");
  EXPECT_EQ(StatusFromGrpc(status), absl::UnavailableError("connection refused"));
  EXPECT_THAT(MetadataOf(status), IsEmpty());
}

TEST(ErrorsTest, DetailsThatAreNoStatusAreIgnored) {
  const grpc::Status status(grpc::StatusCode::INTERNAL, "broken", "\xff\xff not a proto");
  EXPECT_EQ(StatusFromGrpc(status), absl::InternalError("broken"));
}

TEST(ErrorsTest, OkIsOk) { EXPECT_TRUE(StatusFromGrpc(grpc::Status::OK).ok()); }

}  // namespace
}  // namespace pagoda
