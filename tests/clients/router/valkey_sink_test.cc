// The records of a router in real servers, Redis and Valkey.
#include "clients/router/valkey_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/router/valkey_reader.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/clients/router/await.h"
#include "tests/clients/router/fake_node.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/pools/store/resp_client.h"

namespace pagoda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kChunk = 32;
constexpr uint32_t kBuckets = 8;

class ValkeySinkTest : public testing::TestWithParam<ServerKind> {
 protected:
  ValkeySinkTest() : server_(GetParam(), {}) {
    EXPECT_TRUE(server_.is_up());
    for (uint32_t i = 0; i < 4 * kChunk; ++i) tokens_.push_back(i);
    chunks_ = ChunkHashes({.tokens = tokens_}, TokensPerBlock(16), kChunk);
  }
  ~ValkeySinkTest() override {
    if (sink_ != nullptr) sink_->Stop();
    router_.reset();
  }

  ValkeySink::Options Usual() const {
    return {.store = {.address = server_.address()},
            .prefix = "test",
            .buckets = kBuckets,
            .chunk_tokens = kChunk,
            .purge_pause = absl::Milliseconds(5)};
  }
  void Start(const ValkeySink::Options& options) {
    sink_ = *ValkeySink::Create(options);
    router_ = *PrefixRouter::Create({.chunk_tokens = kChunk,
                                     .lease = lease_,
                                     .first_pause = absl::Milliseconds(5),
                                     .longest_pause = absl::Milliseconds(20),
                                     .sink = sink_.get()});
    ASSERT_TRUE(sink_->Start([this](NodeId id) { router_->Refresh(id); }).ok());
    reader_ = std::make_unique<ValkeyReader>(
        ValkeyReader::Options{.store = {.address = server_.address()}, .prefix = "test"});
  }
  std::unique_ptr<FakeNode> Node(const std::string& name, uint64_t epoch) {
    auto node = std::make_unique<FakeNode>(directory_.File(name), FakeCache(epoch));
    EXPECT_TRUE(router_
                    ->AddNode({.name = name,
                               .endpoint = node->endpoint(),
                               .peer_address = absl::StrCat(name, ":7001"),
                               .credentials = {}})
                    .ok());
    return node;
  }
  std::vector<FakeBlock> Blocks(size_t count, v1::Tier tier = v1::TIER_PRIMARY) const {
    std::vector<FakeBlock> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back({chunks_[i].value(), tier});
    return blocks;
  }
  // "NAME:TOKENS:TIER" of each node that the reader finds.
  std::vector<std::string> Found() {
    std::vector<std::string> found;
    const auto matches = reader_->Find({.tokens = tokens_}, 8);
    if (!matches.ok()) return {std::string(matches.status().message())};
    for (const ValkeyReader::Match& match : *matches) {
      EXPECT_EQ(match.peer_address, absl::StrCat(match.node, ":7001"));
      found.push_back(
          absl::StrCat(match.node, ":", match.tokens, ":", static_cast<int>(match.tier)));
    }
    return found;
  }
  void AwaitFound(const std::vector<std::string>& expected) {
    std::vector<std::string> last;
    Await([&] { return (last = Found()) == expected; }, testing::PrintToString(expected));
    EXPECT_EQ(last, expected);
  }
  // All fields of all buckets.
  int64_t Fields() {
    RespClient client(server_.port());
    int64_t fields = 0;
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      fields += client.Do({"HLEN", router_store::BucketKey("test", bucket)}).integer;
    }
    return fields;
  }

  // "NAME CHUNK TIER" of each record that counts, by chunk and name. Read past the reader.
  std::vector<std::string> Stored() {
    RespClient client(server_.port());
    std::map<std::string, std::string> names;  // Of nodes, by number and generation.
    const resp::Value ids = client.Do({"HGETALL", "test:ids"});
    for (size_t i = 0; i + 1 < ids.elements.size(); i += 2) {
      const std::string number = ids.elements[i + 1].text;
      const auto lease =
          router_store::ParseLease(client.Do({"GET", absl::StrCat("test:n:", number)}).text);
      if (!lease.has_value() || lease->hidden) continue;
      names[absl::StrCat(number, " ", lease->generation)] = ids.elements[i].text;
    }
    std::vector<std::string> stored;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const resp::Value bucket =
          client.Do({"HGETALL", router_store::BucketKey(
                                    "test", router_store::BucketOf(chunks_[i], kBuckets))});
      std::vector<std::string> of_chunk;
      for (size_t e = 0; e + 1 < bucket.elements.size(); e += 2) {
        const auto record =
            router_store::ParseRecord(bucket.elements[e].text, bucket.elements[e + 1].text);
        if (!record.has_value() || record->chunk != chunks_[i]) continue;
        const auto name = names.find(absl::StrCat(record->node, " ", record->generation));
        if (name == names.end()) continue;
        of_chunk.push_back(absl::StrCat(name->second, " ", i, " ", static_cast<int>(record->tier)));
      }
      std::sort(of_chunk.begin(), of_chunk.end());
      stored.insert(stored.end(), of_chunk.begin(), of_chunk.end());
    }
    return stored;
  }

  const TempDirectory directory_;
  absl::Duration lease_ = absl::Seconds(60);
  RedisServer server_;
  std::vector<TokenId> tokens_;
  std::vector<BlockHash> chunks_;
  std::unique_ptr<ValkeySink> sink_;
  std::unique_ptr<PrefixRouter> router_;
  std::unique_ptr<ValkeyReader> reader_;
};

TEST_P(ValkeySinkTest, AReaderFindsWhatTheRouterFinds) {
  Start(Usual());
  EXPECT_TRUE(absl::IsNotFound(reader_->Find({.tokens = tokens_}, 8).status()));
  const auto a = Node("a", 7), b = Node("b", 8);
  a->Send(SnapshotMessage(7, 10, Blocks(2)));
  b->Send(SnapshotMessage(8, 10, Blocks(3, v1::TIER_SECONDARY)));
  AwaitFound({"b:96:1", "a:64:0"});
  a->Send(StoredMessage(7, 10, 11, {{chunks_[2].value(), v1::TIER_PRIMARY}}));
  AwaitFound({"a:96:0", "b:96:1"});
  a->Send(StoredMessage(7, 11, 12, {{chunks_[2].value(), v1::TIER_THIRD}}));
  AwaitFound({"b:96:1", "a:96:2"});
  v1::WatchResponse removed = StoredMessage(7, 12, 13);
  removed.add_events()->mutable_removed()->add_block_hashes(chunks_[2].value());
  a->Send(removed);
  AwaitFound({"b:96:1", "a:64:0"});
  EXPECT_EQ(Fields(), 5);
  Await([&] { return sink_->figures().written == 8; }, "all are written");
  // The changes after the snapshot are in the node's stream, by their revisions.
  RespClient client(server_.port());
  const resp::Value node = client.Do({"HGET", "test:ids", "a"});
  const resp::Value entries =
      client.Do({"XRANGE", absl::StrCat("test:events:", node.text, ":0000000000000007"), "-", "+"});
  ASSERT_EQ(entries.elements.size(), 3u);
  EXPECT_EQ(entries.elements[0].elements[0].text, "11-0");
  EXPECT_EQ(entries.elements[2].elements[0].text, "13-0");
}

TEST_P(ValkeySinkTest, ABrokenNodeIsHiddenAndComesBack) {
  Start(Usual());
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitFound({"a:64:0"});
  a->End(absl::UnavailableError("gone"));
  AwaitFound({});
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(Fields(), 2) << "hidden records are not purged";
  a->Send(StoredMessage(7, 10, 10));
  AwaitFound({"a:64:0"});
}

TEST_P(ValkeySinkTest, ADeadNodeIsIgnoredAtOnceAndPurgedLater) {
  lease_ = absl::Milliseconds(300);
  Start(Usual());
  const auto a = Node("a", 7), b = Node("b", 8);
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  b->Send(SnapshotMessage(8, 10, Blocks(1)));
  AwaitFound({"a:96:0", "b:32:0"});
  const absl::Time start = absl::Now();
  Await(
      [&] {
        b->Send(StoredMessage(8, 10, 10));
        return Found() == std::vector<std::string>{"b:32:0"};
      },
      "the silent node is ignored");
  EXPECT_LT(absl::Now() - start, lease_ + absl::Seconds(5));
  Await(
      [&] {
        b->Send(StoredMessage(8, 10, 10));
        return Fields() == 1;
      },
      "its records are purged");
  // The sink counts them when it has the server's answer.
  Await([&] { return sink_->figures().purged >= 3; }, "the purge is counted");
  EXPECT_THAT(Found(), ElementsAre("b:32:0"));
}

TEST_P(ValkeySinkTest, AGapDrawsANewGeneration) {
  Start(Usual());
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  AwaitFound({"a:96:0"});
  a->Send(StoredMessage(7, 12, 13));
  Await([&] { return a->requests().size() == 2; }, "a second stream");
  AwaitFound({});
  a->Send(SnapshotMessage(7, 20, Blocks(1)));
  AwaitFound({"a:32:0"});
  Await([&] { return Fields() == 1; }, "the records of before are purged");
  // In the same stream: the lease changes at once.
  a->Send(SnapshotMessage(7, 30, Blocks(4)));
  AwaitFound({"a:127:0"});
  a->Send(SnapshotMessage(7, 40, Blocks(2)));
  AwaitFound({"a:64:0"});
  Await([&] { return Fields() == 2; }, "the records of before are purged again");
}

TEST_P(ValkeySinkTest, RecordsOfAnEarlierGenerationDoNotCount) {
  ValkeySink::Options options = Usual();
  options.purge_pause = absl::Hours(1);
  Start(options);
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(4)));
  AwaitFound({"a:127:0"});
  a->Send(SnapshotMessage(7, 20, Blocks(2)));
  AwaitFound({"a:64:0"});
  EXPECT_EQ(Fields(), 4) << "they are still there";
}

TEST_P(ValkeySinkTest, AServerThatLosesEverythingIsFilledAgain) {
  Start(Usual());
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  AwaitFound({"a:96:0"});
  server_.Kill();
  a->Send(StoredMessage(7, 10, 11));
  Await([&] { return !sink_->figures().connected; }, "the sink sees it");
  server_.Start();
  Await([&] { return a->requests().size() == 2; }, "a second snapshot");
  a->Send(SnapshotMessage(7, 20, Blocks(2)));
  AwaitFound({"a:64:0"});
  EXPECT_GE(sink_->figures().refreshes, 1u);
}

TEST_P(ValkeySinkTest, ALeaseThatWasLostBeginsAgain) {
  ValkeySink::Options options = Usual();
  options.lease = absl::Milliseconds(300);
  Start(options);
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  AwaitFound({"a:96:0"});
  absl::SleepFor(2 * options.lease);
  EXPECT_THAT(Found(), ElementsAre("a:96:0")) << "it is renewed";
  RespClient client(server_.port());
  const resp::Value node = client.Do({"HGET", "test:ids", "a"});
  EXPECT_EQ(client.Do({"DEL", absl::StrCat("test:n:", node.text)}).integer, 1);
  Await([&] { return a->requests().size() == 2; }, "a second snapshot");
  EXPECT_TRUE(a->requests().back().snapshot());
  a->Send(SnapshotMessage(7, 20, Blocks(2)));
  AwaitFound({"a:64:0"});
}

TEST_P(ValkeySinkTest, AFullQueueBeginsAgainWhenTheServerIsBack) {
  ValkeySink::Options options = Usual();
  options.max_waiting = 10;
  Start(options);
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitFound({"a:64:0"});
  server_.Signal(SIGSTOP);
  for (uint64_t revision = 11; revision < 40; ++revision) {
    a->Send(StoredMessage(7, revision - 1, revision, {{revision, v1::TIER_PRIMARY}}));
  }
  Await([&] { return router_->Nodes().front().figures.revision == 39; }, "the router goes on");
  EXPECT_LE(sink_->figures().waiting, 11u);
  server_.Signal(SIGCONT);
  Await([&] { return a->requests().size() >= 2; }, "a second snapshot");
  a->Send(SnapshotMessage(7, 50, Blocks(3)));
  AwaitFound({"a:96:0"});
}

TEST_P(ValkeySinkTest, ARemovedNodeAndAStoppedSinkLeaveNoLease) {
  Start(Usual());
  const auto a = Node("a", 7), b = Node("b", 8);
  a->Send(SnapshotMessage(7, 10, Blocks(2)));
  b->Send(SnapshotMessage(8, 10, Blocks(1)));
  AwaitFound({"a:64:0", "b:32:0"});
  const absl::Time start = absl::Now();
  ASSERT_TRUE(router_->RemoveNode("a").ok());
  AwaitFound({"b:32:0"});
  EXPECT_LT(absl::Now() - start, absl::Seconds(5)) << "its lease did not just expire";
  sink_->Stop();
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_P(ValkeySinkTest, SinksOfOtherBucketsAreRefused) {
  Start(Usual());
  const auto a = Node("a", 7);
  a->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitFound({"a:64:0"});
  ValkeySink::Options options = Usual();
  options.buckets = 2 * kBuckets;
  const auto other = *ValkeySink::Create(options);
  other->Begin(NodeId(1),
               {.name = "b", .endpoint = "unix:/b", .peer_address = "", .credentials = {}});
  ASSERT_TRUE(other->Accept(NodeId(1), {.model_fingerprint = "m", .tokens_per_block = 16}).ok());
  other->Apply(NodeId(1), {.epoch = 1, .revision = 1},
               {{{.chunk = chunks_[3], .tier = Tier::kPrimary}}});
  ASSERT_TRUE(other->Start([](NodeId) {}).ok());
  Await([&] { return !other->figures().error.ok(); }, "it is refused");
  EXPECT_THAT(std::string(other->figures().error.message()), testing::HasSubstr("buckets"));
  EXPECT_EQ(other->figures().written, 0u);
}

// Random changes of three nodes; at quiet moments the store answers as the router does.
TEST_P(ValkeySinkTest, AgreesWithTheRouter) {
  Start(Usual());
  std::mt19937 random(3);
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::vector<uint64_t> revisions(3, 10);
  for (uint64_t i = 0; i < 3; ++i) {
    nodes.push_back(Node(absl::StrCat("n", i), i + 1));
    nodes[i]->Send(SnapshotMessage(i + 1, 10, Blocks(random() % 5)));
  }
  for (int round = 0; round < 30; ++round) {
    for (uint64_t i = 0; i < 3; ++i) {
      const uint64_t epoch = i + 1, before = revisions[i];
      revisions[i] += 1 + random() % 3;
      if (random() % 6 == 0) {
        nodes[i]->Send(SnapshotMessage(epoch, revisions[i], Blocks(random() % 5)));
        continue;
      }
      v1::WatchResponse message = StoredMessage(epoch, before, revisions[i]);
      for (int step = 0; step < 4; ++step) {
        const uint64_t chunk = chunks_[random() % chunks_.size()].value();
        v1::Event* event = message.add_events();
        if (random() % 3 == 0) {
          event->mutable_removed()->add_block_hashes(chunk);
        } else {
          v1::StoredBlock* block = event->mutable_stored()->add_blocks();
          block->set_block_hash(chunk);
          block->set_tier(static_cast<v1::Tier>(1 + random() % 3));
        }
      }
      nodes[i]->Send(message);
    }
    Await(
        [&] {
          const auto rows = router_->Nodes();
          for (uint64_t i = 0; i < 3; ++i) {
            if (rows[i].figures.revision != revisions[i]) return false;
          }
          return true;
        },
        "the router has all");
    std::vector<std::string> expected;
    // The walk of the index stops at a chunk that no node has. Here nodes can lack any chunk, so
    // each chunk is asked for alone.
    for (size_t i = 0; i < chunks_.size(); ++i) {
      for (int node = 0; node < 3; ++node) {
        const auto tier = router_->TierOf(absl::StrCat("n", node), chunks_[i]);
        if (tier.has_value()) {
          expected.push_back(absl::StrCat("n", node, " ", i, " ", static_cast<int>(*tier)));
        }
      }
    }
    std::vector<std::string> stored;
    Await([&] { return (stored = Stored()) == expected; }, absl::StrCat("round ", round));
    ASSERT_EQ(stored, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Servers, ValkeySinkTest, testing::ValuesIn(InstalledServers()),
                         [](const auto& kind) { return kind.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ValkeySinkTest);

}  // namespace
}  // namespace pagoda
