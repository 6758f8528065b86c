// The client against a small CacheService in this process, whose answers depend on the request.
#include "clients/cpp/grpc_cache_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_posix.h"
#include "gtest/gtest.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/rows.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSessionId = 5;
constexpr uint64_t kToken = 77;
// The sequence ids that make the fake service misbehave.
constexpr SequenceId kSilence{900};      // Never answers.
constexpr SequenceId kBreak{901};        // Ends the stream with DRAINING.
constexpr SequenceId kWrongResult{902};  // Answers with another operation's result.
constexpr SequenceId kStale{903};        // Ends the stream with STALE_SESSION.
constexpr SequenceId kCut{904};          // Ends the stream without an answer as often as told.
constexpr SequenceId kSwallowed{905};    // The same, but leaves the stream open.

google::rpc::Status ErrorProto(Reason reason, const std::string& message) {
  google::rpc::ErrorInfo info;
  info.set_domain("pagoda");
  info.set_reason(std::string(ReasonName(reason)));
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(ReasonCode(reason)));
  proto.set_message(message);
  proto.add_details()->PackFrom(info);
  return proto;
}

class FakeCacheService final : public v1::CacheService::Service {
 public:
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionResponse* response) override {
    absl::MutexLock lock(&mutex_);
    open_request_ = *request;
    response->mutable_session()->set_session_id(kSessionId);
    response->mutable_session()->set_token(kToken);
    response->mutable_cache()->set_tokens_per_block(32);
    response->mutable_cache()->add_windows()->add_blocks(100'000);
    response->set_lease_ms(request->lease_ms());
    return grpc::Status::OK;
  }

  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse*) override {
    absl::MutexLock lock(&mutex_);
    closed_ += request->session().session_id() == kSessionId ? 1 : 0;
    return grpc::Status::OK;
  }

  grpc::Status KeepAlive(grpc::ServerContext*, const v1::KeepAliveRequest*,
                         v1::KeepAliveResponse*) override {
    absl::MutexLock lock(&mutex_);
    ++signs_of_life_;
    if (!session_over_) return grpc::Status::OK;
    return {grpc::StatusCode::FAILED_PRECONDITION, "over",
            ErrorProto(Reason::kStaleSession, "over").SerializeAsString()};
  }

  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) override {
    {
      absl::MutexLock lock(&mutex_);
      ++streams_;
    }
    v1::SessionRequest request;
    for (bool first = true; stream->Read(&request); first = false) {
      if (first && request.session().token() != kToken) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "the first message names no session"};
      }
      const uint64_t sequence = SequenceOf(request.batch());
      Note(request);
      if (sequence == kCut.value() && Loses()) return {grpc::StatusCode::UNAVAILABLE, "cut"};
      if (sequence == kSwallowed.value() && Loses()) return WaitForCancel(stream, context);
      if (sequence == kStale.value()) {
        return {grpc::StatusCode::FAILED_PRECONDITION, "restarted",
                ErrorProto(Reason::kStaleSession, "restarted").SerializeAsString()};
      }
      if (sequence == kSilence.value()) return WaitForCancel(stream, context);
      if (sequence == kBreak.value()) {
        return {grpc::StatusCode::UNAVAILABLE, "going",
                ErrorProto(Reason::kDraining, "going").SerializeAsString()};
      }
      stream->Write(Answer(request));
    }
    return grpc::Status::OK;
  }

  int streams() {
    absl::MutexLock lock(&mutex_);
    return streams_;
  }
  int closed() {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  int signs_of_life() {
    absl::MutexLock lock(&mutex_);
    return signs_of_life_;
  }
  // The next `count` answers to kCut and kSwallowed are lost.
  void LoseAnswers(int count) {
    absl::MutexLock lock(&mutex_);
    losses_left_ = count;
  }
  // From now on lease renewals are refused.
  void EndSession() {
    absl::MutexLock lock(&mutex_);
    session_over_ = true;
  }
  // The received requests, in order.
  std::vector<v1::SessionRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  v1::OpenSessionRequest open_request() {
    absl::MutexLock lock(&mutex_);
    return open_request_;
  }

 private:
  void Note(const v1::SessionRequest& request) {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(request);
  }
  bool Loses() {
    absl::MutexLock lock(&mutex_);
    return losses_left_-- > 0;
  }

  static uint64_t SequenceOf(const v1::Batch& batch) {
    return batch.operations().empty() ? 0 : batch.operations(0).free_sequence().sequence_id();
  }

  // The next read ends when the client gives up.
  static grpc::Status WaitForCancel(
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream,
      grpc::ServerContext* context) {
    v1::SessionRequest ignored;
    while (stream->Read(&ignored)) {
    }
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  }

  v1::SessionResponse Answer(const v1::SessionRequest& request) {
    v1::SessionResponse response;
    response.set_batch_id(request.batch_id());
    response.mutable_result()->set_revision(42);
    for (const v1::Operation& operation : request.batch().operations()) {
      v1::OperationResult* result = response.mutable_result()->add_results();
      if (operation.has_wait_for_ticket()) {
        if (Loses()) {
          result->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kCancelled));
        } else {
          result->mutable_wait_for_ticket()->set_completed_ticket(9);
          response.mutable_result()->set_completed_ticket(9);
          response.mutable_result()->set_completed_fetch_ticket(4);
          response.mutable_result()->set_completed_backup_ticket(5);
        }
      } else if (operation.has_free_sequence()) {
        if (operation.free_sequence().sequence_id() == kWrongResult.value()) {
          result->mutable_free_blocks();
        } else {
          *result->mutable_error() = ErrorProto(Reason::kUnknownSequence, "no sequence");
        }
      } else {
        std::vector<BlockHandle> handles(operation.allocate_blocks().count());
        for (size_t i = 0; i < handles.size(); ++i)
          handles[i].id = BlockId(static_cast<uint32_t>(i));
        result->mutable_allocate_blocks()->set_blocks(RowsToBytes<BlockHandle>(handles));
      }
    }
    return response;
  }

  absl::Mutex mutex_;
  v1::OpenSessionRequest open_request_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SessionRequest> requests_ ABSL_GUARDED_BY(mutex_);
  int losses_left_ ABSL_GUARDED_BY(mutex_) = 0;
  int signs_of_life_ ABSL_GUARDED_BY(mutex_) = 0;
  bool session_over_ ABSL_GUARDED_BY(mutex_) = false;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  int closed_ ABSL_GUARDED_BY(mutex_) = 0;
};

class GrpcCacheClientTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  std::unique_ptr<CacheClient> Open(absl::Duration timeout = absl::Seconds(20)) {
    auto client = OpenGrpcCacheClient({.endpoint = endpoint_,
                                       .client_name = "test",
                                       .lease = absl::Seconds(3),
                                       .timeout = timeout,
                                       .cache = "tiny",
                                       .attempt_timeout = absl::Milliseconds(500)});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  const std::string endpoint_ =
      absl::StrCat("unix:", testing::TempDir(), "/pagoda-client-test-", getpid(), ".sock");
  FakeCacheService service_;
  std::unique_ptr<grpc::Server> server_;
};

// Listens at a Unix socket. The first connection gets no answer until the client gives it up; the
// server answers all later ones.
class SlowListener {
 public:
  SlowListener(const std::string& path, grpc::Server* server) : server_(server) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    PAGODA_CHECK(path.size() < sizeof(address.sun_path), path.c_str());
    path.copy(address.sun_path, path.size());
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PAGODA_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                     listen(listener_, 8) == 0,
                 path.c_str());
    thread_ = std::thread([this] { Run(); });
  }
  ~SlowListener() {
    shutdown(listener_, SHUT_RDWR);  // Ends accept.
    thread_.join();
    close(listener_);
  }

  int given_up() const { return given_up_; }

 private:
  void Run() {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      if (given_up_ > 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        grpc::AddInsecureChannelFromFd(server_, fd);
        continue;
      }
      for (char greeting[4096]; recv(fd, greeting, sizeof(greeting), 0) > 0;) {
      }
      ++given_up_;
      close(fd);
    }
  }

  grpc::Server* const server_;
  int listener_ = -1;
  std::atomic<int> given_up_ = 0;
  std::thread thread_;
};

TEST_F(GrpcCacheClientTest, WaitsForADaemonThatIsSlowToAnswer) {
  const std::string path = absl::StrCat(testing::TempDir(), "/pagoda-slow-", getpid(), ".sock");
  SlowListener listener(path, server_.get());
  const auto client = OpenGrpcCacheClient({.endpoint = absl::StrCat("unix:", path),
                                           .client_name = "test",
                                           .lease = absl::Seconds(3),
                                           .timeout = absl::Seconds(60),
                                           .cache = "tiny"});
  unlink(path.c_str());
  EXPECT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(listener.given_up(), 1);
}

TEST_F(GrpcCacheClientTest, OpensANamedSessionAndLearnsTheCache) {
  const auto client = Open();
  EXPECT_EQ(client->info().tokens_per_block, 32u);
  EXPECT_EQ(service_.open_request().client_name(), "test");
  EXPECT_EQ(service_.open_request().lease_ms(), 3000u);
  EXPECT_EQ(service_.open_request().cache(), "tiny");
}

TEST_F(GrpcCacheClientTest, OperationsSucceedAndFailOneByOne) {
  const auto client = Open();
  const std::vector<Operation> operations = {AllocateBlocks{kFullAttention, 2},
                                             FreeSequence{SequenceId(1)}};
  const auto batch = client->Execute(operations);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->revision, Revision(42));
  ASSERT_EQ(batch->results.size(), 2u);
  ASSERT_TRUE(batch->results[0].ok());
  EXPECT_EQ(std::get<AllocatedBlocks>(*batch->results[0]).blocks.size(), 2u);
  EXPECT_EQ(ReasonOf(batch->results[1].status()), Reason::kUnknownSequence);
}

TEST_F(GrpcCacheClientTest, ManyBatchesUseOneStream) {
  const auto client = Open();
  for (uint32_t i = 1; i <= 100; ++i) {
    const auto blocks = RunOne<AllocatedBlocks>(*client, AllocateBlocks{kFullAttention, i});
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    ASSERT_EQ(blocks->blocks.size(), i);
  }
  EXPECT_EQ(service_.streams(), 1);
}

TEST_F(GrpcCacheClientTest, ABatchWithoutAnswerEndsAtTheDeadlineAndTheNextOneRuns) {
  const auto client = Open(absl::Milliseconds(200));
  const std::vector<Operation> silence = {FreeSequence{kSilence}};
  EXPECT_EQ(client->Execute(silence).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(RunOne<AllocatedBlocks>(*client, AllocateBlocks{kFullAttention, 1}).ok());
  EXPECT_EQ(service_.streams(), 2);
}

TEST_F(GrpcCacheClientTest, ABrokenStreamSaysWhyAndTheNextBatchOpensAnother) {
  const auto client = Open();
  const std::vector<Operation> breaking = {FreeSequence{kBreak}};
  EXPECT_EQ(client->Execute(breaking).status(), MakeError(Reason::kDraining, "going"));
  EXPECT_TRUE(RunOne<AllocatedBlocks>(*client, AllocateBlocks{kFullAttention, 1}).ok());
}

TEST_F(GrpcCacheClientTest, ABatchWhoseAnswerIsLostIsSentAgainUnderTheSameId) {
  const auto client = Open();
  for (const SequenceId losing : {kCut, kSwallowed}) {
    service_.LoseAnswers(2);
    const size_t before = service_.requests().size();
    const auto batch = client->Execute(std::vector<Operation>{FreeSequence{losing}});
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(ReasonOf(batch->results[0].status()), Reason::kUnknownSequence);
    const auto requests = service_.requests();
    ASSERT_EQ(requests.size(), before + 3);
    EXPECT_NE(requests[before].batch().retry_id(), 0u);
    EXPECT_EQ(requests[before + 1].batch().retry_id(), requests[before].batch().retry_id());
    EXPECT_EQ(requests[before + 2].batch().retry_id(), requests[before].batch().retry_id());
  }
  EXPECT_EQ(service_.streams(), 5);
}

TEST_F(GrpcCacheClientTest, AWaitThatItsStreamCutShortIsAskedForAnew) {
  const auto client = Open();
  service_.LoseAnswers(2);
  const auto batch = client->Execute(std::vector<Operation>{
      AllocateBlocks{kFullAttention, 3}, WaitForTicket{Ticket(9)}, FreeSequence{SequenceId(1)}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(std::get<AllocatedBlocks>(*batch->results[0]).blocks.size(), 3u);
  ASSERT_TRUE(batch->results[1].ok()) << batch->results[1].status();
  EXPECT_EQ(ReasonOf(batch->results[2].status()), Reason::kUnknownSequence);
  EXPECT_EQ(batch->completed, Ticket(9));
  EXPECT_EQ(batch->completed_fetch, Ticket(4));
  EXPECT_EQ(batch->completed_backup, Ticket(5));
  ASSERT_EQ(service_.requests().size(), 3u);
  EXPECT_EQ(service_.requests()[2].batch().operations_size(), 1);
}

TEST_F(GrpcCacheClientTest, EachBatchHasARetryIdOfItsOwn) {
  const auto client = Open();
  std::set<uint64_t> ids;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(RunOne<AllocatedBlocks>(*client, AllocateBlocks{kFullAttention, 1}).ok());
    ids.insert(service_.requests().back().batch().retry_id());
  }
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_EQ(ids.count(0), 0u);
}

TEST_F(GrpcCacheClientTest, AnAnswerThatTheDaemonMayNotRememberIsNotAskedForTwice) {
  const auto client = Open();
  service_.LoseAnswers(1);
  const auto batch = client->Execute(
      std::vector<Operation>{FreeSequence{kCut}, AllocateBlocks{kFullAttention, 100'000}});
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("whether the batch ran is unknown"));
  ASSERT_EQ(service_.requests().size(), 1u);
  EXPECT_EQ(service_.requests()[0].batch().retry_id(), 0u);
}

TEST_F(GrpcCacheClientTest, AnAnswerIsNeverAskedForAgain) {
  const auto client = Open();
  const std::vector<Operation> breaking = {FreeSequence{kBreak}};
  EXPECT_EQ(ReasonOf(client->Execute(breaking).status()), Reason::kDraining);
  EXPECT_EQ(service_.requests().size(), 1u);
}

TEST_F(GrpcCacheClientTest, AnOverSessionIsOverForEveryLaterBatch) {
  const auto client = Open();
  const std::vector<Operation> stale = {FreeSequence{kStale}};
  const absl::Status first = client->Execute(stale).status();
  EXPECT_EQ(ReasonOf(first), Reason::kStaleSession);
  EXPECT_THAT(std::string(first.message()), HasSubstr("the session is over"));
  EXPECT_EQ(client->Execute(std::vector<Operation>{MatchPrefix{}}).status(), first);
  EXPECT_EQ(service_.requests().size(), 1u);
}

TEST_F(GrpcCacheClientTest, SignsOfLifeGoOnWithoutBatchesAndTellTheEndOfTheSession) {
  absl::Notification over;
  absl::Status why;
  const auto client = OpenGrpcCacheClient({.endpoint = endpoint_,
                                           .client_name = "test",
                                           .lease = absl::Milliseconds(60),
                                           .on_session_over = [&](const absl::Status& status) {
                                             why = status;
                                             over.Notify();
                                           }});
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (service_.signs_of_life() < 3 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GE(service_.signs_of_life(), 3);
  EXPECT_FALSE(over.HasBeenNotified());
  service_.EndSession();
  ASSERT_TRUE(over.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_EQ(ReasonOf(why), Reason::kStaleSession);
  const absl::Status later =
      RunOne<AllocatedBlocks>(**client, AllocateBlocks{kFullAttention, 1}).status();
  EXPECT_EQ(ReasonOf(later), Reason::kStaleSession);
  EXPECT_TRUE(service_.requests().empty());
}

TEST_F(GrpcCacheClientTest, AResultOfAnotherKindIsAFaultOfTheDaemon) {
  const auto client = Open();
  const std::vector<Operation> operations = {FreeSequence{kWrongResult}};
  EXPECT_EQ(client->Execute(operations).status().code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcCacheClientTest, ClosesItsSessionWhenDestroyed) {
  auto client = Open();
  ASSERT_TRUE(RunOne<AllocatedBlocks>(*client, AllocateBlocks{kFullAttention, 1}).ok());
  EXPECT_EQ(service_.closed(), 0);
  client.reset();
  EXPECT_EQ(service_.closed(), 1);
}

TEST(GrpcCacheClientWithoutDaemonTest, SaysSoAtOnce) {
  const absl::Time start = absl::Now();
  const auto client = OpenGrpcCacheClient({.endpoint = "unix:/nonexistent/pagoda.sock",
                                           .client_name = "test",
                                           .lease = absl::ZeroDuration(),
                                           .timeout = absl::Seconds(60)});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(client.status()), Reason::kNone);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

}  // namespace
}  // namespace pagoda
