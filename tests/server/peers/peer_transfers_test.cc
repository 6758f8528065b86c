// Values under way: slow readers, caches that are dropped, connections that break.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/file_descriptor.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/store/resp.h"
#include "server/peers/peer_server.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/pools/store/resp_client.h"
#include "tests/server/peers/served_peer.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

constexpr uint32_t kLargeBlocks = 16;
// The bytes of one block: more than a socket's buffers take.
constexpr uint64_t kLargeBytes = 4 << 20;

// A cache with large blocks, whose memory is gone when it is.
class LargeCache {
 public:
  explicit LargeCache(const std::string& instance) {
    CacheSpec spec = {.name = "large",
                      .model_fingerprint = "org/large",
                      .tokens_per_block = kBlockTokens,
                      .layers = {{.kind = KvKind::kOpaque, .bytes_per_block = kLargeBytes}}};
    const CacheLayout layout = *CacheLayout::Create(std::move(spec));
    pools_ =
        *PoolSet::Create(layout, {.tiers = {{kLargeBlocks}}}, instance + std::to_string(getpid()));
    manager_ =
        std::make_unique<SharedManager>(*BlockManager::Create({.layout = layout,
                                                               .tiers = HostTiers({kLargeBlocks}),
                                                               .pool_mappings = pools_->Mappings(),
                                                               .epoch = Epoch(1)}),
                                        &log_);
    auto client = *OpenLocalCacheClient(manager_.get(), "engine");
    const auto size = static_cast<uint32_t>(tokens_.size());
    PAGODA_CHECK(
        RunOne<AddedSequence>(*client, AddSequence{.sequence = SequenceId(1), .tokens = tokens_})
                .ok() &&
            RunOne<CommittedTokens>(
                *client, CommitTokens{.sequence = SequenceId(1), .computed_tokens = size})
                .ok(),
        "there is room");
  }

  PeerCache::Options Served(std::shared_ptr<const void> owner = nullptr) {
    return {.name = "large",
            .manager = manager_.get(),
            .pools = pools_.get(),
            .owner = std::move(owner)};
  }
  // Another tenant's KV takes all slots.
  void Overwrite(std::byte byte) {
    for (uint32_t slot = 0; slot < kLargeBlocks; ++slot) {
      const absl::Span<std::byte> bytes = pools_->pool(0, 0).slot(SlotIndex(slot));
      std::fill(bytes.begin(), bytes.end(), byte);
    }
  }
  std::string Name(uint32_t block) {
    return StoredName("pagoda:", "",
                      {.layout = StoredLayout(pools_->layout(), 0).bytes,
                       .digest = DigestsOf({.name_space = {}, .tokens = tokens_},
                                           TokensPerBlock(kBlockTokens), block + 1)
                                     .back()
                                     .bytes,
                       .window_size = 0});
  }

 private:
  const Tokens tokens_ = TokensOf(5, kLargeBlocks* kBlockTokens);
  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{}};
  std::unique_ptr<SharedManager> manager_;
};

// Sends commands, and reads only when it is told to.
class LazyReader {
 public:
  explicit LazyReader(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    PAGODA_CHECK(
        connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
        "the server listens");
  }
  // The buffers of both sides take little. Without this they can take more than a block.
  void ShrinkBuffers() const {
    const FileDescriptor other_end = CopyOfOtherEnd(fd_.get());
    PAGODA_CHECK(other_end.valid(), "the server has accepted the connection");
    const int bytes = 64 << 10;
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(other_end.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  void Ask(const std::vector<std::string>& command) {
    std::string bytes;
    resp::AppendCommand(std::vector<absl::string_view>(command.begin(), command.end()), bytes);
    PAGODA_CHECK(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(bytes.size()),
                 "commands are short");
  }
  // At most `size` bytes; fewer if the server closes the connection.
  size_t Read(size_t size, std::string* bytes = nullptr) {
    std::vector<char> part(64 << 10);
    size_t read = 0;
    while (read < size) {
      const ssize_t got = recv(fd_.get(), part.data(), std::min(part.size(), size - read), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      read += static_cast<size_t>(got);
      if (bytes != nullptr) bytes->append(part.data(), static_cast<size_t>(got));
    }
    return read;
  }

 private:
  const FileDescriptor fd_;
};

constexpr size_t kReplyBytes =
    kLargeBytes + kStoredHeaderBytes + std::string_view("$4194448\r\n\r\n").size();

TEST(PeerTransfersTest, AClientThatDoesNotReadHoldsUpNobody) {
  LargeCache cache("peers-slow-");
  const auto server = StartPeer({.stall_timeout = absl::Minutes(1)});
  ASSERT_TRUE(server->AddCache(cache.Served()).ok());
  std::vector<std::unique_ptr<LazyReader>> lazy;
  for (int i = 0; i < 20; ++i) {
    lazy.push_back(std::make_unique<LazyReader>(server->address().port));
    for (uint32_t block = 0; block < 200; ++block) {
      lazy.back()->Ask({"GET", cache.Name(block % kLargeBlocks)});
    }
  }
  ASSERT_TRUE(WaitUntil([&] { return server->stats().hits >= 20; }));
  // Their further commands wait: a command is run when there is room for its reply.
  uint64_t before;
  do {
    before = server->stats().hits;
    absl::SleepFor(absl::Seconds(1));
  } while (server->stats().hits != before);
  EXPECT_LT(before, 20u * 10);
  RespClient client(server->address().port);
  for (uint32_t block = 0; block < kLargeBlocks; ++block) {
    EXPECT_EQ(client.Do({"GET", cache.Name(block)}).text.size(), kLargeBytes + kStoredHeaderBytes);
  }
  // A slow reader gets everything in the end.
  EXPECT_EQ(lazy.front()->Read(200 * kReplyBytes), 200 * kReplyBytes);
  EXPECT_EQ(server->stats().misses, 0u);
}

TEST(PeerTransfersTest, AClientThatNeverReadsIsClosed) {
  LargeCache cache("peers-stalled-");
  const auto server = StartPeer({.stall_timeout = absl::Seconds(1)});
  ASSERT_TRUE(server->AddCache(cache.Served()).ok());
  LazyReader lazy(server->address().port);
  for (uint32_t block = 0; block < kLargeBlocks; ++block) lazy.Ask({"GET", cache.Name(block)});
  ASSERT_TRUE(WaitUntil([&] { return server->stats().hits > 0; }));
  EXPECT_TRUE(WaitUntil([&] { return server->stats().connections == 0; }));
  EXPECT_LT(lazy.Read(kLargeBlocks * kReplyBytes), kLargeBlocks * kReplyBytes);
  EXPECT_TRUE(WaitUntil([&] { return server->stats().failed == 1; }));
}

TEST(PeerTransfersTest, BytesThatTakeTheSlotWhileItIsSentNeverLeave) {
  LargeCache cache("peers-recycled-");
  cache.Overwrite(std::byte{0x11});
  const auto server = StartPeer({.stall_timeout = absl::Minutes(1)});
  ASSERT_TRUE(server->AddCache(cache.Served()).ok());
  LazyReader lazy(server->address().port);
  ASSERT_TRUE(WaitUntil([&] { return server->stats().connections == 1; }));
  lazy.ShrinkBuffers();
  lazy.Ask({"GET", cache.Name(3)});
  lazy.Ask({"PING"});
  std::string reply;
  ASSERT_EQ(lazy.Read(4096, &reply), 4096u);
  cache.Overwrite(std::byte{0xee});
  // The server has sent what the socket's buffers take, and waits.
  ASSERT_LT(server->stats().bytes_sent, kLargeBytes / 2);
  const size_t rest = kReplyBytes + std::string_view("+PONG\r\n").size() - reply.size();
  ASSERT_EQ(lazy.Read(rest, &reply), rest);
  const std::string_view block =
      std::string_view(reply).substr(reply.find("\r\n") + 2 + kStoredHeaderBytes, kLargeBytes);
  EXPECT_EQ(std::count(block.begin(), block.end(), '\xee'), 0);
  EXPECT_GT(std::count(block.begin(), block.end(), '\x11'), 0);
  EXPECT_GT(std::count(block.begin(), block.end(), '\0'), 0) << "instead of the new bytes";
  EXPECT_EQ(reply.substr(reply.size() - 7), "+PONG\r\n") << "the connection goes on";
}

TEST(PeerTransfersTest, AClientThatReadsALittleNowAndThenIsClosed) {
  LargeCache cache("peers-dribble-");
  const auto server = StartPeer({.stall_timeout = absl::Seconds(1)});
  ASSERT_TRUE(server->AddCache(cache.Served()).ok());
  LazyReader lazy(server->address().port);
  ASSERT_TRUE(WaitUntil([&] { return server->stats().connections == 1; }));
  lazy.ShrinkBuffers();
  for (uint32_t block = 0; block < kLargeBlocks; ++block) lazy.Ask({"GET", cache.Name(block)});
  ASSERT_TRUE(WaitUntil([&] { return server->stats().hits > 0; }));
  // A block takes more than 5 seconds so. The server sees bytes leave many times a second.
  EXPECT_TRUE(WaitUntil([&] {
    lazy.Read(4 << 10);
    return server->stats().connections == 0;
  }));
  EXPECT_TRUE(WaitUntil([&] { return server->stats().failed == 1; }));
}

TEST(PeerTransfersTest, ADroppedCacheIsNotTouchedAnyMore) {
  for (int round = 0; round < 10; ++round) {
    const auto server = StartPeer();
    auto cache = std::make_shared<LargeCache>("peers-drop-");
    std::weak_ptr<LargeCache> watch = cache;
    ASSERT_TRUE(server->AddCache(cache->Served(cache)).ok());
    ExchangedCache other;
    Serve(*server, other, "other");
    const Tokens tokens = TokensOf(1, 8);
    other.Compute(tokens);
    RespClient bystander(server->address().port);
    LazyReader lazy(server->address().port);
    for (uint32_t block = 0; block < kLargeBlocks; ++block) lazy.Ask({"GET", cache->Name(block)});
    ASSERT_TRUE(WaitUntil([&] { return server->stats().hits > 0; }));
    const std::string name = cache->Name(0);
    cache.reset();
    ASSERT_FALSE(watch.expired()) << "the server owns it too";
    const absl::Time start = absl::Now();
    server->RemoveCache("large");
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    EXPECT_TRUE(watch.expired()) << "its memory is gone";
    EXPECT_LT(lazy.Read(kLargeBlocks * kReplyBytes), kLargeBlocks * kReplyBytes);
    EXPECT_EQ(bystander.Do({"EXISTS", name}).integer, 0);
    EXPECT_EQ(bystander.Do({"EXISTS", NameOf(other, tokens, 0)}).integer, 1);
  }
}

TEST(PeerTransfersTest, CachesComeAndGoWhileClientsFetch) {
  const auto server = StartPeer();
  std::atomic<bool> ends = false;
  std::atomic<uint64_t> values = 0;
  const std::string name = LargeCache("peers-name-").Name(3);
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      std::optional<RespClient> client;
      while (!ends) {
        if (!client.has_value()) client.emplace(server->address().port);
        const resp::Value value = client->Do({"GET", name});
        if (value.kind == resp::Kind::kBulk) ++values;
        if (value.kind == resp::Kind::kError) client.reset();  // The connection was closed.
      }
    });
  }
  // On a busy machine, three seconds may pass before a client gets a value.
  const absl::Time enough = absl::Now() + absl::Seconds(3), latest = enough + absl::Seconds(60);
  const auto goes_on = [&](int rounds) {
    const absl::Time now = absl::Now();
    return now < enough || (now < latest && (values == 0 || rounds <= 5));
  };
  int rounds = 0;
  for (; goes_on(rounds); ++rounds) {
    auto cache = std::make_shared<LargeCache>("peers-come-");
    ASSERT_TRUE(server->AddCache(cache->Served(cache)).ok());
    absl::SleepFor(absl::Milliseconds(rounds % 20));
    std::weak_ptr<LargeCache> watch = cache;
    cache.reset();
    server->RemoveCache("large");
    ASSERT_TRUE(watch.expired());
  }
  ends = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(values, 0u);
  EXPECT_GT(rounds, 5);
}

TEST(PeerTransfersTest, StopEndsWhatIsUnderWay) {
  LargeCache cache("peers-stop-");
  auto server = StartPeer();
  ASSERT_TRUE(server->AddCache(cache.Served()).ok());
  LazyReader lazy(server->address().port);
  for (uint32_t block = 0; block < kLargeBlocks; ++block) lazy.Ask({"GET", cache.Name(block)});
  ASSERT_TRUE(WaitUntil([&] { return server->stats().hits > 0; }));
  server->Stop();
  EXPECT_EQ(server->stats().connections, 0u);
  EXPECT_LT(lazy.Read(kLargeBlocks * kReplyBytes), kLargeBlocks * kReplyBytes);
  server->RemoveCache("large");
  server.reset();
}

}  // namespace
}  // namespace pagoda::server
