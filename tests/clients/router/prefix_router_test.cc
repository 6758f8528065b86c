// The router with nodes that the test plays.
#include "clients/router/prefix_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/clients/router/await.h"
#include "tests/clients/router/fake_node.h"

namespace pagoda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint32_t kChunk = 32;  // Two blocks.

class PrefixRouterTest : public testing::Test {
 protected:
  PrefixRouterTest() {
    for (uint32_t i = 0; i < 4 * kChunk; ++i) tokens_.push_back(i);
    chunks_ = ChunkHashes({.tokens = tokens_}, TokensPerBlock(16), kChunk);
  }

  std::unique_ptr<FakeNode> Fake(const std::string& name, v1::CacheRow row) {
    return std::make_unique<FakeNode>(directory_.File(name), std::move(row));
  }
  static PrefixRouter::Options Usual() {
    return {.chunk_tokens = kChunk,
            .lease = absl::Seconds(60),
            .first_pause = absl::Milliseconds(5),
            .longest_pause = absl::Milliseconds(20)};
  }
  void MakeRouter(const PrefixRouter::Options& options = Usual()) {
    router_ = *PrefixRouter::Create(options);
  }
  void Add(const std::string& name, const FakeNode& node) {
    ASSERT_TRUE(router_
                    ->AddNode({.name = name,
                               .endpoint = node.endpoint(),
                               .peer_address = absl::StrCat(name, ":7001"),
                               .credentials = {}})
                    .ok());
  }

  // Blocks that end the prompt's first `count` chunks.
  std::vector<FakeBlock> Blocks(size_t count, v1::Tier tier = v1::TIER_PRIMARY) const {
    std::vector<FakeBlock> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back({chunks_[i].value(), tier});
    return blocks;
  }
  // "NAME:TOKENS:TIER" of each node that the router finds.
  std::vector<std::string> Found(size_t most = 8) const {
    std::vector<std::string> found;
    for (const auto& candidate : router_->Find({.tokens = tokens_}, most).nodes) {
      found.push_back(
          absl::StrCat(candidate.node->name, ":", candidate.tokens, ":", candidate.tier.value()));
    }
    return found;
  }
  NodeFigures Figures(const std::string& name) const {
    for (const PrefixRouter::NodeRow& row : router_->Nodes()) {
      if (row.node->name == name) return row.figures;
    }
    ADD_FAILURE() << "no node " << name;
    return {};
  }
  void AwaitRevision(const std::string& name, uint64_t revision) {
    Await([&] { return Figures(name).revision == revision; }, absl::StrCat("up to ", revision));
  }

  TempDirectory directory_;
  std::vector<TokenId> tokens_;
  std::vector<BlockHash> chunks_;
  std::unique_ptr<PrefixRouter> router_;
};

TEST_F(PrefixRouterTest, FollowsASnapshotAndChanges) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  EXPECT_THAT(Found(), IsEmpty());
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitRevision("a", 10);
  EXPECT_THAT(Found(), ElementsAre("a:64:0"));
  const v1::WatchRequest request = node->requests().front();
  EXPECT_TRUE(request.snapshot());
  EXPECT_TRUE(request.resnapshot_when_behind());
  EXPECT_EQ(request.content(), v1::EVENT_CONTENT_HASHES);
  EXPECT_EQ(request.chunk_tokens(), kChunk);
  EXPECT_THAT(request.window_sizes(), ElementsAre(0)) << "full attention is the largest window";

  node->Send(StoredMessage(7, 10, 11, {{chunks_[2].value(), v1::TIER_SECOND}}));
  AwaitRevision("a", 11);
  EXPECT_THAT(Found(), ElementsAre("a:96:1"));

  v1::WatchResponse moved = StoredMessage(7, 11, 12);
  v1::UpdatedEvent* updated = moved.add_events()->mutable_updated();
  updated->set_block_hash(chunks_[2].value());
  updated->mutable_tier()->set_new_value(v1::TIER_THIRD);
  node->Send(moved);
  AwaitRevision("a", 12);
  EXPECT_THAT(Found(), ElementsAre("a:96:2"));

  v1::WatchResponse removed = StoredMessage(7, 12, 14);
  removed.add_events()->mutable_removed()->add_block_hashes(chunks_[2].value());
  node->Send(removed);
  AwaitRevision("a", 14);
  EXPECT_THAT(Found(), ElementsAre("a:64:0"));

  v1::WatchResponse cleared = StoredMessage(7, 14, 15);
  cleared.add_events()->mutable_removed()->set_scope(v1::REMOVAL_SCOPE_WINDOW);
  v1::StoredBlock* block = cleared.add_events()->mutable_stored()->add_blocks();
  block->set_block_hash(chunks_[0].value());
  block->set_tier(v1::TIER_PRIMARY);
  node->Send(cleared);
  AwaitRevision("a", 15);
  EXPECT_THAT(Found(), ElementsAre("a:32:0"));
  EXPECT_EQ(router_->Nodes().front().records, 1u);
  EXPECT_EQ(Figures("a").gaps, 0u);
}

TEST_F(PrefixRouterTest, TheLastTokenIsNeverReused) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(4)));
  AwaitRevision("a", 10);
  EXPECT_THAT(Found(), ElementsAre("a:127:0"));
}

TEST_F(PrefixRouterTest, WithoutAChunkItFindsWholeBlocks) {
  const auto node = Fake("a", FakeCache(7));
  PrefixRouter::Options options = Usual();
  options.chunk_tokens = 0;
  MakeRouter(options);
  Add("a", *node);
  const std::vector<BlockHash> blocks = ChunkHashes({.tokens = tokens_}, TokensPerBlock(16), 16);
  node->Send(
      SnapshotMessage(7, 10, {{blocks[0].value()}, {blocks[1].value()}, {blocks[2].value()}}));
  AwaitRevision("a", 10);
  EXPECT_THAT(Found(), ElementsAre("a:48:0"));
  EXPECT_EQ(node->requests().front().chunk_tokens(), 0u);
}

TEST_F(PrefixRouterTest, ABrokenStreamIsHiddenAndContinues) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitRevision("a", 10);
  node->End(absl::UnavailableError("gone"));
  Await([&] { return node->requests().size() == 2; }, "a second stream");
  EXPECT_THAT(Found(), IsEmpty()) << "hidden";
  EXPECT_EQ(Figures("a").state, NodeState::kBroken);
  EXPECT_EQ(router_->Nodes().front().records, 2u) << "not forgotten";
  const v1::WatchRequest resumed = node->requests().back();
  EXPECT_FALSE(resumed.snapshot());
  EXPECT_EQ(resumed.from_revision(), 11u);
  EXPECT_EQ(resumed.epoch(), 7u);
  node->Send(StoredMessage(7, 10, 10));
  Await([&] { return Figures("a").state == NodeState::kFollowing; }, "follows");
  EXPECT_THAT(Found(), ElementsAre("a:64:0"));
  EXPECT_EQ(Figures("a").snapshots, 1u);
}

TEST_F(PrefixRouterTest, AGapForgetsAndBeginsWithASnapshot) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(3)));
  AwaitRevision("a", 10);
  node->Send(StoredMessage(7, 12, 13));
  Await([&] { return node->requests().size() == 2; }, "a second stream");
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_EQ(router_->Nodes().front().records, 0u);
  EXPECT_TRUE(node->requests().back().snapshot());
  node->Send(SnapshotMessage(7, 20, Blocks(1)));
  AwaitRevision("a", 20);
  EXPECT_THAT(Found(), ElementsAre("a:32:0"));
  EXPECT_EQ(Figures("a").gaps, 1u);
  EXPECT_EQ(Figures("a").snapshots, 2u);
}

TEST_F(PrefixRouterTest, ALogThatHasPassedAndANewEpochBeginWithASnapshot) {
  for (const Reason reason : {Reason::kRevisionCompacted, Reason::kEpochChanged}) {
    const auto node = Fake(absl::StrCat(static_cast<int>(reason)), FakeCache(7));
    MakeRouter();
    Add("a", *node);
    node->Send(SnapshotMessage(7, 10, Blocks(3)));
    AwaitRevision("a", 10);
    node->SetCache(FakeCache(8));
    node->End(MakeError(reason, "played"));
    Await([&] { return node->requests().size() == 2; }, "a second stream");
    EXPECT_THAT(Found(), IsEmpty());
    EXPECT_TRUE(node->requests().back().snapshot());
    node->Send(SnapshotMessage(8, 5, Blocks(1)));
    AwaitRevision("a", 5);
    EXPECT_THAT(Found(), ElementsAre("a:32:0"));
    EXPECT_EQ(Figures("a").epoch, 8u);
    EXPECT_EQ(Figures("a").gaps, 1u);
    router_.reset();
  }
}

TEST_F(PrefixRouterTest, ASnapshotInTheSameStreamReplacesAll) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(3)));
  node->Send(SnapshotMessage(7, 30, Blocks(1)));
  AwaitRevision("a", 30);
  EXPECT_THAT(Found(), ElementsAre("a:32:0"));
  EXPECT_EQ(node->requests().size(), 1u);
  EXPECT_EQ(Figures("a").gaps, 1u);
}

TEST_F(PrefixRouterTest, ASnapshotThatBreaksBeginsAgain) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  v1::WatchResponse half = SnapshotMessage(7, 10, Blocks(3));
  half.set_snapshot_end(false);
  node->Send(half);
  AwaitRevision("a", 10);
  EXPECT_EQ(Figures("a").state, NodeState::kSnapshot);
  EXPECT_THAT(Found(), ElementsAre("a:96:0")) << "what has arrived counts";
  node->End(absl::UnavailableError("gone"));
  Await([&] { return node->requests().size() == 2; }, "a second stream");
  EXPECT_TRUE(node->requests().back().snapshot());
  EXPECT_EQ(router_->Nodes().front().records, 0u);
}

TEST_F(PrefixRouterTest, ANodeThatRestartsBetweenItsAnswersBeginsAgain) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(9, 10, Blocks(3)));
  Await([&] { return node->requests().size() == 2; }, "a second stream");
  EXPECT_THAT(Found(), IsEmpty()) << "its cache may be another one";
  node->SetCache(FakeCache(9));
  Await([&] { return Figures("a").gaps == 1; }, "a gap");
}

TEST_F(PrefixRouterTest, ASilentNodeIsIgnoredWithinItsLease) {
  const absl::Duration lease = absl::Seconds(2);  // No busy machine stands still for so long.
  const auto silent = Fake("a", FakeCache(7)), alive = Fake("b", FakeCache(8));
  PrefixRouter::Options options = Usual();
  options.lease = lease;
  MakeRouter(options);
  Add("a", *silent);
  Add("b", *alive);
  silent->Send(SnapshotMessage(7, 10, Blocks(3)));
  alive->Send(SnapshotMessage(8, 10, Blocks(2)));
  AwaitRevision("a", 10);
  AwaitRevision("b", 10);
  // Signs of life renew it.
  absl::Time last = absl::Now();
  for (const absl::Time end = last + 1.25 * lease; last < end; last = absl::Now()) {
    silent->Send(StoredMessage(7, 10, 10));
    alive->Send(StoredMessage(8, 10, 10));
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(Found(), ElementsAre("a:96:0", "b:64:0"));
  Await(
      [&] {
        alive->Send(StoredMessage(8, 10, 10));
        return Found() != std::vector<std::string>{"a:96:0", "b:64:0"};
      },
      "the silent node is ignored");
  EXPECT_GE(absl::Now() - last, lease / 2) << "it has a whole lease";
  Await(
      [&] {
        alive->Send(StoredMessage(8, 10, 10));
        return Found() == std::vector<std::string>{"b:64:0"} &&
               Figures("a").state == NodeState::kDead;
      },
      "the other one is not");
  EXPECT_EQ(router_->Nodes().front().records, 0u);
  silent->Greet(SnapshotMessage(7, 12, Blocks(1)));
  AwaitRevision("a", 12);
  EXPECT_TRUE(silent->requests().back().snapshot());
}

TEST_F(PrefixRouterTest, ANodeThatIsAwayDiesAndComesBack) {
  const auto node = Fake("a", FakeCache(7));
  PrefixRouter::Options options = Usual();
  options.lease = absl::Milliseconds(200);
  MakeRouter(options);
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(3)));
  AwaitRevision("a", 10);
  node->Shutdown();
  Await([&] { return Found().empty(); }, "ignored");
  Await([&] { return Figures("a").state == NodeState::kDead; }, "dead");
  EXPECT_EQ(router_->Nodes().front().records, 0u);
  EXPECT_FALSE(Figures("a").error.ok());
  node->SetCache(FakeCache(8));
  node->Greet(SnapshotMessage(8, 3, Blocks(1)));
  node->Start();
  AwaitRevision("a", 3);
  EXPECT_THAT(Found(), ElementsAre("a:32:0"));
}

TEST_F(PrefixRouterTest, OtherContentIsRefused) {
  const auto first = Fake("a", FakeCache(7));
  const auto blocks = Fake("b", FakeCache(8, 32)), model = Fake("c", FakeCache(9, 16, "other"));
  const auto chunk = Fake("d", FakeCache(9, 64));
  MakeRouter();
  Add("a", *first);
  first->Send(SnapshotMessage(7, 10, Blocks(1)));
  AwaitRevision("a", 10);
  Add("b", *blocks);
  Add("c", *model);
  Add("d", *chunk);
  for (const std::string name : {"b", "c", "d"}) {
    Await([&] { return Figures(name).state == NodeState::kRefused; }, name);
  }
  EXPECT_THAT(std::string(Figures("b").error.message()), testing::HasSubstr("32 tokens"));
  EXPECT_EQ(ReasonOf(Figures("c").error), Reason::kModelMismatch);
  EXPECT_THAT(std::string(Figures("d").error.message()), testing::HasSubstr("whole blocks"));
  EXPECT_THAT(blocks->requests(), IsEmpty());
  // Without the first one, the others' caches can be used. The first of "b" and "c" to answer
  // decides.
  ASSERT_TRUE(router_->RemoveNode("a").ok());
  ASSERT_TRUE(router_->RemoveNode("b").ok());
  model->Send(SnapshotMessage(9, 4, Blocks(2)));
  AwaitRevision("c", 4);
  EXPECT_THAT(Found(), ElementsAre("c:64:0"));
}

TEST_F(PrefixRouterTest, TheOnlyNodeMayRestartWithAnotherModel) {
  const auto node = Fake("a", FakeCache(7));
  MakeRouter();
  Add("a", *node);
  node->Send(SnapshotMessage(7, 10, Blocks(2)));
  AwaitRevision("a", 10);
  node->SetCache(FakeCache(8, 16, "other"));
  node->End(MakeError(Reason::kEpochChanged, "played"));
  Await([&] { return node->requests().size() == 2; }, "a second stream");
  node->Send(SnapshotMessage(8, 4, Blocks(1)));
  AwaitRevision("a", 4);
  EXPECT_THAT(Found(), ElementsAre("a:32:0"));
}

TEST_F(PrefixRouterTest, ANodeThatRefusesIsAskedAgain) {
  const auto node = Fake("a", FakeCache(7));
  node->Refuse(MakeError(Reason::kPermissionDenied, "not for routers"));
  MakeRouter();
  Add("a", *node);
  Await([&] { return Figures("a").state == NodeState::kRefused; }, "refused");
  EXPECT_EQ(ReasonOf(Figures("a").error), Reason::kPermissionDenied);
  node->Refuse(absl::OkStatus());
  node->Send(SnapshotMessage(7, 10, Blocks(1)));
  AwaitRevision("a", 10);
}

TEST_F(PrefixRouterTest, NodesComeAndGo) {
  const auto a = Fake("a", FakeCache(7)), b = Fake("b", FakeCache(8));
  MakeRouter();
  Add("a", *a);
  Add("b", *b);
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  b->Send(SnapshotMessage(8, 10, Blocks(2)));
  AwaitRevision("a", 10);
  AwaitRevision("b", 10);
  EXPECT_THAT(Found(), ElementsAre("a:96:0", "b:64:0"));
  EXPECT_THAT(Found(1), ElementsAre("a:96:0"));
  EXPECT_EQ(ReasonOf(router_->AddNode({.name = "a", .endpoint = "unix:/x"})),
            Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(router_->AddNode({.name = "", .endpoint = "unix:/x"})),
            Reason::kInvalidArgument);
  EXPECT_TRUE(absl::IsNotFound(router_->RemoveNode("c")));
  ASSERT_TRUE(router_->RemoveNode("a").ok());
  EXPECT_THAT(Found(), ElementsAre("b:64:0"));
  // Its number is used again, and its records do not come back.
  const auto c = Fake("c", FakeCache(9));
  Add("c", *c);
  c->Send(SnapshotMessage(9, 10, Blocks(1)));
  AwaitRevision("c", 10);
  EXPECT_THAT(Found(), ElementsAre("b:64:0", "c:32:0"));
}

TEST_F(PrefixRouterTest, SnapshotsTakeTurns) {
  const auto a = Fake("a", FakeCache(7)), b = Fake("b", FakeCache(8));
  PrefixRouter::Options options = Usual();
  options.max_snapshots = 1;
  MakeRouter(options);
  Add("a", *a);
  Await([&] { return a->requests().size() == 1; }, "the first snapshot");
  Add("b", *b);
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_THAT(b->requests(), IsEmpty());
  a->Send(SnapshotMessage(7, 10, Blocks(3)));
  Await([&] { return b->requests().size() == 1; }, "the second one");
}

TEST_F(PrefixRouterTest, CostsFollowTheFormula) {
  const auto a = Fake("a", FakeCache(7)), b = Fake("b", FakeCache(8));
  PrefixRouter::Options options = Usual();
  // 64 bytes a token. A token takes 10 ms to compute, 2 ms from host, 4 ms from disk, 8 ms from a
  // peer.
  options.costs = {.recompute_tokens_per_second = 100,
                   .gpu_bytes_per_second = 1e9,
                   .host_bytes_per_second = 64 * 500,
                   .disk_bytes_per_second = 64 * 250,
                   .peer_bytes_per_second = 64 * 125};
  MakeRouter(options);
  Add("a", *a);
  Add("b", *b);
  std::vector<FakeBlock> blocks = Blocks(3);
  blocks[1].tier = v1::TIER_SECOND;
  blocks[2].tier = v1::TIER_THIRD;
  a->Send(SnapshotMessage(7, 10, blocks));
  b->Send(SnapshotMessage(8, 10, Blocks(1)));
  AwaitRevision("a", 10);
  AwaitRevision("b", 10);
  const PrefixRouter::Route route = router_->Find({.tokens = tokens_}, 8);
  ASSERT_THAT(route.nodes, SizeIs(2));
  const auto seconds = [](const PrefixRouter::Candidate& candidate) {
    return absl::ToDoubleSeconds(candidate.cost);
  };
  // 32 tokens from host, 32 from disk, 32 computed.
  EXPECT_NEAR(seconds(route.nodes[0]), 32 * 0.002 + 32 * 0.004 + 32 * 0.01, 1e-6);
  EXPECT_EQ(route.nodes[0].fetch_from, nullptr);
  // 64 tokens from a, 32 computed.
  EXPECT_NEAR(seconds(route.nodes[1]), 64 * 0.008 + 32 * 0.01, 1e-6);
  EXPECT_EQ(route.nodes[1].fetch_tokens, 64u);
  EXPECT_EQ(route.nodes[1].fetch_from->peer_address, "a:7001");
  // 96 tokens from a, 32 computed.
  EXPECT_NEAR(seconds(route.other), 96 * 0.008 + 32 * 0.01, 1e-6);
  EXPECT_EQ(route.other.node, nullptr);
  EXPECT_EQ(route.other.fetch_tokens, 96u);

  // Without fetches between nodes, it computes.
  options.costs.peer_bytes_per_second = 0;
  router_.reset();
  a->AwaitNoStream();
  MakeRouter(options);
  Add("a", *a);
  a->Send(SnapshotMessage(7, 21, blocks));
  Await([&] { return Figures("a").state == NodeState::kFollowing; }, "follows");
  EXPECT_NEAR(seconds(router_->Find({.tokens = tokens_}, 8).other), 128 * 0.01, 1e-6);
}

TEST_F(PrefixRouterTest, OptionsAreChecked) {
  PrefixRouter::Options options = Usual();
  options.lease = absl::Milliseconds(1);
  EXPECT_EQ(ReasonOf(PrefixRouter::Create(options).status()), Reason::kInvalidArgument);
  options = Usual();
  options.costs.recompute_tokens_per_second = 0;
  EXPECT_EQ(ReasonOf(PrefixRouter::Create(options).status()), Reason::kInvalidArgument);
}

TEST(ChunkHashesTest, AreThoseOfTheBlocksThatEndChunks) {
  std::vector<TokenId> tokens(11);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = 5 + i;
  const NamespaceKey name_space = {.cache_salt = "salt"};
  std::vector<uint64_t> extra_ids(11, 0);
  extra_ids[5] = 9;
  std::vector<BlockHash> expected;
  BlockHash hash = HashNamespace(name_space);
  std::vector<TokenExtra> extras(2);
  for (uint32_t block = 0; block < 5; ++block) {
    extras[1].extra_id = block == 2 ? 9 : 0;
    hash =
        HashBlock(hash, {.tokens = absl::MakeSpan(tokens).subspan(2 * block, 2), .extras = extras});
    if (block % 2 == 1) expected.push_back(hash);
  }
  EXPECT_EQ(ChunkHashes({.name_space = name_space, .tokens = tokens, .extra_token_ids = extra_ids},
                        TokensPerBlock(2), 4),
            expected);

  std::vector<ClientKey> keys;
  for (const char* text : {"a", "b", "c", "d", "e"}) keys.push_back(*ClientKey::Make(text));
  const NamespaceKey keyed = {.keyed = true};
  expected.clear();
  hash = HashNamespace(keyed);
  for (uint32_t block = 0; block < 4; ++block) {
    hash = HashBlock(hash, keys[block].block_key());
    if (block % 2 == 1) expected.push_back(hash);
  }
  const RoutedPrompt prompt = {.name_space = keyed, .keys = keys};
  EXPECT_EQ(ChunkHashes(prompt, TokensPerBlock(2), 4), expected);
  EXPECT_EQ(prompt.size(TokensPerBlock(2)), 10u);
  EXPECT_EQ(prompt.reusable(TokensPerBlock(2)), 10u);
}

}  // namespace
}  // namespace pagoda
