// The server as a client of Redis sees it.
#include "server/peers/peer_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "pools/store/resp.h"
#include "tests/pools/store/resp_client.h"
#include "tests/server/peers/served_peer.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

using resp::Kind;

// Connects a socket to 127.0.0.1.
bool Connect(const FileDescriptor& fd, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

FileDescriptor ConnectTo(uint16_t port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return Connect(fd, port) ? std::move(fd) : FileDescriptor();
}

void SendAll(const FileDescriptor& fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = send(fd.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += static_cast<size_t>(sent);
  }
}

// What comes until the server closes the connection.
std::string ReceiveAll(const FileDescriptor& fd) {
  std::string received;
  std::array<char, 65536> part;
  while (true) {
    const ssize_t size = recv(fd.get(), part.data(), part.size(), 0);
    if (size <= 0) return received;
    received.append(part.data(), static_cast<size_t>(size));
  }
}

std::string Encode(const std::vector<std::string>& command) {
  std::string bytes;
  resp::AppendCommand(std::vector<absl::string_view>(command.begin(), command.end()), bytes);
  return bytes;
}

class PeerServerTest : public testing::Test {
 protected:
  PeerServerTest() {
    Serve(*server_, cache_);
    cache_.Compute(tokens_);
  }
  std::string Name(uint32_t block) { return NameOf(cache_, tokens_, block); }

  ExchangedCache cache_;
  const Tokens tokens_ = TokensOf(1, 10 * kBlockTokens + 3);
  std::unique_ptr<PeerServer> server_ = StartPeer();
  RespClient client_{server_->address().port};
};

TEST_F(PeerServerTest, AnswersWhatClientsAskFirst) {
  EXPECT_TRUE(client_.Do({"PING"}).is_text("PONG"));
  EXPECT_EQ(client_.Do({"ping", "hello"}).text, "hello");
  EXPECT_EQ(client_.Do({"ECHO", "hello"}).text, "hello");
  EXPECT_TRUE(client_.Do({"CLIENT", "SETNAME", "me"}).is_text("OK"));
  EXPECT_TRUE(client_.Do({"READONLY"}).is_text("OK"));
  EXPECT_TRUE(client_.Do({"SELECT", "0"}).is_text("OK"));
  EXPECT_EQ(client_.Do({"SELECT", "1"}).kind, Kind::kError);
  EXPECT_EQ(client_.Do({"COMMAND", "DOCS"}).kind, Kind::kArray);
  EXPECT_TRUE(absl::StrContains(client_.Do({"CLUSTER", "SLOTS"}).text, "cluster support disabled"));
  ASSERT_EQ(client_.Do({"EXISTS", Name(9)}).integer, 1);  // The index has read the log then.
  EXPECT_TRUE(absl::StrContains(client_.Do({"INFO"}).text, "cache0:name=cache,blocks=11"));
  EXPECT_EQ(client_.Do({"DBSIZE"}).integer, 11);
  const resp::Value hello = client_.Do({"HELLO", "2", "SETNAME", "me"});
  ASSERT_EQ(hello.elements.size(), 14u);
  EXPECT_EQ(hello.elements[5].integer, 2);
  EXPECT_TRUE(absl::StartsWith(client_.Do({"HELLO", "3"}).text, "NOPROTO"));
  EXPECT_TRUE(absl::StartsWith(client_.Do({"NONSENSE", "\r\n"}).text, "ERR unknown command"));
  EXPECT_TRUE(absl::StartsWith(client_.Do({"GET"}).text, "ERR wrong number of arguments"));
  EXPECT_TRUE(absl::StartsWith(client_.Do({"AUTH", "x"}).text, "ERR AUTH"));
  EXPECT_TRUE(client_.Do({"QUIT"}).is_text("OK"));
  EXPECT_TRUE(absl::StartsWith(client_.Do({"PING"}).text, "BROKEN"));
}

TEST_F(PeerServerTest, ShowsTheBlocksOfTheCache) {
  EXPECT_EQ(client_.Do({"EXISTS", Name(0)}).integer, 1);
  EXPECT_EQ(client_.Do({"EXISTS", Name(9), "nothing", Name(3), Name(9)}).integer, 3);
  const resp::Value value = client_.Do({"GET", Name(4)});
  ASSERT_EQ(value.kind, Kind::kBulk);
  EXPECT_EQ(client_.Do({"STRLEN", Name(4)}).integer, static_cast<int64_t>(value.text.size()));
  EXPECT_TRUE(absl::StartsWith(value.text, "PAGODAKV"));
  // Other names are other content, or no names at all.
  const Tokens others = TokensOf(2, 8);
  for (const std::string& name :
       {NameOf(cache_, others, 0), NameOf(cache_, tokens_, 0, "secret"),
        NameOf(cache_, tokens_, 0, "", {.cache_salt = "s"}), Name(0) + "0", Name(0).substr(1),
        std::string("pagoda:v1:::"), std::string("\0", 1), std::string()}) {
    EXPECT_EQ(client_.Do({"EXISTS", name}).integer, 0) << name;
    EXPECT_EQ(client_.Do({"GET", name}).kind, Kind::kNull) << name;
    EXPECT_EQ(client_.Do({"STRLEN", name}).integer, 0) << name;
  }
  cache_.manager().ResetPrefixCache();
  EXPECT_EQ(client_.Do({"EXISTS", Name(0)}).integer, 0);
  EXPECT_EQ(client_.Do({"GET", Name(0)}).kind, Kind::kNull);
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().misses == 9; }));
  EXPECT_EQ(server_->stats().hits, 1u);
  EXPECT_EQ(server_->stats().value_bytes_sent, value.text.size());
}

TEST_F(PeerServerTest, RefusesWrites) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"SET", Name(0), "x"},
                                             {"DEL", Name(0)},
                                             {"FLUSHALL"},
                                             {"set", Name(0), "x", "PX", "1"},
                                             // More than is kept of a command.
                                             {"SET", Name(0), std::string(8 << 20, 'x')}}) {
    const resp::Value reply = client_.Do(command);
    EXPECT_EQ(reply.kind, Kind::kError);
    EXPECT_TRUE(absl::StartsWith(reply.text, "READONLY")) << reply.text;
  }
  EXPECT_EQ(client_.Do({"GET", std::string(1 << 20, 'x')}).text, "ERR the command is too long");
  EXPECT_EQ(client_.Do({"EXISTS", Name(0)}).integer, 1);
}

TEST_F(PeerServerTest, AnswersAPipelineInItsOrder) {
  const FileDescriptor fd = ConnectTo(server_->address().port);
  std::string commands, expected;
  for (int i = 0; i < 3000; ++i) {
    commands += Encode({"ECHO", absl::StrCat(i)});
    expected += absl::StrCat("$", absl::StrCat(i).size(), "\r\n", i, "\r\n");
    if (i % 100 != 0) continue;
    commands += Encode({"GET", "nothing"});
    expected += "$-1\r\n";
  }
  commands += Encode({"QUIT"});
  SendAll(fd, commands);
  EXPECT_EQ(ReceiveAll(fd), expected + "+OK\r\n");
}

TEST_F(PeerServerTest, GarbageEndsOnlyItsConnection) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const FileDescriptor fd = ConnectTo(server_->address().port);
    ASSERT_TRUE(fd.valid());
    std::string bytes;
    const size_t size = random() % 3000;
    for (size_t i = 0; i < size; ++i) {
      bytes += random() % 2 == 0 ? static_cast<char>(random()) : "*$0123GET\r\n:-"[random() % 14];
    }
    if (round % 3 == 0) bytes.insert(0, Encode({"EXISTS", Name(0)}));
    SendAll(fd, bytes);
    shutdown(fd.get(), SHUT_WR);
    ReceiveAll(fd);
  }
  const FileDescriptor http = ConnectTo(server_->address().port);
  SendAll(http, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(ReceiveAll(http), "-ERR Protocol error: expected '*'\r\n");
  EXPECT_EQ(client_.Do({"EXISTS", Name(0)}).integer, 1);
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().connections == 1; }));
  EXPECT_GT(server_->stats().failed, 100u);
}

// A child process that is being started has copies of all descriptors. Until it closes them, epoll
// reports what happens to connections that the server has closed.
TEST_F(PeerServerTest, AConnectionWhoseDescriptorLivesOnIsForgotten) {
  FileDescriptor fd = ConnectTo(server_->address().port);
  ASSERT_TRUE(fd.valid());
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().connections == 2; }));
  const FileDescriptor copy = CopyOfOtherEnd(fd.get());
  ASSERT_TRUE(copy.valid());
  fd = FileDescriptor();
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().connections == 1; }));
  // The freed memory gets other content.
  std::vector<std::unique_ptr<RespClient>> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(std::make_unique<RespClient>(server_->address().port));
    EXPECT_TRUE(others.back()->Do({"PING"}).is_text("PONG"));
  }
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().connections == 1 + others.size(); }));
}

TEST_F(PeerServerTest, TellsRedisCli) {
  if (std::system("redis-cli --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no redis-cli";
  const auto cli = [&](const std::string& arguments) {
    const std::string command =
        absl::StrCat("redis-cli -p ", server_->address().port, " ", arguments, " 2>&1");
    FILE* const pipe = popen(command.c_str(), "r");
    std::string output;
    std::array<char, 4096> part;
    for (size_t size; (size = fread(part.data(), 1, part.size(), pipe)) > 0;) {
      output.append(part.data(), size);
    }
    pclose(pipe);
    return output;
  };
  EXPECT_EQ(cli("PING"), "PONG\n");
  EXPECT_EQ(cli("EXISTS " + Name(2)), "1\n");
  EXPECT_EQ(cli("STRLEN " + Name(2)), absl::StrCat(cli("GET " + Name(2)).size() - 1, "\n"));
  EXPECT_EQ(cli("EXISTS nothing"), "0\n");
  EXPECT_TRUE(absl::StartsWith(cli("SET a b"), "READONLY"));
}

TEST(PeerLimitsTest, ConnectionsBeyondTheLimitAreRefusedPolitely) {
  ExchangedCache cache;
  const auto server = StartPeer({.max_connections = 20});
  Serve(*server, cache);
  std::vector<std::unique_ptr<RespClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RespClient>(server->address().port));
    ASSERT_TRUE(clients.back()->Do({"PING"}).is_text("PONG"));
  }
  for (int i = 0; i < 10'000; ++i) {
    const FileDescriptor fd = ConnectTo(server->address().port);
    ASSERT_TRUE(fd.valid()) << i;
    // It can be cut off by the reset of a connection.
    const std::string reply = ReceiveAll(fd);
    EXPECT_TRUE(reply.empty() || reply == "-ERR max number of clients reached\r\n") << reply;
  }
  EXPECT_TRUE(WaitUntil([&] { return server->stats().refused == 10'000; }));
  EXPECT_EQ(server->stats().connections, 20u);
  for (const auto& client : clients) EXPECT_TRUE(client->Do({"PING"}).is_text("PONG"));
  clients.pop_back();
  ASSERT_TRUE(WaitUntil([&] { return server->stats().connections == 19; }));
  EXPECT_TRUE(RespClient(server->address().port).Do({"PING"}).is_text("PONG"));
}

TEST(PeerLimitsTest, TakesConnectionsAgainWhenThereAreDescriptors) {
  const auto server = StartPeer();
  const FileDescriptor waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // From the lowest free descriptor on, none can be opened.
  const int lowest = FileDescriptor(dup(0)).get();
  const rlimit few = {.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  ASSERT_TRUE(Connect(waiting, server->address().port));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(server->stats().connections, 0u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  SendAll(waiting, Encode({"PING"}) + Encode({"QUIT"}));
  EXPECT_EQ(ReceiveAll(waiting), "+PONG\r\n+OK\r\n");
}

TEST(PeerLimitsTest, SilentConnectionsAreClosed) {
  const auto server = StartPeer({.idle_timeout = absl::Milliseconds(500)});
  const FileDescriptor silent = ConnectTo(server->address().port);
  const absl::Time start = absl::Now();
  EXPECT_EQ(ReceiveAll(silent), "");
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_TRUE(WaitUntil([&] { return server->stats().failed == 1; }));
}

TEST(PeerLimitsTest, OptionsAreChecked) {
  const auto code = [](PeerServer::Options options) {
    if (options.address.host.empty()) options.address = {.host = "127.0.0.1", .port = 0};
    const auto server = PeerServer::Start(std::move(options));
    return server.ok() ? Reason::kNone : ReasonOf(server.status());
  };
  EXPECT_EQ(code({}), Reason::kNone);
  EXPECT_EQ(code({.max_connections = 0}), Reason::kInvalidArgument);
  EXPECT_EQ(code({.login_timeout = absl::ZeroDuration()}), Reason::kInvalidArgument);
  EXPECT_EQ(code({.address = {.host = "0.0.0.0", .port = 0}}), Reason::kInvalidArgument)
      << "everybody could read";
  EXPECT_EQ(code({.address = {.host = "0.0.0.0", .port = 0}, .exposure = Exposure::kWarned}),
            Reason::kNone);
  EXPECT_EQ(code({.tokens_file = "/nowhere"}), Reason::kInvalidArgument);
  const auto first = StartPeer();
  EXPECT_EQ(code({.address = first->address()}), Reason::kInvalidArgument) << "the port is taken";
}

TEST(PeerLimitsTest, ACacheIsAddedOnce) {
  ExchangedCache cache, unnamed({.model = ""});
  const auto server = StartPeer();
  Serve(*server, cache);
  const auto add = [&](ExchangedCache& added, const std::string& name) {
    return ReasonOf(
        server->AddCache({.name = name, .manager = &added.manager(), .pools = &added.pools()}));
  };
  EXPECT_EQ(add(cache, "cache"), Reason::kInvalidArgument);
  EXPECT_EQ(add(unnamed, "unnamed"), Reason::kInvalidArgument) << "no model fingerprint";
  EXPECT_EQ(server->cache_stats().size(), 1u);
  server->RemoveCache("another");
  server->RemoveCache("cache");
  EXPECT_TRUE(server->cache_stats().empty());
  EXPECT_EQ(add(cache, "cache"), Reason::kNone);
  server->Stop();
  server->RemoveCache("cache");
  EXPECT_FALSE(
      server->AddCache({.name = "c", .manager = &cache.manager(), .pools = &cache.pools()}).ok());
  server->Stop();
}

}  // namespace
}  // namespace pagoda::server
