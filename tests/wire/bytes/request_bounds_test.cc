#include "wire/bytes/request_bounds.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "manager/api/operation.h"
#include "manager/sequences/operation_checks.h"
#include "pagoda/v1/cache.pb.h"
#include "wire/bytes/message_bytes.h"

namespace pagoda {
namespace {

// The bytes of a field that holds `content`.
std::string FieldOf(int number, const std::string& content) {
  uint8_t size[10];
  uint8_t* const end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(content.size()), size);
  return static_cast<char>(number << 3 | 2) + std::string(size, end) + content;
}

std::string Repeat(const std::string& bytes, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += bytes;
  return all;
}

// A request with one AddSequence, which has these fields.
std::string WithAddSequence(const std::string& fields) {
  const std::string operation = FieldOf(v1::Operation::kAddSequenceFieldNumber, fields);
  const std::string batch = FieldOf(v1::Batch::kOperationsFieldNumber, operation);
  return FieldOf(v1::SessionRequest::kBatchFieldNumber, batch);
}

std::string WithRetentionRanges(size_t count) {
  return WithAddSequence(Repeat(FieldOf(v1::AddSequenceRequest::kRetentionFieldNumber, ""), count));
}

absl::Status Check(const std::string& bytes) {
  const google::protobuf::Descriptor& type = *v1::SessionRequest::descriptor();
  const absl::Status status = CheckRequestBounds(type, bytes);
  google::protobuf::io::ArrayInputStream pieces(bytes.data(), static_cast<int>(bytes.size()), 7);
  EXPECT_EQ(CheckRequestBounds(type, &pieces).message(), status.message());
  return status;
}

TEST(RequestBoundsTest, CountsWhatTheBytesHold) {
  v1::SessionRequest request;
  const std::string bytes = WithRetentionRanges(kMaxRetentionRanges);
  ASSERT_TRUE(request.ParseFromString(bytes));
  EXPECT_EQ(request.batch().operations(0).add_sequence().retention_size(), kMaxRetentionRanges);
  EXPECT_TRUE(Check(bytes).ok());
}

TEST(RequestBoundsTest, RefusesTooManyRetentionRanges) {
  const absl::Status status = Check(WithRetentionRanges(kMaxRetentionRanges + 1));
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the request has more than 65536 retention ranges; no more are allowed");
}

// Each takes a byte on the wire, and four or more in memory.
std::string WithExtraIds(size_t count) {
  return WithAddSequence(
      FieldOf(v1::AddSequenceRequest::kExtraTokenIdsFieldNumber, std::string(count, '\1')));
}

TEST(RequestBoundsTest, RefusesTooManyPackedNumbers) {
  v1::SessionRequest request;
  ASSERT_TRUE(request.ParseFromString(WithExtraIds(1000)));
  EXPECT_EQ(request.batch().operations(0).add_sequence().extra_token_ids_size(), 1000);
  EXPECT_TRUE(Check(WithExtraIds(kMaxRequestVarints)).ok());
  const absl::Status status = Check(WithExtraIds(kMaxRequestVarints + 1));
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_EQ(status.message(), "the request has more than 4194304 numbers; no more are allowed");
}

TEST(RequestBoundsTest, CountsNumbersByTheirLastBytes) {
  // 300 in two bytes.
  const std::string numbers = FieldOf(v1::AddSequenceRequest::kExtraTokenIdsFieldNumber,
                                      Repeat("\xac\x02", kMaxRequestVarints));
  EXPECT_TRUE(Check(WithAddSequence(numbers)).ok());
  EXPECT_FALSE(
      Check(WithAddSequence(numbers +
                            FieldOf(v1::AddSequenceRequest::kExtraTokenIdsFieldNumber, "\1")))
          .ok());
}

TEST(RequestBoundsTest, CountsNumbersThatAreNotPacked) {
  const std::string one = {
      static_cast<char>(v1::AddSequenceRequest::kExtraTokenIdsFieldNumber << 3), '\1'};
  EXPECT_TRUE(Check(WithAddSequence(Repeat(one, kMaxRequestVarints))).ok());
  EXPECT_FALSE(Check(WithAddSequence(Repeat(one, kMaxRequestVarints + 1))).ok());
}

TEST(RequestBoundsTest, CountsARangeAlsoBehindAnotherField) {
  const std::string pair = FieldOf(v1::AddSequenceRequest::kRetentionFieldNumber, "") +
                           FieldOf(v1::AddSequenceRequest::kTokensFieldNumber, "");
  EXPECT_FALSE(Check(WithAddSequence(Repeat(pair, kMaxRetentionRanges + 1))).ok());
}

// The parser would merge the two into one list.
TEST(RequestBoundsTest, CountsTheListsOfAFieldThatComesAgain) {
  const std::string ranges =
      Repeat(FieldOf(v1::AddSequenceRequest::kRetentionFieldNumber, ""), kMaxRetentionRanges);
  const std::string half = FieldOf(v1::Operation::kAddSequenceFieldNumber, ranges);
  const std::string operation = FieldOf(v1::Batch::kOperationsFieldNumber, half + half);
  EXPECT_FALSE(Check(FieldOf(v1::SessionRequest::kBatchFieldNumber, operation)).ok());
  const std::string two = Repeat(FieldOf(v1::Batch::kOperationsFieldNumber, half), 2);
  EXPECT_TRUE(Check(FieldOf(v1::SessionRequest::kBatchFieldNumber, two)).ok()) << "two operations";
  const std::string operations = Repeat(
      FieldOf(v1::Batch::kOperationsFieldNumber, std::string(8, '\x08')), kMaxBatchOperations);
  const std::string batch = FieldOf(v1::SessionRequest::kBatchFieldNumber, operations);
  EXPECT_EQ(ReasonOf(Check(batch + batch)), Reason::kBatchTooLarge);
}

TEST(RequestBoundsTest, RefusesTooManyUnknownFields) {
  const std::string unknown = FieldOf(15, "");
  ASSERT_EQ(v1::AddSequenceRequest::descriptor()->FindFieldByNumber(15), nullptr);
  EXPECT_TRUE(Check(WithAddSequence(Repeat(unknown, kMaxUnknownFields))).ok());
  EXPECT_EQ(ReasonOf(Check(WithAddSequence(Repeat(unknown, kMaxUnknownFields + 1)))),
            Reason::kFieldNotServed);
  // A known number in a form that its field does not have.
  const char message_as_number[] = {v1::AddSequenceRequest::kRetentionFieldNumber << 3, 0};
  const std::string other_form(message_as_number, 2);
  EXPECT_EQ(ReasonOf(Check(WithAddSequence(Repeat(other_form, kMaxUnknownFields + 1)))),
            Reason::kFieldNotServed);
}

TEST(RequestBoundsTest, RefusesGroups) {
  const char group[] = {15 << 3 | 3, 15 << 3 | 4};
  EXPECT_EQ(ReasonOf(Check(WithAddSequence(Repeat(std::string(group, 2), kLeastCheckedBytes)))),
            Reason::kFieldNotServed);
}

TEST(RequestBoundsTest, RefusesTooManyOperations) {
  const std::string operation = FieldOf(v1::Batch::kOperationsFieldNumber, "");
  const auto batch_of = [&](size_t operations) {
    return FieldOf(v1::SessionRequest::kBatchFieldNumber, Repeat(operation, operations)) +
           FieldOf(15, std::string(kLeastCheckedBytes, ' '));  // Below, handlers count them.
  };
  EXPECT_TRUE(Check(batch_of(kMaxBatchOperations)).ok());
  EXPECT_EQ(ReasonOf(Check(batch_of(kMaxBatchOperations + 1))), Reason::kBatchTooLarge);
}

TEST(RequestBoundsTest, RefusesTooManyPartsOfAnyKind) {
  const std::string key = FieldOf(v1::AddSequenceRequest::kKeysFieldNumber, "");
  EXPECT_TRUE(Check(WithAddSequence(Repeat(key, kMaxRequestParts - 3))).ok());  // 3 hold the keys.
  const absl::Status status = Check(WithAddSequence(Repeat(key, kMaxRequestParts)));
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_EQ(status.message(), "the request has more than 262144 parts; no more are allowed");
}

TEST(RequestBoundsTest, ARequestWithoutABatchHasTheSameBound) {
  const google::protobuf::Descriptor& type = *v1::FetchPrefixRequest::descriptor();
  const std::string key = FieldOf(v1::FetchPrefixRequest::kKeysFieldNumber, "");
  EXPECT_TRUE(CheckRequestBounds(type, Repeat(key, kMaxRequestParts)).ok());
  const absl::Status status = CheckRequestBounds(type, Repeat(key, kMaxRequestParts + 1));
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_EQ(status.message(), "the request has more than 262144 parts; no more are allowed");
}

TEST(RequestBoundsTest, DamagedBytesAreForTheParser) {
  std::string bytes = WithRetentionRanges(kMaxRetentionRanges);
  bytes.pop_back();
  EXPECT_TRUE(Check(bytes).ok());
  v1::SessionRequest request;
  EXPECT_FALSE(request.ParseFromString(bytes));
}

TEST(RequestBoundsTest, ParseMessageMakesNoObjectsOfThem) {
  const std::string bytes = WithRetentionRanges(2'000'000);
  const grpc::Slice slice(bytes);
  v1::SessionRequest request;
  const absl::Status status = ParseMessage(grpc::ByteBuffer(&slice, 1), &request);
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_LT(request.SpaceUsedLong(), 4096u);
}

}  // namespace
}  // namespace pagoda
