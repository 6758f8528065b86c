// A whole daemon whose clients send batches through rings: what they see, and how pairs end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/batch_sender.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/cpp/map_socket_call.h"
#include "clients/cpp/ring_stream.h"
#include "server/daemon.h"
#include "server/ring/ring_poller.h"
#include "tests/server/child_process.h"
#include "tests/server/test_daemon.h"
#include "wire/ring/ring_memory.h"

namespace pagoda::server {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
// Longer than a busy machine keeps a thread from its processor.
constexpr uint64_t kShortLeaseMs = 5000;
// A sender that asks for rings with each batch, and waits for the answer however busy the machine.
constexpr RingRetry kWithEachBatch = {
    .first_pause = absl::ZeroDuration(), .most_pause = absl::ZeroDuration(), .timeout = kLong};

v1::SessionRequest Request(uint64_t batch_id, const std::vector<v1::Operation>& operations) {
  v1::SessionRequest request;
  request.set_batch_id(batch_id);
  request.mutable_batch()->mutable_operations()->Add(operations.begin(), operations.end());
  return request;
}

class RingDaemonTest : public DaemonTest {
 protected:
  RingDaemonTest() : RingDaemonTest(TestConfig()) {}
  explicit RingDaemonTest(const Config& config)
      : DaemonTest(config), endpoint_(absl::StrCat("unix:", config.server.unix_socket)) {}

  absl::StatusOr<std::unique_ptr<RingStream>> TryRings(const v1::OpenSessionResponse& opened) {
    return RingStream::Open(opened.map_socket(), opened.session(), kLong);
  }
  std::unique_ptr<RingStream> Rings(const v1::OpenSessionResponse& opened) {
    auto rings = TryRings(opened);
    EXPECT_TRUE(rings.ok()) << rings.status();
    return *std::move(rings);
  }
  // nullopt: not answered through the rings.
  static std::optional<v1::SessionResponse> Call(RingStream& rings,
                                                 const v1::SessionRequest& request) {
    bool sent = false;
    const auto answer = rings.Call(request, absl::Now() + kLong, sent);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : std::nullopt;
  }
  // The error by which the daemon refuses the batch as a whole.
  static absl::Status Refusal(RingStream& rings, const v1::SessionRequest& request) {
    bool sent = false;
    return rings.Call(request, absl::Now() + kLong, sent).status();
  }
  // Sends batches until the pair has ended, and returns why.
  static absl::Status EndOf(RingStream& rings) {
    const absl::Time end = absl::Now() + kLong;
    while (rings.ended().ok() && absl::Now() < end) {
      Refusal(rings, Request(1, {})).IgnoreError();
    }
    return rings.ended();
  }
  // A client may give up one request for rings on a busy machine. It asks again.
  static bool GetsRings(CacheClient& client) {
    return Eventually([&] {
      EXPECT_TRUE(client.Execute({}, {}).ok());
      return TransportOf(client) == Transport::kRings;
    });
  }
  // Waits for what another thread or process does, in wall-clock time.
  template <class Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time end = absl::Now() + kLong;
    while (absl::Now() < end) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
  // By session.
  std::map<uint64_t, v1::SessionTransport> Transports() {
    v1::ListSessionsResponse list;
    const grpc::Status status = admin().ListSessions(NewContext().get(), {}, &list);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<uint64_t, v1::SessionTransport> transports;
    for (const v1::SessionInfo& session : list.sessions()) {
      transports[session.session_id()] = session.transport();
    }
    return transports;
  }
  // The threads that serve rings. Others come and go by themselves.
  static size_t Pollers() {
    size_t count = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(thread.path() / "comm") >> std::ws, name);
      count += name == RingPoller::kThreadName ? 1 : 0;
    }
    return count;
  }

  const std::string endpoint_;
};

TEST_F(RingDaemonTest, BatchesAreAnsweredInOrderWithTheirIds) {
  const auto rings = Rings(Open());
  v1::SessionRequest request = Request(100, {AllocateOp(1)});
  for (uint64_t id = 100; id < 2000; ++id) {
    request.set_batch_id(id);
    const auto answer = Call(*rings, request);
    ASSERT_TRUE(answer.has_value()) << rings->ended();
    ASSERT_EQ(answer->batch_id(), id);
    ASSERT_EQ(answer->result().results_size(), 1);
    request = Request(id, {});
    const auto& blocks = answer->result().results(0);
    *request.mutable_batch()->add_operations() =
        blocks.has_allocate_blocks() ? FreeOp(HandlesOf(blocks.allocate_blocks().blocks()))
                                     : AllocateOp(3);
    ASSERT_FALSE(blocks.has_error()) << blocks.error().message();
  }
}

TEST_F(RingDaemonTest, APairServesItsSessionAlone) {
  const v1::OpenSessionResponse opened = Open();
  const auto rings = Rings(opened);
  v1::SessionRequest request = Request(1, {});
  *request.mutable_session() = opened.session();
  EXPECT_TRUE(Call(*rings, request).has_value());
  *request.mutable_session() = OpenRef();
  const absl::Status refusal = Refusal(*rings, request);
  EXPECT_EQ(ReasonOf(refusal), Reason::kInvalidArgument) << refusal;
}

TEST_F(RingDaemonTest, ABatchThatIsRefusedAsAWholeLeavesThePairOpen) {
  const auto rings = Rings(Open());
  for (int i = 0; i < 3; ++i) {
    const absl::Status refusal =
        Refusal(*rings, Request(1, std::vector<v1::Operation>(5000, AllocateOp(1))));
    EXPECT_EQ(ReasonOf(refusal), Reason::kBatchTooLarge) << refusal;
    EXPECT_TRUE(Call(*rings, Request(2, {AllocateOp(1)})).has_value()) << rings->ended();
  }
  EXPECT_EQ(Primary().active_blocks(), 3u);
}

TEST_F(RingDaemonTest, OnlyASessionsTokenGivesRings) {
  v1::OpenSessionResponse opened = Open();
  opened.mutable_session()->set_token(opened.session().token() + 1);
  EXPECT_NE(ReasonOf(TryRings(opened).status()), Reason::kNone);
  v1::MapPoolsRequest both;
  *both.mutable_session() = OpenRef();
  both.mutable_rings();
  both.set_access(v1::MAP_ACCESS_READ);
  EXPECT_EQ(ReasonOf(CallMapSocket(opened.map_socket(), both, kLong).status()),
            Reason::kInvalidArgument);
}

TEST_F(RingDaemonTest, ASecondPairReplacesTheFirst) {
  const v1::OpenSessionResponse opened = Open();
  const auto first = Rings(opened);
  EXPECT_TRUE(Call(*first, Request(1, {})).has_value());
  const auto second = Rings(opened);
  EXPECT_TRUE(absl::IsAborted(EndOf(*first))) << first->ended();
  EXPECT_TRUE(Call(*second, Request(2, {})).has_value());
}

TEST_F(RingDaemonTest, ClosingTheSessionEndsItsPair) {
  const v1::OpenSessionResponse opened = Open();
  const auto rings = Rings(opened);
  ASSERT_TRUE(Close(opened.session()).ok());
  EXPECT_EQ(ReasonOf(EndOf(*rings)), Reason::kStaleSession) << rings->ended();
}

TEST_F(RingDaemonTest, BatchesRenewTheLeaseAndAnIdlePairDoesNotHoldIt) {
  const v1::OpenSessionResponse opened = Open(kShortLeaseMs);
  const auto rings = Rings(opened);
  const absl::Time end = absl::Now() + absl::Milliseconds(kShortLeaseMs + 1000);
  while (absl::Now() < end) {
    ASSERT_TRUE(Call(*rings, Request(1, {})).has_value()) << rings->ended();
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(Eventually([&] { return Status().sessions() == 0; }));
  EXPECT_EQ(ReasonOf(EndOf(*rings)), Reason::kStaleSession) << rings->ended();
}

// The batch runs once, and gRPC repeats its answer.
TEST_F(RingDaemonTest, AnAnswerLongerThanTheRingComesOverGrpc) {
  const v1::OpenSessionResponse opened = Open();
  v1::MapPoolsRequest ask;
  *ask.mutable_session() = opened.session();
  ask.mutable_rings()->set_bytes(1);
  auto answer = CallMapSocket(opened.map_socket(), ask, kLong);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->response.rings().bytes(), ring::kMinBytes);
  std::string error;
  const auto rings = ring::Client::Open(
      std::move(answer->descriptors[0]), std::move(answer->descriptors[1]),
      answer->response.rings().version(), answer->response.rings().bytes(), &error);
  ASSERT_NE(rings, nullptr) << error;

  v1::Operation capacity;
  capacity.mutable_query_capacity();
  std::vector<v1::Operation> operations(300, capacity);
  operations[0] = AllocateOp(5);
  v1::SessionRequest request = Request(1, operations);
  request.mutable_batch()->set_retry_id(7);
  ASSERT_EQ(rings->Send(request.SerializeAsString()), ring::Client::Outcome::kOk);
  std::string bytes;
  ASSERT_EQ(rings->Receive(ring::Clock::now() + std::chrono::minutes(1), &bytes),
            ring::Client::Outcome::kAnswerTooLarge);

  const auto context = NewContext();
  v1::ExecuteRequest again;
  *again.mutable_session() = opened.session();
  *again.mutable_batch() = request.batch();
  v1::ExecuteResponse repeated;
  ASSERT_TRUE(cache().Execute(context.get(), again, &repeated).ok());
  EXPECT_EQ(repeated.result().results_size(), 300);
  EXPECT_EQ(repeated.result().results(0).allocate_blocks().blocks().size(),
            5 * sizeof(BlockHandle));
  EXPECT_EQ(Primary().active_blocks(), 5u) << "the batch ran once";
  // The pair goes on.
  ASSERT_EQ(rings->Send(Request(2, {}).SerializeAsString()), ring::Client::Outcome::kOk);
  ASSERT_EQ(rings->Receive(ring::Clock::now() + std::chrono::minutes(1), &bytes),
            ring::Client::Outcome::kOk);
}

TEST_F(RingDaemonTest, ABatchWhoseDeadlineIsOverIsNotSentAndThePairGoesOn) {
  const auto rings = Rings(Open());
  for (const absl::Time over : {absl::Now(), absl::InfinitePast()}) {
    bool sent = false;
    const auto answer = rings->Call(Request(1, {AllocateOp(1)}), over, sent);
    EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
    EXPECT_EQ(ReasonOf(answer.status()), Reason::kNone);
    EXPECT_FALSE(sent);
  }
  EXPECT_TRUE(Call(*rings, Request(2, {AllocateOp(1)})).has_value()) << rings->ended();
  EXPECT_EQ(Primary().active_blocks(), 1u) << "only the last batch ran";
}

TEST_F(RingDaemonTest, ADrainEndsPairsAndGivesNoNewOnes) {
  const v1::OpenSessionResponse opened = Open();
  const auto rings = Rings(opened);
  EXPECT_TRUE(Call(*rings, Request(1, {AllocateOp(1)})).has_value());
  std::thread drain([this] { daemon().Drain(); });
  EXPECT_EQ(ReasonOf(EndOf(*rings)), Reason::kDraining) << rings->ended();
  drain.join();
  const auto late = TryRings(opened);
  EXPECT_EQ(ReasonOf(late.status()), Reason::kDraining) << late.status();
}

TEST_F(RingDaemonTest, AKilledClientsPairEndsAndItsSessionWithItsLease) {
  const v1::OpenSessionResponse opened = Open(kShortLeaseMs);
  {
    ChildProcess client(
        [&] {
          auto rings = RingStream::Open(opened.map_socket(), opened.session(), kLong);
          bool sent = false;
          if (!rings.ok() ||
              !(*rings)->Call(Request(1, {AllocateOp(3)}), absl::Now() + kLong, sent).ok()) {
            _exit(1);
          }
          // Dies in the middle of a stream of batches.
          std::thread([rings = std::move(*rings)]() mutable {
            bool more_sent = false;
            while (rings->Call(Request(2, {}), absl::Now() + kLong, more_sent).ok()) {
            }
          }).detach();
        },
        ChildProcess::Files::kNone);
    EXPECT_EQ(Pollers(), 1u) << "a poller serves the pair";
    EXPECT_EQ(Primary().active_blocks(), 3u);
  }
  EXPECT_TRUE(Eventually([] { return Pollers() == 0; })) << "the poller ends";
  EXPECT_TRUE(Eventually([&] { return Status().sessions() == 0; }));
  EXPECT_EQ(Primary().active_blocks(), 0u);
}

// The other session goes on, whatever one client does to its own memory.
TEST_F(RingDaemonTest, AClientThatScribblesOverItsRingsEndsItsOwnPairOnly) {
  const auto rings = Rings(Open());
  uint64_t batches = 0;
  for (int round = 0; round < 30; ++round) {
    const v1::OpenSessionResponse opened = Open();
    ChildProcess client(
        [&] {
          v1::MapPoolsRequest ask;
          *ask.mutable_session() = opened.session();
          ask.mutable_rings();
          auto answer = CallMapSocket(opened.map_socket(), ask, kLong);
          if (!answer.ok()) _exit(1);
          const FileDescriptor& memory_fd = answer->descriptors[0];
          const int wake = answer->descriptors[1].get();
          std::string error;
          const auto memory = ring::Memory::Map(memory_fd, ring::kVersion,
                                                answer->response.rings().bytes(), &error);
          if (memory == nullptr) _exit(1);
          std::mt19937_64 random(static_cast<uint64_t>(round));
          char* const bytes = reinterpret_cast<char*>(&memory->control());
          ring::Writer writer(&memory->control().requests, memory->requests(), memory->bytes());
          const std::string request = Request(1, {AllocateOp(1)}).SerializeAsString();
          for (int i = 0; i < 200; ++i) {
            writer.Write(ring::Kind::kRequest, request);
            ring::Wake(wake);
            const size_t place = random() % (round % 2 == 0 ? 640 : 8192);
            bytes[place] = static_cast<char>(random());
          }
        },
        ChildProcess::Files::kNone);
    for (int i = 0; i < 20; ++i) {
      const auto answer = Call(*rings, Request(++batches, {AllocateOp(0)}));
      ASSERT_TRUE(answer.has_value()) << rings->ended();
      ASSERT_EQ(answer->batch_id(), batches);
    }
    client.Kill();
    ASSERT_TRUE(Close(opened.session()).ok());
  }
}

TEST_F(RingDaemonTest, AClientThatNeverReadsItsAnswersEndsItsPair) {
  const v1::OpenSessionResponse opened = Open();
  v1::MapPoolsRequest ask;
  *ask.mutable_session() = opened.session();
  ask.mutable_rings()->set_bytes(ring::kMinBytes);
  auto answer = CallMapSocket(opened.map_socket(), ask, kLong);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const FileDescriptor& memory_fd = answer->descriptors[0];
  std::string error;
  const auto memory =
      ring::Memory::Map(memory_fd, ring::kVersion, answer->response.rings().bytes(), &error);
  ASSERT_NE(memory, nullptr) << error;
  ring::Writer writer(&memory->control().requests, memory->requests(), memory->bytes());
  const std::string request = Request(1, {AllocateOp(0)}).SerializeAsString();
  const auto ended = [&] { return memory->control().ending.state.load() != 0; };
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 100; ++i) writer.Write(ring::Kind::kRequest, request);
    ring::Wake(answer->descriptors[1].get());
    return ended();
  }));
  const auto other = Rings(Open());
  EXPECT_TRUE(Call(*other, Request(1, {})).has_value());
}

TEST_F(RingDaemonTest, ThePollerEndsWithTheLastPair) {
  const v1::OpenSessionResponse opened = Open();
  const v1::OpenSessionResponse other = Open();
  EXPECT_EQ(Pollers(), 0u);
  auto first = Rings(opened);
  auto second = Rings(other);
  EXPECT_TRUE(Call(*first, Request(1, {})).has_value());
  EXPECT_TRUE(Call(*second, Request(1, {})).has_value());
  EXPECT_EQ(Pollers(), 1u) << "one poller for the sessions of a cache";
  first.reset();
  second.reset();
  EXPECT_TRUE(Eventually([] { return Pollers() == 0; }));
  EXPECT_TRUE(Call(*Rings(opened), Request(2, {})).has_value());
}

TEST_F(RingDaemonTest, ClientsOfAUnixSocketUseRingsByThemselves) {
  const auto client = OpenGrpcCacheClient({.endpoint = endpoint_, .client_name = "test"});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(GetsRings(**client));
  EXPECT_TRUE(RunOne<AllocatedBlocks>(**client, AllocateBlocks{kFullAttention, 1}).ok());
  const auto other = OpenGrpcCacheClient(
      {.endpoint = endpoint_, .client_name = "test", .transport = Transport::kGrpc});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(TransportOf(**other), Transport::kGrpc);
}

// The daemon is busy when the client opens, or its map socket comes later.
TEST_F(RingDaemonTest, AClientWithoutRingsAsksForThemAgain) {
  const std::string socket = Open().map_socket();
  const std::string away = absl::StrCat(socket, ".away");
  std::filesystem::rename(socket, away);
  // A socket that nobody answers.
  const FileDescriptor silent(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket.size(), sizeof(address.sun_path));
  socket.copy(address.sun_path, socket.size());
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(silent.get(), 1), 0);
  const absl::Time begun = absl::Now();
  const auto client =
      OpenGrpcCacheClient({.endpoint = endpoint_, .client_name = "test", .timeout = 2 * kLong});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_LT(absl::Now() - begun, kLong) << "rings are not worth the whole timeout";
  EXPECT_EQ(TransportOf(**client), Transport::kGrpc);
  std::filesystem::rename(away, socket);
  EXPECT_TRUE(GetsRings(**client));
}

TEST_F(RingDaemonTest, OperatorsSeeHowTheBatchesOfASessionCome) {
  const v1::OpenSessionResponse with_rings = Open();
  auto rings = Rings(with_rings);
  const v1::OpenSessionResponse without = Open();
  EXPECT_THAT(Transports(),
              testing::ElementsAre(
                  testing::Pair(with_rings.session().session_id(), v1::SESSION_TRANSPORT_RINGS),
                  testing::Pair(without.session().session_id(), v1::SESSION_TRANSPORT_GRPC)));
  rings.reset();
  EXPECT_TRUE(Eventually([&] {
    return Transports()[with_rings.session().session_id()] == v1::SESSION_TRANSPORT_GRPC;
  })) << "the pair has ended";
}

// A daemon of another version, as a client sees it: its map socket forwards each request, and says
// another version in the answer.
class OtherVersion {
 public:
  OtherVersion(const std::string& path, std::string real, uint32_t version)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    thread_ = std::thread([this, real = std::move(real), version] {
      while (true) {
        const FileDescriptor client(accept(socket_.get(), nullptr, nullptr));
        if (!client.valid()) return;
        Serve(client.get(), real, version);
      }
    });
  }
  ~OtherVersion() {
    shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  int asked() const { return asked_; }

 private:
  void Serve(int client, const std::string& real, uint32_t version) {
    std::array<char, 1024> packet;
    v1::MapPoolsRequest request;
    const ssize_t size = recv(client, packet.data(), packet.size(), 0);
    ASSERT_GT(size, 0) << std::strerror(errno);
    ASSERT_TRUE(request.ParseFromArray(packet.data(), static_cast<int>(size)));
    auto answer = CallMapSocket(real, request, kLong);
    ASSERT_TRUE(answer.ok()) << answer.status();
    answer->response.mutable_rings()->set_version(version);
    std::string bytes = answer->response.SerializeAsString();
    iovec data = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const std::array<int, 2> fds = {answer->descriptors[0].get(), answer->descriptors[1].get()};
    std::memcpy(CMSG_DATA(part), fds.data(), sizeof(fds));
    ++asked_;
    // Each client of this test waits long enough for it.
    EXPECT_GT(sendmsg(client, &message, MSG_NOSIGNAL), 0) << std::strerror(errno);
  }

  const FileDescriptor socket_;
  std::atomic<int> asked_ = 0;
  std::thread thread_;
};

class OtherVersionTest : public RingDaemonTest {
 protected:
  // Sends a few batches, which must go over gRPC.
  static void SendOverGrpc(BatchSender& sender) {
    for (uint64_t id = 1; id <= 3; ++id) {
      v1::SessionRequest request = Request(id, {});
      bool sent = false;
      const auto answer = sender.Send(request, Resend::kFreely, absl::Now() + kLong, sent);
      EXPECT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(sender.transport(), Transport::kGrpc);
    }
  }
};

TEST_F(OtherVersionTest, AClientUsesGrpcAndAsksOnce) {
  const v1::OpenSessionResponse opened = Open();
  const std::string& socket = opened.map_socket();
  const std::string away = absl::StrCat(socket, ".away");
  for (const uint32_t version : {ring::kVersion - 1, ring::kVersion + 1}) {
    std::filesystem::rename(socket, away);
    {
      OtherVersion other(socket, away, version);
      const auto forced = OpenGrpcCacheClient({.endpoint = endpoint_,
                                               .client_name = "test",
                                               .timeout = kLong,
                                               .transport = Transport::kRings});
      EXPECT_TRUE(absl::IsUnimplemented(forced.status())) << forced.status();
      BatchSender sender(&cache(), opened.session(), kWithEachBatch);
      const absl::Status refused = sender.UseRings(socket, kLong);
      EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
      EXPECT_EQ(other.asked(), 2);
      SendOverGrpc(sender);
      EXPECT_EQ(other.asked(), 2) << "no daemon changes its version while it runs";
    }
    std::filesystem::remove(socket);
    std::filesystem::rename(away, socket);
  }
  const auto client = OpenGrpcCacheClient({.endpoint = endpoint_, .client_name = "test"});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(GetsRings(**client));
}

TEST_F(OtherVersionTest, AClientThatAsksAgainStopsWhenItLearnsTheVersion) {
  const v1::OpenSessionResponse opened = Open();
  const std::string later = absl::StrCat(opened.map_socket(), ".later");
  BatchSender sender(&cache(), opened.session(), kWithEachBatch);
  const absl::Status missing = sender.UseRings(later, kLong);
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  OtherVersion other(later, opened.map_socket(), ring::kVersion + 1);
  SendOverGrpc(sender);
  EXPECT_EQ(other.asked(), 1);
  std::filesystem::remove(later);
}

class FewCallsTest : public RingDaemonTest {
 protected:
  static constexpr uint32_t kMaxCalls = 3;
  static Config WithFewCalls() {
    Config config = TestConfig();
    config.server.max_calls = kMaxCalls;
    return config;
  }
  FewCallsTest() : RingDaemonTest(WithFewCalls()) {}
};

TEST_F(FewCallsTest, IdlePairsTakeNoCallFromGrpc) {
  std::vector<std::unique_ptr<RingStream>> pairs;
  for (uint32_t i = 0; i < 2 * kMaxCalls; ++i) pairs.push_back(Rings(Open()));
  for (const auto& pair : pairs) EXPECT_TRUE(Call(*pair, Request(1, {})).has_value());
  v1::KeepAliveRequest keep;
  *keep.mutable_session() = OpenRef();
  v1::KeepAliveResponse kept;
  const grpc::Status status = cache().KeepAlive(NewContext().get(), keep, &kept);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

class RingsOffTest : public RingDaemonTest {
 protected:
  static Config WithoutRings() {
    Config config = TestConfig();
    config.server.rings = false;
    return config;
  }
  RingsOffTest() : RingDaemonTest(WithoutRings()) {}
};

TEST_F(RingsOffTest, ClientsUseGrpc) {
  EXPECT_TRUE(absl::IsUnimplemented(TryRings(Open()).status()));
  const auto client = OpenGrpcCacheClient({.endpoint = endpoint_, .client_name = "test"});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(TransportOf(**client), Transport::kGrpc);
  EXPECT_TRUE(RunOne<AllocatedBlocks>(**client, AllocateBlocks{kFullAttention, 1}).ok());
  const auto forced = OpenGrpcCacheClient(
      {.endpoint = endpoint_, .client_name = "test", .transport = Transport::kRings});
  EXPECT_TRUE(absl::IsUnimplemented(forced.status())) << forced.status();
}

}  // namespace
}  // namespace pagoda::server
