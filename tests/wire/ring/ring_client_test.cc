// The client's side of a pair, against a daemon that the test plays.
#include "wire/ring/ring_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace pagoda::ring {
namespace {

using Outcome = Client::Outcome;

constexpr uint32_t kBytes = kMinBytes;

Clock::time_point After(std::chrono::milliseconds wait) { return Clock::now() + wait; }
// Long enough for every answer that comes.
Clock::time_point Long() { return After(std::chrono::minutes(1)); }

// The daemon's side of a pair.
struct Daemon {
  Daemon() { EXPECT_TRUE(MakeWakeSockets(&wake, &client_wake)); }
  Control& control() const { return memory->control(); }

  // The next request. Waits for it.
  std::string Take() {
    Kind kind;
    std::string request;
    while (requests.Read(&kind, &request) == Reader::Outcome::kEmpty) std::this_thread::yield();
    EXPECT_EQ(kind, Kind::kRequest);
    return request;
  }
  void Answer(Kind kind, const std::string& answer) {
    EXPECT_EQ(answers.Write(kind, answer), Writer::Outcome::kWritten);
    if (answers.ReaderWaits()) Wake(wake.get());
  }
  void End(const std::string& reason) {
    std::memcpy(control().ending.reason.data(), reason.data(), reason.size());
    control().ending.state.store(static_cast<uint32_t>(1 + reason.size()));
    wake = FileDescriptor();
  }

  FileDescriptor wake;
  FileDescriptor client_wake;
  FileDescriptor client_memory;
  std::unique_ptr<Memory> memory = Memory::Create(kBytes, &client_memory);
  Reader requests{&control().requests, memory->requests(), kBytes};
  Writer answers{&control().answers, memory->answers(), kBytes};
};

class RingClientTest : public testing::Test {
 protected:
  std::unique_ptr<Client> Open(uint32_t version = kVersion, uint32_t bytes = kBytes) {
    return Client::Open(std::move(daemon_.client_memory), std::move(daemon_.client_wake), version,
                        bytes, &error_);
  }

  Daemon daemon_;
  std::string error_;
  std::string answer_;
};

TEST_F(RingClientTest, GetsTheAnswerOfEachRequest) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_NE(client, nullptr) << error_;
  constexpr int kRequests = 20'000;
  std::thread daemon([this] {
    for (int i = 0; i < kRequests; ++i) {
      const std::string request = daemon_.Take();
      if (i % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      daemon_.Answer(Kind::kAnswer, "answer of " + request);
    }
  });
  for (int i = 0; i < kRequests; ++i) {
    const std::string request(i % 2000, static_cast<char>('a' + i % 26));
    ASSERT_EQ(client->Send(request), Outcome::kOk);
    ASSERT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
    ASSERT_EQ(answer_, "answer of " + request);
  }
  daemon.join();
}

TEST_F(RingClientTest, MessagesThatAreTooLongGoElsewhere) {
  const std::unique_ptr<Client> client = Open();
  EXPECT_EQ(client->Send(std::string(client->max_request_bytes() + 1, 'x')),
            Outcome::kRequestTooLarge);
  ASSERT_EQ(client->Send("long answer, please"), Outcome::kOk);
  daemon_.Take();
  daemon_.Answer(Kind::kAnswerTooLarge, "");
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kAnswerTooLarge);
  // The pair goes on.
  ASSERT_EQ(client->Send(std::string(client->max_request_bytes(), 'x')), Outcome::kOk);
  daemon_.Take();
  daemon_.Answer(Kind::kAnswer, "short");
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
}

TEST_F(RingClientTest, ARefusalIsAnAnswerAndThePairGoesOn) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("bad request"), Outcome::kOk);
  daemon_.Take();
  daemon_.Answer(Kind::kRefusal, "why");
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kRefused);
  EXPECT_EQ(answer_, "why");
  ASSERT_EQ(client->Send("good request"), Outcome::kOk);
  EXPECT_EQ(daemon_.Take(), "good request");
  daemon_.Answer(Kind::kAnswer, "answer");
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
}

TEST_F(RingClientTest, ALateAnswerCanStillBeReceived) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  EXPECT_EQ(client->Receive(After(std::chrono::milliseconds(1)), &answer_), Outcome::kTimeout);
  EXPECT_EQ(client->Receive(Clock::now() - std::chrono::seconds(1), &answer_), Outcome::kTimeout);
  daemon_.Take();
  daemon_.Answer(Kind::kAnswer, "late");
  ASSERT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
  EXPECT_EQ(answer_, "late");
}

TEST_F(RingClientTest, LearnsWhyTheDaemonEndedThePair) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  std::thread daemon([this] {
    daemon_.Take();
    daemon_.End("the reason");
  });
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kEnded);
  EXPECT_EQ(client->reason(), "the reason");
  EXPECT_NE(client->error(), "");
  EXPECT_EQ(client->Send("request"), Outcome::kEnded);
  daemon.join();
}

TEST_F(RingClientTest, AnAnswerBeforeTheEndCounts) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  daemon_.Take();
  daemon_.Answer(Kind::kAnswer, "the last one");
  daemon_.End("drained");
  ASSERT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
  EXPECT_EQ(answer_, "the last one");
  EXPECT_EQ(client->Send("request"), Outcome::kEnded);
  EXPECT_EQ(client->reason(), "drained");
}

TEST_F(RingClientTest, ADaemonThatIsGoneEndsThePairAtOnce) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  std::thread daemon([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    daemon_.wake = FileDescriptor();
  });
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kEnded);
  EXPECT_EQ(client->reason(), "");
  daemon.join();
}

TEST_F(RingClientTest, DamageByTheDaemonEndsThePair) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  daemon_.control().answers.written.store(12345);
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kEnded);
}

TEST_F(RingClientTest, AnUnknownKindOrAReasonBeyondTheMemoryEndsThePair) {
  const std::unique_ptr<Client> client = Open();
  ASSERT_EQ(client->Send("request"), Outcome::kOk);
  daemon_.Take();
  daemon_.Answer(static_cast<Kind>(77), "what?");
  daemon_.control().ending.state.store(0xffffffff);
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kEnded);
  EXPECT_EQ(client->reason(), "");
}

TEST_F(RingClientTest, AFullRingOfRequestsEndsThePair) {
  const std::unique_ptr<Client> client = Open();
  Outcome outcome = Outcome::kOk;
  for (int i = 0; i < 3 && outcome == Outcome::kOk; ++i) {
    outcome = client->Send(std::string(kBytes / 2, 'x'));
  }
  EXPECT_EQ(outcome, Outcome::kEnded);
}

TEST_F(RingClientTest, TakesOnlyMemoryThatItKnows) {
  EXPECT_EQ(Open(kVersion + 1), nullptr);
  EXPECT_NE(error_.find("version"), std::string::npos) << error_;
  EXPECT_EQ(Client::Open(FileDescriptor(dup(daemon_.client_memory.get())), FileDescriptor(),
                         kVersion, kBytes + 1, &error_),
            nullptr);
  EXPECT_EQ(Client::Open(FileDescriptor(dup(daemon_.client_memory.get())), FileDescriptor(),
                         kVersion, 2 * kBytes, &error_),
            nullptr);
  EXPECT_NE(error_.find("size"), std::string::npos) << error_;
}

TEST(RingMemory, NobodyCanCutItOff) {
  FileDescriptor fd;
  const auto memory = Memory::Create(kBytes, &fd);
  ASSERT_NE(memory, nullptr);
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
  EXPECT_NE(ftruncate(fd.get(), static_cast<off_t>(2 * MemoryBytes(kBytes))), 0);
  EXPECT_NE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(RingMemory, WithoutSealsAClientRefusesIt) {
  std::string error;
  FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(MemoryBytes(kBytes))), 0);
  EXPECT_EQ(Memory::Map(fd, kVersion, kBytes, &error), nullptr);
  EXPECT_NE(error.find("sealed"), std::string::npos) << error;
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(Memory::Map(fd, kVersion, kBytes, &error), nullptr);
}

// The child maps for itself, answers a few requests, and is then killed in the middle.
TEST_F(RingClientTest, WorksBetweenTwoProcessesUntilOneDies) {
  const std::unique_ptr<Client> client =
      Client::Open(FileDescriptor(dup(daemon_.client_memory.get())), std::move(daemon_.client_wake),
                   kVersion, kBytes, &error_);
  const pid_t child = fork();
  if (child == 0) {
    std::string error;
    const auto memory = Memory::Map(daemon_.client_memory, kVersion, kBytes, &error);
    if (memory == nullptr || client->Send("the parent's") != Outcome::kEnded) _exit(1);
    Reader requests(&memory->control().requests, memory->requests(), kBytes);
    Writer answers(&memory->control().answers, memory->answers(), kBytes);
    Kind kind;
    std::string request;
    for (int i = 0; i < 1000; ++i) {
      while (requests.Read(&kind, &request) == Reader::Outcome::kEmpty) std::this_thread::yield();
      answers.Write(Kind::kAnswer, request);
      if (answers.ReaderWaits()) Wake(daemon_.wake.get());
    }
    // The next request gets no answer.
    while (!requests.HasMessage()) std::this_thread::yield();
    abort();
  }
  daemon_.wake = FileDescriptor();  // The child alone has this end now.
  for (int i = 0; i < 1000; ++i) {
    const std::string request = std::to_string(i);
    ASSERT_EQ(client->Send(request), Outcome::kOk);
    ASSERT_EQ(client->Receive(Long(), &answer_), Outcome::kOk);
    ASSERT_EQ(answer_, request);
  }
  ASSERT_EQ(client->Send("the last one"), Outcome::kOk);
  EXPECT_EQ(client->Receive(Long(), &answer_), Outcome::kEnded);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the child could not map the memory";
}

}  // namespace
}  // namespace pagoda::ring
