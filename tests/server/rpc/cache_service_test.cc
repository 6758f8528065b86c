#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/config/config.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();

class CacheServiceTest : public DaemonTest {};

TEST_F(CacheServiceTest, OpeningASessionTellsWhatIsCached) {
  const v1::OpenSessionResponse opened = Open();
  EXPECT_EQ(opened.lease_ms(), 30'000u);
  EXPECT_NE(opened.epoch(), 0u);
  EXPECT_EQ(opened.cache().tokens_per_block(), kTestTokensPerBlock);
  ASSERT_EQ(opened.cache().windows_size(), 1);
  EXPECT_EQ(opened.cache().windows(0).window_size(), 0u);
  EXPECT_EQ(opened.cache().windows(0).blocks(0), kTestBlocks);
}

// The error message of OpenSession for a client of this model; "" if it opens a session.
std::string RefusalOf(v1::CacheService::Stub& cache, const std::string& model) {
  v1::OpenSessionRequest request;
  request.set_model_fingerprint(model);
  v1::OpenSessionResponse response;
  const grpc::Status status = cache.OpenSession(NewContext().get(), request, &response);
  if (status.ok()) return "";
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(InfoOf(status).reason(), "MODEL_MISMATCH");
  return status.error_message();
}

Config WithModel() {
  Config config = TestConfig();
  config.cache.model = {.name = "org/tiny", .revision = "r1"};
  return config;
}

class ModelCacheTest : public DaemonTest {
 protected:
  ModelCacheTest() : DaemonTest(WithModel()) {}
};

TEST_F(ModelCacheTest, ASessionForAnotherModelIsRefusedByName) {
  EXPECT_EQ(Open().cache().model_fingerprint(), "org/tiny@r1");
  EXPECT_EQ(RefusalOf(cache(), ""), "") << "who does not say is not asked";
  EXPECT_EQ(RefusalOf(cache(), "org/tiny@r1"), "");
  for (const std::string other : {"org/tiny", "org/tiny@r2", "org/tuned@r1"}) {
    const std::string refusal = RefusalOf(cache(), other);
    EXPECT_THAT(refusal, ::testing::HasSubstr("is for the model \"org/tiny@r1\""));
    EXPECT_THAT(refusal, ::testing::HasSubstr("the session for \"" + other + "\""));
  }
  EXPECT_EQ(Status().sessions(), 3u) << "those that were refused are none";
}

TEST_F(CacheServiceTest, ASessionForAModelIsRefusedWhereTheCacheKnowsNone) {
  EXPECT_EQ(Open().cache().model_fingerprint(), "");
  EXPECT_THAT(
      RefusalOf(cache(), "org/tiny"),
      ::testing::EndsWith(" does not say which model it holds (cache.model); the session is "
                          "for \"org/tiny\""));
}

TEST_F(CacheServiceTest, ALeaseIsAsAskedForUpToTheMaximum) {
  EXPECT_EQ(Open(1234).lease_ms(), 1234u);
  EXPECT_EQ(Open(3'600'000).lease_ms(), 3'600'000u);
  for (const uint64_t too_long : {uint64_t{3'600'001}, std::numeric_limits<uint64_t>::max()}) {
    v1::OpenSessionRequest request;
    request.set_lease_ms(too_long);
    v1::OpenSessionResponse response;
    const grpc::Status status = cache().OpenSession(NewContext().get(), request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(InfoOf(status).reason(), "INVALID_ARGUMENT");
  }
}

TEST_F(CacheServiceTest, OperationsOfABatchSucceedOrFailOneByOneInOrder) {
  const v1::SessionRef session = OpenRef();
  v1::Operation unknown = AddOp(3, {1});
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(77, 1);
  v1::BatchResult batch;
  ASSERT_TRUE(Execute(session,
                      {AddOp(1, TokensTo(5)), unknown, v1::Operation(), CommitOp(2, 1),
                       CommitOp(1, 5), FreeSequenceOp(1), MatchOp(TokensTo(9))},
                      &batch)
                  .ok());
  ASSERT_EQ(batch.results_size(), 7);
  EXPECT_EQ(batch.results(0).add_sequence().tables(0).blocks().size(), 2 * sizeof(BlockHandle));
  EXPECT_EQ(InfoOf(batch.results(1).error()).reason(), "FIELD_NOT_SERVED");
  EXPECT_THAT(batch.results(1).error().message(), ::testing::HasSubstr("unknown field number 77"));
  EXPECT_EQ(InfoOf(batch.results(2).error()).reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(InfoOf(batch.results(3).error()).reason(), "UNKNOWN_SEQUENCE");
  EXPECT_EQ(batch.results(4).commit_tokens().token_count(), 5u);
  EXPECT_TRUE(batch.results(5).has_free_sequence());
  EXPECT_EQ(batch.results(6).match_prefix().matched_tokens(), 5u);
  EXPECT_EQ(batch.revision(), Status().revision());
}

TEST_F(CacheServiceTest, APrefixIsReusedByAnotherSession) {
  CacheTokens(OpenRef(), TokensTo(8));
  const v1::SessionRef other = OpenRef();
  EXPECT_EQ(Run(other, AddOp(1, TokensTo(12))).add_sequence().matched_tokens(), 8u);
}

TEST_F(CacheServiceTest, AnExhaustedPoolRefusesWholeAndSaysWhenToRetry) {
  const v1::SessionRef session = OpenRef();
  Allocate(session, kTestBlocks - 1);
  const v1::OperationResult refused = Run(session, AllocateOp(2));
  EXPECT_EQ(InfoOf(refused.error()).reason(), "BLOCKS_EXHAUSTED");
  EXPECT_EQ(refused.error().details_size(), 2) << "RetryInfo";
  EXPECT_EQ(ReasonFor(session, AddOp(1, TokensTo(5))), "BLOCKS_EXHAUSTED");
  EXPECT_EQ(Primary().free_blocks(), 1u);
}

TEST_F(CacheServiceTest, ZeroAndHugeCountsAreRefused) {
  const v1::SessionRef session = OpenRef();
  for (const v1::Operation& operation :
       {AllocateOp(0), AllocateOp(kTestBlocks + 1), AllocateOp(kHuge), FreeOp({}), AddOp(1, {}),
        AddOp(1, TokensTo(kTestBlocks * kTestTokensPerBlock + 1))}) {
    EXPECT_EQ(ReasonFor(session, operation), "INVALID_COUNT") << operation.ShortDebugString();
  }
  EXPECT_EQ(Primary().free_blocks(), kTestBlocks);
}

TEST_F(CacheServiceTest, BadFreesAreToldApart) {
  const v1::SessionRef session = OpenRef();
  const v1::SessionRef other = OpenRef();
  const auto blocks = Allocate(session, 2);
  EXPECT_EQ(ReasonFor(session, FreeOp({blocks[0], blocks[0]})), "DOUBLE_FREE");
  EXPECT_EQ(ReasonFor(other, FreeOp(blocks)), "FOREIGN_BLOCK");
  const BlockHandle missing{.id = BlockId(kTestBlocks), .generation = Generation(1)};
  EXPECT_EQ(ReasonFor(session, FreeOp({missing})), "UNKNOWN_BLOCK");
  EXPECT_EQ(ReasonFor(session, FreeOp({blocks[0]})), "");
  EXPECT_EQ(ReasonFor(session, FreeOp({blocks[0]})), "DOUBLE_FREE");
  Allocate(session, kTestBlocks - 1);
  EXPECT_EQ(ReasonFor(session, FreeOp({blocks[0]})), "STALE_HANDLE");
}

TEST_F(CacheServiceTest, ABatchIsRefusedWholeForWhatConcernsAllOfIt) {
  const v1::SessionRef session = OpenRef();
  v1::BatchResult result;
  const grpc::Status large =
      Execute(session, std::vector<v1::Operation>(4097, AllocateOp(1)), &result);
  EXPECT_EQ(InfoOf(large).reason(), "BATCH_TOO_LARGE");

  v1::ExecuteRequest request;
  *request.mutable_session() = session;
  *request.mutable_batch()->add_operations() = AllocateOp(1);
  request.mutable_batch()->set_completed_step(1);
  v1::ExecuteResponse response;
  const grpc::Status steps = cache().Execute(NewContext().get(), request, &response);
  EXPECT_EQ(steps.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(InfoOf(steps).reason(), "STEP_BACKWARDS");

  request.mutable_batch()->clear_completed_step();
  v1::Batch* batch = request.mutable_batch();
  batch->GetReflection()->MutableUnknownFields(batch)->AddVarint(99, 1);
  const grpc::Status later = cache().Execute(NewContext().get(), request, &response);
  EXPECT_EQ(later.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(InfoOf(later).reason(), "FIELD_NOT_SERVED");
  EXPECT_THAT(later.error_message(), ::testing::HasSubstr("batch.unknown field number 99"));
  EXPECT_EQ(Primary().free_blocks(), kTestBlocks);
}

TEST_F(CacheServiceTest, ASessionIsProvedByItsTokenAndEndsWithClose) {
  v1::SessionRef session = OpenRef();
  Allocate(session, 3);
  v1::BatchResult result;
  v1::SessionRef half = session, forged = session;
  half.clear_token_high();
  EXPECT_EQ(InfoOf(Execute(half, {}, &result)).reason(), "STALE_SESSION");
  forged.set_token(session.token() ^ 1);
  EXPECT_EQ(InfoOf(Execute(forged, {}, &result)).reason(), "STALE_SESSION");
  EXPECT_EQ(InfoOf(Close(forged)).reason(), "STALE_SESSION");
  EXPECT_TRUE(Close(session).ok());
  EXPECT_EQ(InfoOf(Execute(session, {}, &result)).reason(), "STALE_SESSION");
  EXPECT_EQ(Primary().free_blocks(), kTestBlocks);
}

TEST_F(CacheServiceTest, KeepAliveTellsTheLease) {
  v1::KeepAliveRequest request;
  *request.mutable_session() = Open(5000).session();
  v1::KeepAliveResponse response;
  ASSERT_TRUE(cache().KeepAlive(NewContext().get(), request, &response).ok());
  EXPECT_EQ(response.lease_ms(), 5000u);
}

TEST_F(CacheServiceTest, ResettingThePrefixCacheFreesWhatNobodyHolds) {
  CacheTokens(OpenRef(), TokensTo(12));
  EXPECT_EQ(Primary().cached_blocks(), 3u);
  v1::ResetPrefixCacheResponse response;
  ASSERT_TRUE(admin().ResetPrefixCache(NewContext().get(), {}, &response).ok());
  EXPECT_EQ(response.removed_blocks(), 3u);
  EXPECT_EQ(Primary().free_blocks(), kTestBlocks);
}

}  // namespace
}  // namespace pagoda::server
