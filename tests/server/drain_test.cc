#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/daemon.h"
#include "tests/server/notify_socket.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

class DrainTest : public DaemonTest {};

// grpc.health.v1 is part of gRPC and has no generated client here. The test therefore writes its
// messages as bytes: the request {1: service}, the answer {1: status}.
constexpr char kServing = 1;
constexpr char kNotServing = 2;

class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<grpc::Channel>& channel, const std::string& service)
      : stub_(channel), context_(NewContext()) {
    call_ = stub_.PrepareCall(context_.get(), "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(nullptr);
    EXPECT_TRUE(Next());
    const std::string request = std::string("\x0a") + char(service.size()) + service;
    const grpc::Slice slice(request);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    EXPECT_TRUE(Next());
  }
  ~HealthWatch() {
    context_->TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    queue_.Shutdown();
  }

  // The next status of the service: kServing, kNotServing.
  int Read() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, nullptr);
    grpc::Slice slice;
    if (!Next() || !buffer.DumpToSingleSlice(&slice).ok() || slice.size() != 2) return -1;
    return slice.begin()[1];
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(DrainTest, HealthFlipsForTheServerAndEachService) {
  for (const char* service :
       {"", "pagoda.v1.CacheService", "pagoda.v1.EventService", "pagoda.v1.AdminService"}) {
    HealthWatch health(channel(), service);
    EXPECT_EQ(health.Read(), kServing) << service;
  }
  HealthWatch server(channel(), "");
  HealthWatch service(channel(), "pagoda.v1.CacheService");
  EXPECT_EQ(server.Read(), kServing);
  EXPECT_EQ(service.Read(), kServing);
  std::thread drain([this] { daemon().Drain(); });
  EXPECT_EQ(server.Read(), kNotServing);
  EXPECT_EQ(service.Read(), kNotServing);
  drain.join();
}

TEST_F(DrainTest, OpenStreamsEndWithDrainingAndHaveAllThatWasTheirs) {
  const v1::SessionRef session = OpenRef();
  const auto session_context = NewContext();
  const auto session_stream = cache().Session(session_context.get());
  v1::SessionRequest request;
  *request.mutable_session() = session;
  v1::SessionResponse response;
  ASSERT_TRUE(session_stream->Write(request) && session_stream->Read(&response));
  const auto watch_context = NewContext();
  const auto watch = events().Watch(watch_context.get(), {});
  v1::WatchResponse message;
  ASSERT_TRUE(watch->Read(&message));
  Allocate(session, 1);
  const uint64_t last = Status().revision();

  std::thread drain([this] { daemon().Drain(); });
  EXPECT_FALSE(session_stream->Read(&response));
  EXPECT_EQ(InfoOf(session_stream->Finish()).reason(), "DRAINING");
  v1::Event last_event;
  while (watch->Read(&message)) {
    if (message.events_size() > 0) last_event = message.events(message.events_size() - 1);
  }
  EXPECT_EQ(message.revision(), last + 1) << "the cache has one window";
  EXPECT_EQ(last_event.removed().reason(), v1::REMOVAL_REASON_RELEASED);
  EXPECT_EQ(last_event.removed().scope(), v1::REMOVAL_SCOPE_POOLS);
  const grpc::Status end = watch->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(InfoOf(end).reason(), "DRAINING");
  drain.join();
}

// Far more events than gRPC's flow control passes to a client that does not read.
constexpr int kStalledBatches = 16;
constexpr int kSequencesPerBatch = 1000;
constexpr uint32_t kSequenceTokens = 120;
constexpr uint32_t kLargeToken = 1u << 30;  // Five bytes on the wire.

// A Watch whose client does not read keeps the drain open long enough for the requests.
TEST_F(DrainTest, NewWorkIsRefusedWhileOldWorkIsFinished) {
  const v1::SessionRef session = OpenRef();
  const auto context = NewContext();
  const auto watch = events().Watch(context.get(), {});
  v1::BatchResult result;
  for (int batch = 0; batch < kStalledBatches; ++batch) {
    std::vector<v1::Operation> operations;
    for (int i = 0; i < kSequencesPerBatch; ++i) {
      const uint32_t token = kLargeToken + batch * kSequencesPerBatch + i;
      operations.push_back(AddOp(1, std::vector<uint32_t>(kSequenceTokens, token)));
      operations.push_back(CommitOp(1, kSequenceTokens));
      operations.push_back(FreeSequenceOp(1));
    }
    ASSERT_TRUE(Execute(session, operations, &result).ok());
  }

  std::thread drain([this] { daemon().Drain(); });
  HealthWatch health(channel(), "");
  while (health.Read() == kServing) {
  }
  const v1::GetStatusResponse status = Status();
  EXPECT_TRUE(status.draining());
  EXPECT_EQ(status.state(), v1::DAEMON_STATE_DRAINING);
  EXPECT_EQ(InfoOf(Execute(session, {AllocateOp(1)}, &result)).reason(), "DRAINING");
  v1::OpenSessionResponse opened;
  EXPECT_EQ(InfoOf(cache().OpenSession(NewContext().get(), {}, &opened)).reason(), "DRAINING");
  v1::WatchResponse message;
  const auto second_context = NewContext();
  const auto second = events().Watch(second_context.get(), {});
  EXPECT_FALSE(second->Read(&message));
  EXPECT_EQ(InfoOf(second->Finish()).reason(), "DRAINING");
  EXPECT_TRUE(Close(session).ok()) << "giving back is welcome";

  while (watch->Read(&message)) {
  }
  EXPECT_EQ(message.revision(), status.revision()) << "a slow client gets everything too";
  EXPECT_EQ(InfoOf(watch->Finish()).reason(), "DRAINING");
  drain.join();
}

TEST_F(DrainTest, TheSocketIsForItsGroupAndGoesWithTheDaemon) {
  Config config = TestConfig();
  const std::string path = config.server.unix_socket;
  auto second = Daemon::Start(config);
  ASSERT_TRUE(second.ok()) << second.status();
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
  second->reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(DrainTest, ASecondDaemonAtTheSamePlaceIsRefused) {
  Config first_config = TestConfig();
  first_config.server.grpc_address = "127.0.0.1:0";
  const auto first = Daemon::Start(first_config);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ((*first)->grpc_endpoints().size(), 2u);

  Config same_port = TestConfig();
  same_port.server.grpc_address = (*first)->grpc_endpoints()[1];
  const auto refused = Daemon::Start(same_port);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(same_port.server.grpc_address));

  Config same_socket = TestConfig();
  same_socket.server.unix_socket = first_config.server.unix_socket;
  const auto also_refused = Daemon::Start(same_socket);
  EXPECT_FALSE(also_refused.ok());
  EXPECT_THAT(
      std::string(also_refused.status().message()),
      HasSubstr(std::filesystem::path(first_config.server.unix_socket).filename().string()));
}

// The messages that a service manager receives from a daemon. The socket exists before the daemon's
// threads, which look it up in the environment.
struct ServiceManager {
  NotifySocket socket{absl::StrCat(::testing::TempDir(), "/drain-", getpid(), ".sock")};
};

class HeardDrainTest : protected ServiceManager, public DaemonTest {
 protected:
  // The messages so far that begin with `text`.
  int Heard(const std::string& text) {
    while (true) {
      const std::string message = socket.TryReceive();
      if (message.empty()) break;
      messages_.push_back(message);
    }
    return static_cast<int>(
        std::count_if(messages_.begin(), messages_.end(),
                      [&](const std::string& message) { return absl::StartsWith(message, text); }));
  }

 private:
  std::vector<std::string> messages_;
};

TEST_F(HeardDrainTest, DrainingTwiceIsDrainingOnce) {
  EXPECT_EQ(Heard("READY=1"), 1);
  daemon().Drain();
  EXPECT_EQ(Heard("STOPPING=1"), 1);
  EXPECT_EQ(Heard("STATUS=drained"), 1);
  daemon().Drain();
  EXPECT_EQ(Heard("STOPPING=1"), 1);
  EXPECT_EQ(Heard("STATUS=drained"), 1);
}

}  // namespace
}  // namespace pagoda::server
