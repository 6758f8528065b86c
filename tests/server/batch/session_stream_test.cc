#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

constexpr uint64_t kShortLeaseMs = 50;

class SessionStreamTest : public DaemonTest {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>;

  static v1::SessionRequest Request(uint64_t batch_id,
                                    const std::vector<v1::Operation>& operations) {
    v1::SessionRequest request;
    request.set_batch_id(batch_id);
    request.mutable_batch()->mutable_operations()->Add(operations.begin(), operations.end());
    return request;
  }
  static v1::SessionRequest Opening(const v1::SessionRef& session) {
    v1::SessionRequest request;
    *request.mutable_session() = session;
    return request;
  }
  // The reason with which a stream ends after these messages.
  std::string EndOf(const std::vector<v1::SessionRequest>& requests) {
    const auto context = NewContext();
    const std::unique_ptr<Stream> stream = cache().Session(context.get());
    v1::SessionResponse response;
    for (const v1::SessionRequest& request : requests) {
      if (!stream->Write(request)) break;
      stream->Read(&response);
    }
    stream->WritesDone();
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    return status.ok() ? "" : InfoOf(status).reason();
  }
  // Waits for the lease timer, in wall-clock time.
  template <class Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }
};

TEST_F(SessionStreamTest, BatchesAreAnsweredInOrderWithTheirIds) {
  const auto context = NewContext();
  const auto stream = cache().Session(context.get());
  v1::SessionRequest first = Request(100, {AllocateOp(1)});
  *first.mutable_session() = OpenRef();
  ASSERT_TRUE(stream->Write(first));
  for (uint64_t id = 101; id < 150; ++id) {
    ASSERT_TRUE(stream->Write(Request(id, {AllocateOp(id % 2 == 0 ? 1 : 0)})));
  }
  stream->WritesDone();
  v1::SessionResponse response;
  for (uint64_t id = 100; id < 150; ++id) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.batch_id(), id);
    ASSERT_EQ(response.result().results_size(), 1);
    EXPECT_EQ(response.result().results(0).has_error(), id % 2 != 0);
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Primary().active_blocks(), 25u);
}

TEST_F(SessionStreamTest, TheFirstMessageNamesTheSession) {
  EXPECT_EQ(EndOf({Request(1, {AllocateOp(1)})}), "INVALID_ARGUMENT");
  v1::SessionRef forged = OpenRef();
  forged.set_token(forged.token() + 1);
  EXPECT_EQ(EndOf({Opening(forged)}), "STALE_SESSION");
}

TEST_F(SessionStreamTest, AStreamServesOneSession) {
  const v1::SessionRef session = OpenRef();
  EXPECT_EQ(EndOf({Opening(session), Opening(session)}), "");
  EXPECT_EQ(EndOf({Opening(session), Opening(OpenRef())}), "INVALID_ARGUMENT");
}

TEST_F(SessionStreamTest, WhatConcernsTheWholeBatchEndsTheStream) {
  v1::SessionRequest steps = Opening(OpenRef());
  steps.mutable_batch()->set_completed_step(1);
  EXPECT_EQ(EndOf({steps}), "STEP_BACKWARDS");
  v1::SessionRequest large = Request(1, std::vector<v1::Operation>(4097));
  *large.mutable_session() = OpenRef();
  EXPECT_EQ(EndOf({large}), "BATCH_TOO_LARGE");
}

TEST_F(SessionStreamTest, ClosingTheSessionEndsItsStream) {
  const v1::SessionRef session = OpenRef();
  const auto context = NewContext();
  const auto stream = cache().Session(context.get());
  v1::SessionResponse response;
  ASSERT_TRUE(stream->Write(Opening(session)) && stream->Read(&response));
  ASSERT_TRUE(Close(session).ok());
  stream->Write(Request(1, {AllocateOp(1)}));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(InfoOf(stream->Finish()).reason(), "STALE_SESSION");
}

// The lease is much shorter than the waits, so the test would detect a running lease.
TEST_F(SessionStreamTest, AnOpenStreamHoldsTheLeaseAndABrokenOneStartsIt) {
  const v1::SessionRef session = Open(kShortLeaseMs).session();
  auto context = NewContext();
  auto stream = cache().Session(context.get());
  v1::SessionRequest request = Request(1, {AllocateOp(3), AddOp(1, TokensTo(9)), CommitOp(1, 5)});
  *request.mutable_session() = session;
  v1::SessionResponse response;
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  absl::SleepFor(absl::Milliseconds(8 * kShortLeaseMs));
  EXPECT_EQ(Primary().active_blocks(), 6u) << "the lease ran under an open stream";

  // The client dies in the middle of the next batch.
  ASSERT_TRUE(stream->Write(Request(2, {AllocateOp(2)})));
  context->TryCancel();
  stream->Finish();
  EXPECT_TRUE(Eventually([&] { return Status().sessions() == 0; }));
  EXPECT_EQ(Primary().active_blocks(), 0u);
  EXPECT_EQ(Primary().free_blocks() + Primary().cached_blocks(), kTestBlocks);
}

}  // namespace
}  // namespace pagoda::server
