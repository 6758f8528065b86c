#include "wire/bytes/batch_bytes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "pagoda/v1/cache.pb.h"

namespace pagoda {
namespace {

v1::Batch BatchOf(uint32_t count, uint64_t retry_id = 5) {
  v1::Batch batch;
  batch.set_retry_id(retry_id);
  batch.add_operations()->mutable_allocate_blocks()->set_count(count);
  return batch;
}

std::string CallWith(const v1::Batch& batch) {
  v1::ExecuteRequest request;
  request.mutable_session()->set_session_id(7);
  *request.mutable_batch() = batch;
  return request.SerializeAsString();
}

grpc::ByteBuffer InPiecesOf(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += piece) slices.emplace_back(bytes.substr(i, piece));
  return {slices.data(), slices.size()};
}

TEST(BatchFingerprintTest, ABatchIsTheSameInACallAndOnAStream) {
  v1::SessionRequest later;  // A stream need not name its session again.
  later.set_batch_id(900);
  *later.mutable_batch() = BatchOf(3);
  const uint64_t fingerprint = BatchFingerprint(CallWith(BatchOf(3)));
  EXPECT_EQ(BatchFingerprint(later.SerializeAsString()), fingerprint);
  EXPECT_EQ(BatchFingerprint(InPiecesOf(CallWith(BatchOf(3)), 4)), fingerprint);
  EXPECT_EQ(BatchFingerprint(InPiecesOf(CallWith(BatchOf(3)), 1000)), fingerprint);
}

TEST(BatchFingerprintTest, AnyOtherBatchIsAnotherOne) {
  const uint64_t fingerprint = BatchFingerprint(CallWith(BatchOf(3)));
  EXPECT_NE(BatchFingerprint(CallWith(BatchOf(4))), fingerprint);
  v1::Batch batch = BatchOf(3);
  batch.set_step(1);
  EXPECT_NE(BatchFingerprint(CallWith(batch)), fingerprint);
  batch = BatchOf(3);
  batch.add_operations();
  EXPECT_NE(BatchFingerprint(CallWith(batch)), fingerprint);
  // The parser merges fields that come again.
  const std::string twice = CallWith(BatchOf(3)) + CallWith(BatchOf(3));
  EXPECT_NE(BatchFingerprint(twice), fingerprint);
}

TEST(BatchFingerprintTest, AnyBytesHaveOne) {
  const std::string request = CallWith(BatchOf(3));
  for (size_t size = 0; size < request.size(); ++size) BatchFingerprint(request.substr(0, size));
  for (const char byte : {'\x12', '\x13', '\xff'}) BatchFingerprint(std::string(40, byte));
}

class ResponseBytesTest : public ::testing::TestWithParam<size_t> {};

TEST_P(ResponseBytesTest, AResponseIsTheAnswerInItsFrame) {
  v1::BatchResult result;
  result.set_revision(12);
  result.add_results()->mutable_allocate_blocks()->set_blocks(std::string(GetParam(), 'x'));
  const auto answer = std::make_shared<const std::string>(result.SerializeAsString());
  for (const uint64_t batch_id : {uint64_t{0}, uint64_t{1} << 63}) {
    grpc::Slice bytes;
    ASSERT_TRUE(ResponseBytes(answer, batch_id).DumpToSingleSlice(&bytes).ok());
    v1::SessionResponse expected;
    *expected.mutable_result() = result;
    expected.set_batch_id(batch_id);
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), expected.SerializeAsString());
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, ResponseBytesTest, testing::Values(0, 100, 5'000, 300'000));

TEST(ResponseBytesTest, ALongAnswerIsSharedAndLivesAsLongAsItsBytes) {
  auto answer = std::make_shared<const std::string>(std::string(100'000, 'x'));
  const std::weak_ptr<const std::string> alive = answer;
  {
    const grpc::ByteBuffer bytes = ResponseBytes(answer, 1);
    answer.reset();
    EXPECT_FALSE(alive.expired());
  }
  EXPECT_TRUE(alive.expired());
}

TEST(ResponseBytesTest, AnEmptyAnswerIsAResult) {
  grpc::Slice bytes;
  const auto answer = std::make_shared<const std::string>();
  ASSERT_TRUE(ResponseBytes(answer, 0).DumpToSingleSlice(&bytes).ok());
  v1::ExecuteResponse response;
  ASSERT_TRUE(response.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
  EXPECT_TRUE(response.has_result());
}

}  // namespace
}  // namespace pagoda
