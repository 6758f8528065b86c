#include "server/memory/map_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/cpp/map_pools.h"
#include "google/rpc/error_details.pb.h"
#include "pagoda/v1/mapping.pb.h"
#include "tests/server/child_process.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Two windows with two tiers: four segments.
std::unique_ptr<PoolSet> MakePools() {
  static int count = 0;
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 4,
       .layers = {{.num_kv_heads = 2, .head_dim = 8},
                  {.window = WindowSize(16), .num_kv_heads = 1, .head_dim = 8}}});
  return PoolSet::Create(*layout, {.tiers = {{3, 5}, {2, 2}}},
                         absl::StrCat("map-test-", getpid(), "-", ++count))
      .value();
}

// Accepts this one session only.
v1::SessionRef Session(uint64_t token = 9, uint64_t token_high = 10) {
  v1::SessionRef session;
  session.set_session_id(1);
  session.set_token(token);
  session.set_token_high(token_high);
  return session;
}

class MapSocketTest : public ::testing::Test {
 protected:
  MapSocketTest() {
    const auto admit = [this](SessionRef session) -> absl::StatusOr<MapSocket::ExportPtr> {
      const bool known = session.id == SessionId(1) && session.token == SessionToken(9, 10);
      if (!known) return MakeError(Reason::kStaleSession, "no such session");
      return pool_export_;
    };
    auto socket = MapSocket::Listen(
        path_, {.admit_reader = admit,
                .admit_writer = [this, admit](SessionRef session, PeerProcess process) {
                  writer_ = process.pid();
                  return admit(session);
                }});
    EXPECT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
  }

  auto Map(MemoryAccess access, uint64_t token = 9, uint64_t token_high = 10) {
    return MapPools(path_, Session(token, token_high), access, kPatience);
  }
  // A raw connection, as a misbehaving client uses it.
  FileDescriptor Connect() const {
    FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit = {.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
  }
  // Sends a packet. Returns the reason of the answer's error, "" for pools, "hung up" for no
  // answer.
  static std::string Ask(int connection, const std::string& packet) {
    EXPECT_EQ(send(connection, packet.data(), packet.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(packet.size()));
    std::string bytes(1 << 16, '\0');
    const ssize_t size = recv(connection, bytes.data(), bytes.size(), 0);
    if (size <= 0) return "hung up";
    v1::MapPoolsResponse response;
    EXPECT_TRUE(response.ParseFromArray(bytes.data(), static_cast<int>(size)));
    if (!response.has_error()) return "";
    google::rpc::ErrorInfo info;
    EXPECT_EQ(response.error().details_size(), 1);
    EXPECT_TRUE(response.error().details(0).UnpackTo(&info));
    return info.reason();
  }
  static std::string Request(v1::MapAccess access) {
    v1::MapPoolsRequest request;
    *request.mutable_session() = Session();
    request.set_access(access);
    return request.SerializeAsString();
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/map-", getpid(), ".sock");
  const std::unique_ptr<PoolSet> pools_ = MakePools();
  const std::shared_ptr<const PoolExport> pool_export_ = PoolExport::Open(*pools_).value();
  pid_t writer_ = 0;
  std::unique_ptr<MapSocket> socket_;
};

TEST_F(MapSocketTest, AWriterSeesAndChangesEveryPool) {
  auto mapped = Map(MemoryAccess::kReadWrite);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const std::vector<PoolMapping> mappings = pools_->Mappings();
  ASSERT_EQ(mapped->size(), mappings.size());
  for (size_t i = 0; i < mappings.size(); ++i) {
    const PoolMapping& mapping = (*mapped)[i]->mapping();
    EXPECT_EQ(mapping.segments[0].shm_name, mappings[i].segments[0].shm_name);
    (*mapped)[i]->slot(SlotIndex{1})[0] = std::byte(i + 1);
    SharedMemoryPool& pool =
        pools_->pool(mapping.window == kFullAttention ? 1 : 0, mapping.pool_index, mapping.tier);
    EXPECT_EQ(pool.slot(SlotIndex{1})[0], std::byte(i + 1));
  }
  EXPECT_EQ(writer_, getpid());
}

TEST_F(MapSocketTest, AReaderSeesTheBytesAndCannotMapThemForWriting) {
  pools_->pool(0, 0).slot(SlotIndex{2})[3] = std::byte{0x5a};
  auto mapped = Map(MemoryAccess::kRead);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ((*mapped)[0]->slot(SlotIndex{2})[3], std::byte{0x5a});
  EXPECT_EQ(writer_, 0) << "no writer";
  const absl::Span<std::byte> bytes = (*mapped)[0]->bytes();
  EXPECT_NE(mprotect(bytes.data(), bytes.size(), PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(MapSocketTest, RefusalsSayWhy) {
  EXPECT_EQ(ReasonOf(Map(MemoryAccess::kRead, 8).status()), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(Map(MemoryAccess::kReadWrite, 8).status()), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(Map(MemoryAccess::kReadWrite, 9, 0).status()), Reason::kStaleSession)
      << "half of the token is none";
  const FileDescriptor connection = Connect();
  EXPECT_EQ(Ask(connection.get(), Request(v1::MAP_ACCESS_UNSPECIFIED)), "INVALID_ARGUMENT");
  EXPECT_EQ(Ask(connection.get(), "\xff garbage"), "INVALID_ARGUMENT");
  EXPECT_EQ(Ask(connection.get(), std::string(100'000, 'x')), "INVALID_ARGUMENT");
  EXPECT_EQ(Ask(connection.get(), Request(v1::MAP_ACCESS_READ)), "")
      << "the connection serves on after each";
}

TEST_F(MapSocketTest, AClientIsToldWhereThePoolsAreNot) {
  const auto map = [](const std::string& path) {
    return MapPools(path, Session(), MemoryAccess::kRead, kPatience).status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(map("")));
  const absl::Status elsewhere = map("/no/such/pagoda.sock.map");
  EXPECT_TRUE(absl::IsNotFound(elsewhere));
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("on the daemon's machine"));
  EXPECT_FALSE(map(std::string(200, 'x')).ok());
}

TEST_F(MapSocketTest, TheOneWhoAsksToWriteHasToBeTheOneWhoConnected) {
  const FileDescriptor connection = Connect();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ChildProcess child([&] {
    // Otherwise its parent would be recorded, which can die before the child.
    const std::string reason = Ask(connection.get(), Request(v1::MAP_ACCESS_READ_WRITE));
    const std::string read_reason = Ask(connection.get(), Request(v1::MAP_ACCESS_READ));
    const std::string both = absl::StrCat(reason, "|", read_reason);
    if (write(pipe_ends[1], both.data(), both.size()) < 0) _exit(1);
  });
  char told[64] = {};
  ASSERT_GT(read(pipe_ends[0], told, sizeof(told) - 1), 0);
  EXPECT_STREQ(told, "INVALID_ARGUMENT|");
  EXPECT_EQ(writer_, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(MapSocketTest, AProcessThatAsksByItselfIsTheWriter) {
  ChildProcess child([&] {
    if (!Map(MemoryAccess::kReadWrite).ok()) _exit(1);
  });
  EXPECT_EQ(writer_, child.pid());
}

TEST_F(MapSocketTest, DescriptorsThatAPeerSendsAreNotTaken) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const FileDescriptor connection = Connect();
  ASSERT_EQ(Ask(connection.get(), "x"), "INVALID_ARGUMENT");
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    char byte = 0;
    iovec data = {.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const int fds[] = {0, 1};
    std::memcpy(CMSG_DATA(part), fds, sizeof(fds));
    ASSERT_EQ(sendmsg(connection.get(), &message, 0), 1);
    char answer[4096];
    ASSERT_GT(recv(connection.get(), answer, sizeof(answer), 0), 0);
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(MapSocketTest, APeerThatDoesNotReadItsAnswersIsSentAway) {
  const FileDescriptor rude = Connect();
  const std::string request = Request(v1::MAP_ACCESS_READ);
  int sent = 0;
  // Its second request finds its first answer unread, at the latest when the socket is full.
  while (sent < 100'000 && send(rude.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    ++sent;
  }
  EXPECT_LT(sent, 100'000);
  EXPECT_TRUE(Map(MemoryAccess::kRead).ok()) << "others are served";
}

TEST_F(MapSocketTest, SilentPeersGiveWayToThoseWhoAsk) {
  std::vector<FileDescriptor> silent;
  const FileDescriptor busy = Connect();
  for (size_t i = 0; i < 2 * MapSocket::kMaxConnections; ++i) {
    silent.push_back(Connect());
    ASSERT_EQ(Ask(busy.get(), Request(v1::MAP_ACCESS_READ)), "") << i;
  }
  EXPECT_TRUE(Map(MemoryAccess::kRead).ok());
  char byte;
  EXPECT_EQ(recv(silent.front().get(), &byte, 1, 0), 0) << "the first one was sent away";
  EXPECT_EQ(recv(silent.back().get(), &byte, 1, MSG_DONTWAIT), -1) << "the last one was not";
}

TEST_F(MapSocketTest, TheFileIsForOwnerAndGroupAndGoesWithTheSocket) {
  struct stat found;
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
  EXPECT_EQ(ReasonOf(MapSocket::Listen(path_, {}).status()), Reason::kInvalidArgument)
      << "it is taken";
  ASSERT_EQ(stat(path_.c_str(), &found), 0) << "the refusal left it alone";
  socket_.reset();
  EXPECT_NE(stat(path_.c_str(), &found), 0);
}

TEST_F(MapSocketTest, ASocketThatADeadDaemonLeftIsReplaced) {
  const std::string path = absl::StrCat(path_, ".left");
  {
    ChildProcess daemon([&] { MapSocket::Listen(path, {}).value().release(); });
  }
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  const auto next = MapSocket::Listen(path, {});
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_F(MapSocketTest, AClientMapsPoolsOfEveryContent) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 4,
       .layers = {{.kind = KvKind::kOpaque, .bytes_per_block = 13},
                  {.num_kv_heads = 1, .head_dim = 6, .kind = KvKind::kKeyOnly},
                  {.num_kv_heads = 2, .head_dim = 8, .dtype = DType::kFloat8E4M3},
                  {.kind = KvKind::kOpaque, .bytes_per_block = 13}}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto pools =
      PoolSet::Create(*layout, {.tiers = {{3}}}, absl::StrCat("map-test-kinds-", getpid()));
  ASSERT_TRUE(pools.ok()) << pools.status();
  const std::string path = absl::StrCat(path_, ".kinds");
  const std::shared_ptr<const PoolExport> pool_export = PoolExport::Open(**pools).value();
  const auto socket = MapSocket::Listen(
      path, {.admit_reader = [&](SessionRef) { return pool_export; },
             .admit_writer = [&](SessionRef, PeerProcess) { return pool_export; }});
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto mapped = MapPools(path, Session(), MemoryAccess::kReadWrite, kPatience);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  ASSERT_EQ(mapped->size(), 4u);
  constexpr PoolContent kContents[] = {PoolContent::kOpaque, PoolContent::kElements,
                                       PoolContent::kElements, PoolContent::kScales};
  constexpr uint64_t kSlotBytes[] = {2 * 13, 4 * 6 * 4, 2 * 2 * 4 * 8, 2 * 2 * 4};
  for (uint32_t p = 0; p < 4; ++p) {
    const PoolLayout& pool = (*mapped)[p]->mapping().layout;
    EXPECT_EQ(pool.content, kContents[p]) << p;
    EXPECT_EQ(pool.slot_stride_bytes(), kSlotBytes[p]) << p;
    EXPECT_EQ(pool.has_scales(), p == 2) << p;
    const std::vector<std::byte> bytes(kSlotBytes[p], std::byte(p + 1));
    ASSERT_TRUE((*mapped)[p]->WriteSlot(SlotIndex(2), bytes).ok());
    const absl::Span<const std::byte> owners = (*pools)->pool(0, p).slot(SlotIndex(2));
    EXPECT_TRUE(std::equal(owners.begin(), owners.end(), bytes.begin(), bytes.end())) << p;
  }
}

TEST_F(MapSocketTest, AWorldOfSegmentsIsRefused) {
  std::vector<LayerSpec> layers;
  for (uint32_t window = 1; window <= PoolExport::kMaxSegments + 1; ++window) {
    layers.push_back({.window = WindowSize(window), .num_kv_heads = 1, .head_dim = 1});
  }
  const size_t windows = layers.size();
  const auto layout = CacheLayout::Create({.tokens_per_block = 1, .layers = std::move(layers)});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto pools = PoolSet::Create(*layout, {.tiers = {std::vector<uint32_t>(windows, 1)}},
                                     absl::StrCat("map-test-many-", getpid()));
  ASSERT_TRUE(pools.ok()) << pools.status();
  const absl::Status refused = PoolExport::Open(**pools).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("254"));
}

}  // namespace
}  // namespace pagoda::server
