// The router's promises with real daemons: a mirror equals each daemon's tree after every gap, and
// a dead node is ignored within its lease.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/router/prefix_router.h"
#include "events/snapshot.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "server/log/log.h"
#include "tests/clients/fixtures/cutting_proxy.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/clients/router/await.h"
#include "tests/clients/router/daemon_process.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlockTokens = server::kTestTokensPerBlock;
constexpr uint32_t kChunkTokens = 2 * kBlockTokens;
constexpr int kNodes = 3;
constexpr int kRounds = 120;

using ChunkTiers = std::map<BlockHash, Tier>;

// The chunks of the daemon's own tree, by a walk over the whole tree.
ChunkTiers ChunksOf(SharedManager& manager) {
  struct Block {
    BlockId parent;
    StoredBlock stored;
  };
  std::map<BlockId, Block> blocks;
  SnapshotPosition position;
  while (!position.done) {
    const SnapshotPiece piece = manager.Read([&](const BlockManager& core) {
      return core.ReadSnapshot(position, 1000, 100'000, manager.now());
    });
    for (const Event& event : piece.events) {
      const auto* stored = std::get_if<StoredEvent>(&event.what);
      if (stored == nullptr) continue;
      BlockId parent = stored->parent;
      for (const StoredBlock& block : stored->blocks) {
        blocks[block.id] = {parent, block};
        parent = block.id;
      }
    }
    position = piece.end;
  }
  ChunkTiers chunks;
  for (const auto& [id, block] : blocks) {
    uint32_t end = block.stored.token_count;
    for (BlockId up = block.parent; up != kNoBlock; up = blocks.at(up).parent) {
      end += blocks.at(up).stored.token_count;
    }
    if (block.stored.token_count == kBlockTokens && end % kChunkTokens == 0) {
      chunks[block.stored.hash] = block.stored.tier;
    }
  }
  return chunks;
}

// A daemon of this process behind a proxy, and the engine that uses it.
class Node {
 public:
  explicit Node(int number) : number_(number), config_(server::TestConfig()), random_(number) {
    config_.cache.secondary = BlockBudget{{server::kTestBlocks}};
    config_.events.max_events = 40;
    config_.events.progress_interval = absl::Milliseconds(20);
    Start();
    proxy_ = std::make_unique<CuttingProxy>(directory_.File("proxy"), config_.server.unix_socket);
  }

  // A new epoch, at the same address.
  void Restart() {
    client_.reset();
    daemon_.reset();
    Start();
  }

  std::string name() const { return absl::StrCat("node-", number_); }
  std::string endpoint() const { return absl::StrCat("unix:", directory_.File("proxy")); }
  CuttingProxy& proxy() { return *proxy_; }
  SharedManager& manager() { return daemon_->manager(); }

  // What an engine and an operator do.
  void Work(int steps) {
    for (int i = 0; i < steps; ++i) {
      const SequenceId sequence(1);
      std::vector<TokenId> tokens = Prompt();
      const uint32_t size = static_cast<uint32_t>(tokens.size());
      std::vector<Operation> operations;
      switch (random_() % 20) {
        case 0:
          operations = {InvalidatePrefix{.tokens = std::move(tokens)}};
          break;
        case 1:
        case 2:
          operations = {OffloadPrefix{.tokens = std::move(tokens)}};
          break;
        case 3:
          operations = {PrefetchPrefix{.tokens = std::move(tokens)}};
          break;
        case 4:
          if (random_() % 10 == 0) manager().ResetPrefixCache();
          break;
        default:
          operations = {AddSequence{.sequence = sequence, .tokens = std::move(tokens)},
                        CommitTokens{.sequence = sequence, .computed_tokens = size},
                        FreeSequence{sequence}};
      }
      if (operations.empty()) continue;
      const absl::StatusOr<BatchResult> done = client_->Execute(operations);
      ASSERT_TRUE(done.ok()) << done.status();
    }
  }

 private:
  void Start() {
    server::SetLogLevel(config_.log.level);
    auto daemon = server::Daemon::Start(config_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    auto client = OpenGrpcCacheClient(
        {.endpoint = absl::StrCat("unix:", config_.server.unix_socket), .client_name = "engine"});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Up to 10 blocks; the blocks of each depth are of few kinds, so prompts share beginnings. Most
  // end in a tail.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> tokens(1 + random_() % (10 * kBlockTokens));
    TokenId kind = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i % kBlockTokens == 0) kind = static_cast<TokenId>(random_() % 2);
      tokens[i] = kind;
    }
    return tokens;
  }

  const int number_;
  const TempDirectory directory_;
  server::Config config_;
  std::mt19937 random_;
  std::unique_ptr<server::Daemon> daemon_;
  std::unique_ptr<CacheClient> client_;
  std::unique_ptr<CuttingProxy> proxy_;
};

class RouterMirrorTest : public testing::Test {
 protected:
  RouterMirrorTest() {
    for (int i = 0; i < kNodes; ++i) {
      nodes_.push_back(std::make_unique<Node>(i));
      EXPECT_TRUE(router_
                      ->AddNode({.name = nodes_[i]->name(),
                                 .endpoint = nodes_[i]->endpoint(),
                                 .peer_address = "",
                                 .credentials = {}})
                      .ok());
    }
  }

  static PrefixRouter::Options Options() {
    return {.chunk_tokens = kChunkTokens,
            .lease = absl::Seconds(10),
            .first_pause = absl::Milliseconds(2),
            .longest_pause = absl::Milliseconds(20)};
  }

  PrefixRouter::NodeRow Row(const Node& node) const {
    for (PrefixRouter::NodeRow& row : router_->Nodes()) {
      if (row.node->name == node.name()) return row;
    }
    ADD_FAILURE();
    return {};
  }

  // Nothing changes in the daemon meanwhile. A connection that lost a piece may end after the
  // router has the last event; the router then answers nothing of this node until it follows again.
  // A mirror that differs stays different.
  void ExpectEqual(Node& node) {
    const uint64_t revision = node.manager().Read(&BlockManager::revision).value();
    const uint64_t epoch = node.manager().epoch().value();
    const ChunkTiers expected = ChunksOf(node.manager());
    std::string state;
    const bool is_equal = WaitUntil([&] {
      const PrefixRouter::NodeRow row = Row(node);
      const ChunkTiers known = Known(node, expected);
      state =
          absl::StrCat(std::string(NodeStateName(row.figures.state)), ", epoch ", row.figures.epoch,
                       ", revision ", row.figures.revision, ", ", row.records, " records, ",
                       known.size(), " of the daemon's chunks in their tier");
      return row.figures.state == NodeState::kFollowing && row.figures.epoch == epoch &&
             row.figures.revision == revision && row.records == expected.size() &&
             known == expected;
    });
    EXPECT_TRUE(is_equal) << node.name() << ": " << state << "; the daemon has epoch " << epoch
                          << ", revision " << revision << ", " << expected.size() << " chunks";
    largest_ = std::max(largest_, expected.size());
  }

  // The chunks that the router knows at the node in the daemon's tier.
  ChunkTiers Known(const Node& node, const ChunkTiers& expected) const {
    ChunkTiers known;
    for (const auto& [chunk, tier] : expected) {
      if (router_->TierOf(node.name(), chunk) == tier) known[chunk] = tier;
    }
    return known;
  }

  const std::unique_ptr<PrefixRouter> router_ = *PrefixRouter::Create(Options());
  std::vector<std::unique_ptr<Node>> nodes_;
  size_t largest_ = 0;
};

TEST_F(RouterMirrorTest, AMirrorEqualsEachDaemonsTreeAfterEveryGap) {
  std::mt19937 random(5);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    for (const auto& node : nodes_) {
      node->proxy().LoseOneIn(random() % 3 == 0 ? 0 : 4);
      node->Work(static_cast<int>(random() % 30));
    }
    if (round % 20 == 10) nodes_[static_cast<size_t>(round / 20 % kNodes)]->Restart();
    for (const auto& node : nodes_) node->proxy().LoseOneIn(0);
    for (const auto& node : nodes_) ExpectEqual(*node);
  }
  uint64_t gaps = 0;
  for (const auto& node : nodes_) {
    gaps += Row(*node).figures.gaps;
    EXPECT_GT(node->proxy().cuts(), 10) << node->name();
  }
  EXPECT_GT(gaps, 15u);
  EXPECT_GT(largest_, 8u);
  RecordProperty("gaps", static_cast<int>(gaps));
}

// All that the router says about a prompt that both nodes have.
class DeadNodeTest : public testing::Test {
 protected:
  static constexpr absl::Duration kLease = absl::Milliseconds(500);

  DeadNodeTest() {
    for (uint32_t i = 0; i < 24; ++i) tokens_.push_back(i);
    for (DaemonProcess* process : {&dead_, &alive_}) {
      EXPECT_TRUE(router_
                      ->AddNode({.name = process == &dead_ ? "dead" : "alive",
                                 .endpoint = process->endpoint(),
                                 .peer_address = "",
                                 .credentials = {}})
                      .ok());
      CachePrompt(*process);
    }
    Await([&] { return Found().size() == 2; }, "both nodes have the prompt");
  }

  void CachePrompt(const DaemonProcess& process) {
    auto client = OpenGrpcCacheClient({.endpoint = process.endpoint(), .client_name = "engine"});
    ASSERT_TRUE(client.ok()) << client.status();
    const SequenceId sequence(1);
    const std::vector<Operation> operations = {
        AddSequence{.sequence = sequence, .tokens = tokens_},
        CommitTokens{.sequence = sequence, .computed_tokens = 24}, FreeSequence{sequence}};
    ASSERT_TRUE((*client)->Execute(operations).ok());
  }

  std::vector<std::string> Found() const {
    std::vector<std::string> names;
    for (const auto& candidate : router_->Find({.tokens = tokens_}, 9).nodes) {
      names.push_back(candidate.node->name);
    }
    return names;
  }

  void ExpectIgnored(absl::Time since, absl::Duration within) {
    Await([&] { return Found() == std::vector<std::string>{"alive"}; }, "the dead one is ignored");
    EXPECT_LT(absl::Now() - since, within);
    // It stays away, and the other one stays.
    for (int i = 0; i < 50; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      ASSERT_THAT(Found(), testing::ElementsAre("alive"));
    }
  }

  std::vector<TokenId> tokens_;
  DaemonProcess dead_{"router-dead", PAGODAD}, alive_{"router-alive", PAGODAD};
  const std::unique_ptr<PrefixRouter> router_ = *PrefixRouter::Create(
      {.chunk_tokens = kChunkTokens, .lease = kLease, .longest_pause = absl::Milliseconds(100)});
};

TEST_F(DeadNodeTest, AKilledDaemonIsIgnoredWithinItsLeaseAndComesBackEmpty) {
  const absl::Time killed = absl::Now();
  dead_.Kill();
  ExpectIgnored(killed, kLease);
  dead_.Start();
  const auto is_following = [&] {
    for (const PrefixRouter::NodeRow& row : router_->Nodes()) {
      if (row.node->name == "dead") {
        return row.figures.state == NodeState::kFollowing && row.records == 0;
      }
    }
    return false;
  };
  Await(is_following, "the restarted daemon is followed");
  EXPECT_THAT(Found(), testing::ElementsAre("alive"));
  CachePrompt(dead_);
  Await([&] { return Found().size() == 2; }, "both have the prompt again");
}

TEST_F(DeadNodeTest, AStoppedDaemonIsIgnoredWithinItsLeaseAndComesBack) {
  const absl::Time stopped = absl::Now();
  dead_.Signal(SIGSTOP);
  // A twentieth of the lease for the router's pace; the rest for a busy machine.
  ExpectIgnored(stopped, kLease + absl::Milliseconds(250));
  dead_.Signal(SIGCONT);
  Await([&] { return Found().size() == 2; }, "both have the prompt");
}

int Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task"), end;
  return static_cast<int>(std::distance(tasks, end));
}

TEST_F(DeadNodeTest, NodesNeedNoThreads) {
  const int before = Threads();
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(router_
                    ->AddNode({.name = absl::StrCat("again-", i),
                               .endpoint = alive_.endpoint(),
                               .peer_address = "",
                               .credentials = {}})
                    .ok());
  }
  Await([&] { return router_->Find({.tokens = tokens_}, 100).nodes.size() == 42; }, "all have it");
  EXPECT_LE(Threads() - before, 8) << "gRPC's own";
}

}  // namespace
}  // namespace pagoda
