#include "server/memory/writer_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "events/block_hash.h"
#include "tests/server/child_process.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string TableName() {
  static int count = 0;
  return absl::StrCat("/pagoda-test-", getpid(), "-", ++count, "-writers");
}

SessionRef Ref(uint64_t id) { return {SessionId(id), SessionToken(1000 + id, 2000 + id)}; }

// A core with sessions of one slot each.
class FakeCore {
 public:
  void Open(uint64_t id) { open_.insert(id); }
  void Close(uint64_t id) { open_.erase(id); }
  // The session's lease expires.
  void Expire(uint64_t id) {
    open_.erase(id);
    if (noted_.contains(id)) quarantined_.insert(SessionId(id));
  }
  // The session has ended and its blocks are being freed. They are quarantined when that is done.
  void BeginToEnd(uint64_t id) {
    open_.erase(id);
    ending_.insert(id);
  }
  void FinishEnding(uint64_t id) {
    ending_.erase(id);
    quarantined_.insert(SessionId(id));
  }
  void QuarantineEarlierRuns() { quarantined_.insert(WriterProcesses::kEarlierRuns); }
  void Force(uint64_t id) { quarantined_.erase(SessionId(id)); }
  const std::set<SessionId>& quarantined() const { return quarantined_; }
  const std::vector<uint64_t>& released() const { return released_; }

  WriterProcesses::Core Api() {
    const auto check = [this](SessionRef ref) {
      if (!open_.contains(ref.id.value())) return MakeError(Reason::kUnknownSession, "no session");
      const bool own = ref.token == Ref(ref.id.value()).token;
      return own ? absl::OkStatus() : MakeError(Reason::kStaleSession, "another token");
    };
    const auto tenant = [check](SessionRef ref) -> absl::StatusOr<std::string> {
      if (absl::Status status = check(ref); !status.ok()) return status;
      return ref.id.value() % 2 == 1 ? "blue" : "red";
    };
    return {.check = check,
            .tenant = tenant,
            .remembers =
                [this, check](SessionRef ref) {
                  return check(ref).ok() || ending_.contains(ref.id.value()) ||
                         quarantined_.contains(ref.id);
                },
            .note_writer =
                [this, check](SessionRef ref) {
                  noted_.insert(ref.id.value());
                  return check(ref);
                },
            .writers_gone = [this](SessionId id) { noted_.erase(id.value()); },
            .quarantined = [this] { return std::vector(quarantined_.begin(), quarantined_.end()); },
            .release =
                [this](SessionId id) {
                  quarantined_.erase(id);
                  released_.push_back(id.value());
                }};
  }

 private:
  std::set<uint64_t> open_, ending_;
  std::set<uint64_t> noted_;
  std::set<SessionId> quarantined_;
  std::vector<uint64_t> released_;
};

// A socket that children connect to.
class Listener {
 public:
  Listener() : path_(absl::StrCat(::testing::TempDir(), "/peer-", getpid(), ".sock")) {
    unlink(path_.c_str());
    fd_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address = Address();
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
  }
  ~Listener() { unlink(path_.c_str()); }

  // The client's end. The child leaks it on purpose.
  int Connect() const {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const sockaddr_un address = Address();
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) _exit(1);
    return fd;
  }
  FileDescriptor Accept() const { return FileDescriptor(accept(fd_.get(), nullptr, nullptr)); }

 private:
  sockaddr_un Address() const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    return address;
  }

  const std::string path_;
  FileDescriptor fd_;
};

// A child that has connected, and its connection.
struct Peer {
  explicit Peer(const Listener& listener)
      : child([&] { listener.Connect(); }, ChildProcess::Files::kNone),
        connection(listener.Accept()) {}
  PeerProcess process() const { return PeerProcess::Of(connection.get()).value(); }

  ChildProcess child;
  FileDescriptor connection;
};

TEST(PeerProcessTest, TellsALivingPeerFromADeadOneInBothWays) {
  const Listener listener;
  for (const auto of : {&PeerProcess::Of, &PeerProcess::ByCredentials}) {
    Peer peer(listener);
    const auto process = of(peer.connection.get());
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_EQ(process->pid(), peer.child.pid());
    EXPECT_GT(process->identity().start_time, 0u);
    EXPECT_FALSE(process->ended());
    peer.child.Kill();
    EXPECT_TRUE(process->ended());
    EXPECT_TRUE(absl::IsUnavailable(of(peer.connection.get()).status()));
  }
}

TEST(PeerProcessTest, AnEndOfTheConnectionThatAnotherProcessHoldsDoesNotBringTheDeadBack) {
  const Listener listener;
  for (const auto of : {&PeerProcess::Of, &PeerProcess::ByCredentials}) {
    // The child connects. Its own child keeps the connection open after the child dies.
    int pids[2];
    ASSERT_EQ(pipe(pids), 0);
    ChildProcess child([&] {
      listener.Connect();
      const pid_t grandchild = fork();
      if (grandchild == 0) alarm(60);  // Ends even if the test fails.
      while (grandchild == 0) pause();
      if (write(pids[1], &grandchild, sizeof(grandchild)) != sizeof(grandchild)) _exit(1);
    });
    pid_t grandchild = 0;
    ASSERT_EQ(read(pids[0], &grandchild, sizeof(grandchild)), ssize_t{sizeof(grandchild)});
    const FileDescriptor connection = listener.Accept();
    child.Kill();
    EXPECT_TRUE(absl::IsUnavailable(of(connection.get()).status()));
    kill(grandchild, SIGKILL);
    close(pids[0]);
    close(pids[1]);
  }
}

// A process can hide its start time, and old kernels have no inodes of pidfds.
TEST(PeerProcessTest, FindsAProcessByWhatIsKnownOfIt) {
  const Listener listener;
  Peer peer(listener);
  const ProcessIdentity all = peer.process().identity();
  ProcessIdentity by_start = all, by_inode = all;
  by_start.pidfd_inode = 0;
  by_inode.start_time = 0;
  std::vector<PeerProcess> found;
  for (const ProcessIdentity& identity : {all, by_start, by_inode}) {
    auto process = PeerProcess::Find(identity);
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_FALSE(process->ended());
    found.push_back(*std::move(process));
  }
  ++by_start.start_time;
  EXPECT_TRUE(absl::IsNotFound(PeerProcess::Find(by_start).status())) << "the id passed on";
  if (all.pidfd_inode != 0) {
    ++by_inode.pidfd_inode;
    EXPECT_TRUE(absl::IsNotFound(PeerProcess::Find(by_inode).status())) << "the id passed on";
  }
  peer.child.Kill();
  for (const PeerProcess& process : found) EXPECT_TRUE(process.ended());
  EXPECT_TRUE(absl::IsNotFound(PeerProcess::Find(all).status()));
}

TEST(PeerProcessTest, AWriterWhoseBeginningIsHiddenIsNotTakenForDead) {
  const Listener listener;
  Peer peer(listener);
  const ProcessIdentity identity = {.pid = peer.child.pid()};
  const auto process = PeerProcess::Find(identity);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_FALSE(process->ended());
  peer.child.Kill();
  EXPECT_TRUE(process->ended());
  EXPECT_TRUE(absl::IsNotFound(PeerProcess::Find(identity).status()));
}

class WriterProcessesTest : public ::testing::Test {
 protected:
  WriterProcessesTest() {
    Start();
    writers_->ForgetOld();
  }

  void Start() { writers_ = WriterProcesses::Create(name_, core_.Api()).value(); }
  // Like a restart after kill -9: the core has lost its state, the table is unchanged.
  void Restart() {
    writers_->LeaveTable();
    writers_.reset();
    core_ = FakeCore();
    Start();
  }

  const std::string name_ = TableName();
  const Listener listener_;
  FakeCore core_;
  std::unique_ptr<WriterProcesses> writers_;
};

TEST_F(WriterProcessesTest, AnExpiredSessionIsReleasedWhenItsProcessIsDeadAndNotBefore) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  EXPECT_THAT(writers_->Pids(SessionId(1)), ElementsAre(peer.child.pid()));
  core_.Expire(1);
  EXPECT_EQ(writers_->Sweep(), 0u);
  EXPECT_FALSE(writers_->Dead(SessionId(1)));
  const pid_t pid = peer.child.pid();
  EXPECT_THAT(writers_->Pids(SessionId(1)), ElementsAre(pid));
  peer.child.Kill();
  EXPECT_TRUE(writers_->Dead(SessionId(1)));
  EXPECT_THAT(writers_->Pids(SessionId(1)), IsEmpty());
  EXPECT_EQ(writers_->Sweep(), 1u);
  EXPECT_THAT(core_.released(), ElementsAre(1));
  EXPECT_EQ(writers_->Sweep(), 0u);
}

TEST_F(WriterProcessesTest, ASessionThatIsBeingFreedKeepsItsWriter) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  core_.BeginToEnd(1);
  EXPECT_EQ(writers_->Sweep(), 0u);
  core_.FinishEnding(1);
  EXPECT_EQ(writers_->Sweep(), 0u) << "its writer lives";
  EXPECT_THAT(core_.released(), IsEmpty());
  peer.child.Kill();
  EXPECT_EQ(writers_->Sweep(), 1u);
}

TEST_F(WriterProcessesTest, ASessionWhoseProcessIsDeadLeavesNothingBehind) {
  Peer peer(listener_), next(listener_);
  core_.Open(1);
  core_.Open(2);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(2), peer.process()).ok());
  peer.child.Kill();
  writers_->Sweep();
  ASSERT_TRUE(writers_->Note(Ref(2), next.process()).ok());
  core_.Expire(1);
  core_.Expire(2);
  EXPECT_THAT(core_.quarantined(), ElementsAre(SessionId(2))) << "another process came";
}

TEST_F(WriterProcessesTest, EveryProcessOfASessionHasToBeDead) {
  Peer one(listener_), two(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), one.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(1), two.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(1), two.process()).ok()) << "asking again is no other writer";
  EXPECT_EQ(writers_->Pids(SessionId(1)).size(), 2u);
  core_.Expire(1);
  one.child.Kill();
  EXPECT_EQ(writers_->Sweep(), 0u);
  EXPECT_THAT(writers_->Pids(SessionId(1)), ElementsAre(two.child.pid()));
  two.child.Kill();
  EXPECT_EQ(writers_->Sweep(), 1u);
}

TEST_F(WriterProcessesTest, WhatSessionsLeaveWithoutAWriterIsReleasedAtOnce) {
  Peer peer(listener_);
  core_.Open(1);
  core_.Open(2);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(2), peer.process()).ok());
  core_.Close(1);
  core_.Expire(2);
  core_.Force(2);
  EXPECT_EQ(writers_->Sweep(), 0u);
  EXPECT_THAT(writers_->Pids(SessionId(1)), IsEmpty()) << "its client closed it";
  EXPECT_THAT(writers_->Pids(SessionId(2)), IsEmpty()) << "nothing is quarantined any more";
}

TEST_F(WriterProcessesTest, AStrangerCannotBecomeTheWriterOfASession) {
  Peer peer(listener_);
  core_.Open(1);
  EXPECT_EQ(ReasonOf(writers_->Note({SessionId(1), SessionToken(5)}, peer.process())),
            Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(writers_->Note(Ref(2), peer.process())), Reason::kUnknownSession);
  EXPECT_THAT(writers_->Pids(SessionId(1)), IsEmpty());
}

TEST_F(WriterProcessesTest, AProcessThatCannotBeWatchedCountsAsAlive) {
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), PeerProcess::Find({}).value()).ok());
  core_.Expire(1);
  EXPECT_FALSE(writers_->Dead(SessionId(1)));
  EXPECT_EQ(writers_->Sweep(), 0u);
  core_.Force(1);  // Like the client's acknowledgement.
  writers_->Sweep();
  EXPECT_TRUE(writers_->Dead(SessionId(1)));
}

// An open session is never releasable: it can end after the check of its writers.
TEST_F(WriterProcessesTest, OnlyAQuarantineWithoutAWriterIsReleasable) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  EXPECT_EQ(ReasonOf(writers_->CheckReleasable(SessionId(1))), Reason::kUnknownQuarantine);
  core_.Expire(1);
  EXPECT_EQ(ReasonOf(writers_->CheckReleasable(SessionId(1))), Reason::kWriterAlive);
  peer.child.Kill();
  EXPECT_TRUE(writers_->CheckReleasable(SessionId(1)).ok());
  core_.Force(1);
  EXPECT_EQ(ReasonOf(writers_->CheckReleasable(SessionId(1))), Reason::kUnknownQuarantine);
}

TEST_F(WriterProcessesTest, ASessionHasABoundedNumberOfWriters) {
  core_.Open(1);
  core_.Open(2);
  for (size_t i = 0; i < WriterProcesses::kMaxWritersOfSession; ++i) {
    ASSERT_TRUE(writers_->Note(Ref(1), PeerProcess::Find({}).value()).ok());
  }
  const absl::Status refused = writers_->Note(Ref(1), PeerProcess::Find({}).value());
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(writers_->Note(Ref(2), PeerProcess::Find({}).value()).ok());
}

TEST_F(WriterProcessesTest, TheNextDaemonFindsWhoLivesAndWhoWasDead) {
  Peer lives(listener_), dies(listener_), closes(listener_);
  for (const uint64_t id : {1, 2, 3}) core_.Open(id);
  ASSERT_TRUE(writers_->Note(Ref(1), lives.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(2), dies.process()).ok());
  ASSERT_TRUE(writers_->Note(Ref(3), closes.process()).ok());
  core_.Close(3);
  writers_->Sweep();
  dies.child.Kill();

  Restart();
  EXPECT_TRUE(writers_->found_table());
  EXPECT_THAT(writers_->Pids(WriterProcesses::kEarlierRuns), ElementsAre(lives.child.pid()));
  core_.QuarantineEarlierRuns();
  EXPECT_FALSE(writers_->Dead(WriterProcesses::kEarlierRuns));
  EXPECT_EQ(writers_->Sweep(), 0u);

  Restart();  // A second restart keeps the old writers too.
  core_.QuarantineEarlierRuns();
  EXPECT_THAT(writers_->Pids(WriterProcesses::kEarlierRuns), ElementsAre(lives.child.pid()));
  lives.child.Kill();
  EXPECT_TRUE(writers_->Dead(WriterProcesses::kEarlierRuns));
  EXPECT_EQ(writers_->Sweep(), 1u);
  EXPECT_THAT(core_.released(), ElementsAre(0));
}

TEST_F(WriterProcessesTest, AnOldSessionIsAcknowledgedByItsTenantWithItsToken) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  Restart();
  core_.QuarantineEarlierRuns();
  const SessionToken token = Ref(1).token;
  for (const SessionToken forged :
       {SessionToken(token.low() + 1, token.high()), SessionToken(token.low(), token.high() + 1)}) {
    EXPECT_FALSE(writers_->AcknowledgeOld({SessionId(1), forged}, "blue"));
  }
  EXPECT_FALSE(writers_->AcknowledgeOld(Ref(1), "red")) << "another tenant's";
  EXPECT_FALSE(writers_->AcknowledgeOld(Ref(1), "")) << "nobody's";
  EXPECT_FALSE(writers_->Dead(WriterProcesses::kEarlierRuns));
  EXPECT_EQ(writers_->Sweep(), 0u);
  EXPECT_TRUE(writers_->AcknowledgeOld(Ref(1), "blue"));
  EXPECT_FALSE(writers_->AcknowledgeOld(Ref(1), "blue"));
  EXPECT_TRUE(writers_->Dead(WriterProcesses::kEarlierRuns));
  EXPECT_EQ(writers_->Sweep(), 1u);
}

TEST_F(WriterProcessesTest, AnOperatorAcknowledgesAnyOldSessionWithItsToken) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  Restart();
  core_.QuarantineEarlierRuns();
  EXPECT_FALSE(writers_->AcknowledgeOld({SessionId(1), SessionToken()}, std::nullopt));
  EXPECT_TRUE(writers_->AcknowledgeOld(Ref(1), std::nullopt));
  EXPECT_EQ(writers_->Sweep(), 1u);
}

TEST_F(WriterProcessesTest, OfNewPoolsNobodyIsAWriter) {
  Peer peer(listener_);
  core_.Open(1);
  ASSERT_TRUE(writers_->Note(Ref(1), peer.process()).ok());
  Restart();
  writers_->ForgetOld();
  EXPECT_TRUE(writers_->Dead(WriterProcesses::kEarlierRuns));
  Restart();
  EXPECT_THAT(writers_->Pids(WriterProcesses::kEarlierRuns), IsEmpty());
}

TEST_F(WriterProcessesTest, TheTableIsHeldByOneDaemonAndGoesWithItUnlessItIsLeft) {
  const auto second = WriterProcesses::Create(name_, core_.Api());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kInvalidArgument);
  EXPECT_FALSE(writers_->found_table());
  writers_.reset();
  EXPECT_EQ(shm_open(name_.c_str(), O_RDWR, 0), -1) << "left behind";
}

TEST(WriterTableTest, WhatIsNoTableOfItsKindIsMadeAnew) {
  const std::string name = TableName();
  const WriterRow row = {.process = {.pid = 1, .start_time = 2, .pidfd_inode = 3},
                         .session = {SessionId(4), SessionToken(5, 6)},
                         .tenant = std::string(kMaxTenantBytes, 't')};
  {
    auto table = WriterTable::Open(name, 4);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_FALSE((*table)->was_there());
    (*table)->Begin();
    ASSERT_TRUE((*table)->Add(row).ok());
    (*table)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  }
  {
    auto same = WriterTable::Open(name, 4);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_TRUE((*same)->found());
    ASSERT_THAT((*same)->Rows(), ElementsAre(0));
    EXPECT_EQ((*same)->Get(0).process, row.process);
    EXPECT_TRUE((*same)->Get(0).session.token == row.session.token);
    EXPECT_EQ((*same)->Get(0).tenant, row.tenant);
    (*same)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  }
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again ? "it was not begun, and is still no table" : "of another size");
    auto other = WriterTable::Open(name, 5);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_FALSE((*other)->found());
    EXPECT_TRUE((*other)->was_there());
    EXPECT_THAT((*other)->Rows(), IsEmpty());
    (*other)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  }
  auto begun = WriterTable::Open(name, 5);
  (*begun)->Begin();
  (*begun)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  begun->reset();
  EXPECT_TRUE((*WriterTable::Open(name, 5))->found());
}

// A truncated table is as invalid as one of another kind, even if its beginning looks right.
TEST(WriterTableTest, ATableThatWasCutIsNotFound) {
  const std::string name = TableName();
  {
    auto table = WriterTable::Open(name, 4);
    ASSERT_TRUE(table.ok()) << table.status();
    (*table)->Begin();
    (*table)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  }
  const FileDescriptor fd(shm_open(name.c_str(), O_RDWR, 0));
  ASSERT_EQ(ftruncate(fd.get(), 100), 0);
  EXPECT_FALSE((*WriterTable::Open(name, 4))->found());
}

TEST(WriterTableTest, WithoutSpaceNothingIsMadeAndWhatWasThereStaysWhole) {
  const std::string name = TableName();
  constexpr size_t kTooMany = size_t{1} << 42;
  EXPECT_EQ(ReasonOf(WriterTable::Open(name, kTooMany).status()), Reason::kOutOfMemory);
  EXPECT_EQ(shm_open(name.c_str(), O_RDWR, 0), -1) << "left behind";
  {
    auto table = WriterTable::Open(name, 4);
    ASSERT_TRUE(table.ok()) << table.status();
    (*table)->Begin();
    (*table)->SetLeave(WriterTable::Leave::kForTheNextDaemon);
  }
  EXPECT_EQ(ReasonOf(WriterTable::Open(name, kTooMany).status()), Reason::kOutOfMemory);
  EXPECT_TRUE((*WriterTable::Open(name, 4))->found());
}

TEST(WriterTableTest, ATableOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a file to another user";
  const std::string name = TableName();
  const FileDescriptor foreign(shm_open(name.c_str(), O_RDWR | O_CREAT, 0666));
  ASSERT_EQ(fchown(foreign.get(), 65534, 65534), 0);
  const absl::Status refused = WriterTable::Open(name, 4).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("user 65534 made it"));
  shm_unlink(name.c_str());
}

TEST(WriterTableTest, AFullTableSaysSoUntilARowIsRemoved) {
  auto table = WriterTable::Open(TableName(), 2);
  ASSERT_TRUE(table.ok()) << table.status();
  (*table)->Begin();
  const WriterRow row = {.process = {.pid = 1, .start_time = 2}, .session = Ref(3)};
  const size_t first = (*table)->Add(row).value();
  ASSERT_TRUE((*table)->Add(row).ok());
  EXPECT_TRUE(absl::IsResourceExhausted((*table)->Add(row).status()));
  (*table)->Remove(first);
  EXPECT_EQ((*table)->size(), 1u);
  EXPECT_TRUE((*table)->Add(row).ok());
}

}  // namespace
}  // namespace pagoda::server
