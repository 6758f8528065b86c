#include "clients/cpp/errors.h"

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "pools/error.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

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
  EXPECT_THAT(ErrorMetadata(status), UnorderedElementsAre(Pair("oldest_revision", "17")));
}

TEST(ErrorsTest, ATransportErrorHasNoReason) {
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "connection refused");
  EXPECT_EQ(StatusFromGrpc(status), absl::UnavailableError("connection refused"));
  EXPECT_THAT(ErrorMetadata(status), IsEmpty());
}

TEST(ErrorsTest, DetailsThatAreNoStatusAreIgnored) {
  const grpc::Status status(grpc::StatusCode::INTERNAL, "broken", "\xff\xff not a proto");
  EXPECT_EQ(StatusFromGrpc(status), absl::InternalError("broken"));
}

TEST(ErrorsTest, OkIsOk) { EXPECT_TRUE(StatusFromGrpc(grpc::Status::OK).ok()); }

}  // namespace
}  // namespace pagoda
