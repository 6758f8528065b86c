// A sequence's KV in this process's memory, and in a cache again.
#include "manager/kv_snapshot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "events/event_log.h"
#include "kernels/numeric.h"
#include "manager/shared_manager.h"
#include "pools/transfers.h"
#include "tests/base/require.h"
#include "tests/manager/fixtures/held_blocks.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlock = 4;
constexpr WindowSize kWindow{8};

// Layer 0 has full attention, layer 1 a window, layer 2 is float8 with K only, layer 3 is opaque.
CacheSpec TestSpec() {
  return {
      .tokens_per_block = kBlock,
      .layers = {
          {.num_kv_heads = 2, .head_dim = 4},
          {.window = kWindow, .num_kv_heads = 1, .head_dim = 4, .dtype = DType::kBFloat16},
          {.num_kv_heads = 2, .head_dim = 4, .dtype = DType::kFloat8E4M3, .kind = KvKind::kKeyOnly},
          {.kind = KvKind::kOpaque, .bytes_per_block = 24}}};
}

// A byte of block `block` in the pool: small numbers, which are finite in every type.
std::byte ByteOf(const PoolMapping& pool, uint32_t block, size_t i) {
  const size_t number = pool.window.value() * 13 + pool.pool_index * 31 + block * 7 + i * 3;
  return static_cast<std::byte>(number % 0x37);
}

class Cache {
 public:
  explicit Cache(std::vector<uint32_t> blocks = {8, 32}, CacheSpec spec = TestSpec()) {
    static int count = 0;
    const CacheLayout layout = Require(CacheLayout::Create(std::move(spec)));
    const std::string name =
        "snapshot-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    const std::vector<uint32_t> secondary(blocks.size(), 32);
    const std::vector<uint32_t> slots(blocks.size(), SlotsFor(Tier::kSecondary, 32));
    pools_ = Require(PoolSet::Create(layout, {.tiers = {blocks, slots}}, name));
    for (uint32_t w = 0; w < layout.windows().size(); ++w) {
      for (uint32_t p = 0; p < layout.windows()[w].pools.size(); ++p) {
        for (std::byte& byte : pools_->pool(w, p).bytes()) byte = std::byte{0xee};
      }
    }
    manager_ = std::make_unique<SharedManager>(
        Require(BlockManager::Create({.layout = layout,
                                      .tiers = HostTiers(blocks, secondary),
                                      .pool_mappings = pools_->Mappings(),
                                      .epoch = Epoch(1)})),
        &log_);
    transfers_ = std::make_unique<HostTransfers>(pools_.get(), HostTransfers::Options{},
                                                 [this](Ticket ticket, const absl::Status& status) {
                                                   manager_->CompleteCopy(ticket, status);
                                                 });
    manager_->SetTransfers(transfers_.get());
    client_ = Require(OpenLocalCacheClient(manager_.get(), "snapshots"));
    mapped_ = Require(client_->MapPools(MemoryAccess::kReadWrite));
  }
  ~Cache() {
    client_ = nullptr;
    EXPECT_TRUE(HoldsNothing(*manager_));
    transfers_->Stop();
    manager_->SetTransfers(nullptr);
  }

  CacheClient& client() { return *client_; }
  KvSnapshot::MappedPools pools() const { return mapped_; }

  template <class Result>
  Result Run(const Operation& operation) {
    return Require(RunOne<Result>(*client_, operation));
  }

  // Computes a prompt block by block, so that the window slides.
  void Compute(SequenceId sequence, const std::vector<TokenId>& tokens) {
    const auto size = static_cast<uint32_t>(tokens.size());
    Run<AddedSequence>(
        AddSequence{.sequence = sequence, .tokens = tokens, .reserved_tokens = kBlock});
    for (uint32_t done = 0; done < size;) {
      const uint32_t end = std::min(size, done + kBlock);
      if (done > 0) Run<ReservedTokens>(ReserveTokens{sequence, end - done});
      const auto told = Run<DescribedSequence>(DescribeSequence{sequence});
      for (const auto& pool : mapped_) {
        const PoolMapping& mapping = pool->mapping();
        if (mapping.tier != Tier::kPrimary) continue;
        for (const BlockTable& table : told.tables) {
          if (table.window != mapping.window) continue;
          const BlockHandle block = table.BlockForToken(done, TokensPerBlock(kBlock));
          const absl::Span<std::byte> bytes = pool->slot(block.slot);
          for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteOf(mapping, done / kBlock, i);
        }
      }
      Run<CommittedTokens>(CommitTokens{.sequence = sequence, .computed_tokens = end});
      done = end;
    }
  }

  KvSnapshot Take(SequenceId sequence) {
    return Require(KvSnapshot::Take(*client_, mapped_, sequence));
  }
  uint32_t Matched(const std::vector<TokenId>& tokens) {
    return Run<MatchedPrefix>(MatchPrefix{.tokens = tokens}).matched_tokens;
  }

 private:
  EventLog log_{EventLog::Limits{.max_events = 1 << 14}};
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<HostTransfers> transfers_;
  std::unique_ptr<CacheClient> client_;
  std::vector<std::unique_ptr<MappedPool>> mapped_;
};

std::vector<TokenId> TokensFrom(TokenId first, uint32_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void ExpectSameRows(const KvSnapshot& a, const KvSnapshot& b) {
  ASSERT_EQ(a.num_tokens(), b.num_tokens());
  EXPECT_EQ(a.num_bytes(), b.num_bytes());
  for (const uint32_t layer : {0, 1, 2}) {
    const KvSnapshot::Rows ours = Require(a.Materialize(layer));
    const KvSnapshot::Rows theirs = Require(b.Materialize(layer));
    EXPECT_EQ(ours.form, theirs.form);
    EXPECT_EQ(ours.first_token, theirs.first_token) << layer;
    EXPECT_EQ(ours.num_tokens, theirs.num_tokens) << layer;
    EXPECT_TRUE(ours.keys == theirs.keys && ours.values == theirs.values) << layer;
  }
}

constexpr SequenceId kFirst{1}, kSecond{2};

TEST(KvSnapshotTest, MaterialisesTheRowsOfEachLayer) {
  Cache cache;
  cache.Compute(kFirst, TokensFrom(0, 30));
  const KvSnapshot snapshot = cache.Take(kFirst);
  EXPECT_EQ(snapshot.num_tokens(), 30u);
  EXPECT_TRUE(snapshot.slid());
  const KvSnapshot::Rows full = Require(snapshot.Materialize(0));
  EXPECT_EQ(full.first_token, 0u);
  ASSERT_EQ(full.keys.size(), 30u * 2 * 4 * 4);
  // Token 13 is the second of block 3. Its V of head 1 begins behind K (2 heads), head 0 and a
  // token.
  const KvSnapshot::Rows window = Require(snapshot.Materialize(1));
  for (const auto& pool : cache.pools()) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.tier != Tier::kPrimary || mapping.pool_index != 0) continue;
    if (mapping.window == kFullAttention) {
      for (size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(full.values[(13 * 2 + 1) * 16 + i], ByteOf(mapping, 3, (3 * 4 + 1) * 16 + i));
      }
    } else {
      // The window holds the tokens from 20 on: block 5 is its first one.
      EXPECT_EQ(window.first_token, 20u);
      EXPECT_EQ(window.num_tokens, 10u);
      EXPECT_EQ(window.keys[0], ByteOf(mapping, 5, 0));
      EXPECT_EQ(window.keys[9 * 8], ByteOf(mapping, 7, 8));
    }
  }
  const KvSnapshot::Rows latents = Require(snapshot.Materialize(2));
  EXPECT_EQ(latents.form.dtype, DType::kFloat32);
  EXPECT_EQ(latents.keys.size(), 30u * 2 * 4 * 4);
  EXPECT_TRUE(latents.values.empty());
  // Element 2 of head 1 of the same token, with the scale of its head in its block.
  float scale = 0, key = 0, told = 0;
  for (const auto& pool : cache.pools()) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.tier != Tier::kPrimary) continue;
    if (mapping.layout.dtype == DType::kFloat8E4M3) {
      key = kernels::ToFloat(
          kernels::Float8E4M3{static_cast<uint8_t>(ByteOf(mapping, 3, (4 + 1) * 4 + 2))});
    } else if (mapping.layout.content == PoolContent::kScales) {
      std::byte bytes[4];
      for (size_t i = 0; i < 4; ++i) bytes[i] = ByteOf(mapping, 3, 4 + i);
      std::memcpy(&scale, bytes, sizeof(scale));
    }
  }
  std::memcpy(&told, latents.keys.data() + ((13 * 2 + 1) * 4 + 2) * sizeof(told), sizeof(told));
  EXPECT_NE(told, 0.0f);
  EXPECT_EQ(told, key * scale);
  EXPECT_EQ(ReasonOf(snapshot.Materialize(3).status()), Reason::kInvalidArgument) << "opaque";
  EXPECT_EQ(ReasonOf(snapshot.Materialize(4).status()), Reason::kInvalidArgument);
}

// The first cache is gone by then. The second one has other KV of the same prompt's beginning.
TEST(KvSnapshotTest, ASnapshotOfASlidSequenceIsStoredInAnotherCache) {
  const std::vector<TokenId> tokens = TokensFrom(0, 30);
  auto first = std::make_unique<Cache>();
  first->Compute(kFirst, tokens);
  const KvSnapshot snapshot = first->Take(kFirst);
  first = nullptr;
  Cache cache({5, 32});  // The window's pool has no room for the whole prompt.
  cache.Compute(kSecond, TokensFrom(500, 12));
  cache.Run<FreedSequence>(FreeSequence{kSecond});
  ASSERT_TRUE(snapshot.Restore(cache.client(), cache.pools(), kFirst, {}, tokens).ok());
  const auto told = cache.Run<DescribedSequence>(DescribeSequence{kFirst});
  EXPECT_EQ(told.computed_tokens, 30u);
  ExpectSameRows(cache.Take(kFirst), snapshot);
  EXPECT_EQ(cache.Matched(TokensFrom(0, 31)), 0u) << "the KV before the window is missing";

  // It goes on, and can be taken and stored again.
  cache.Run<AppendedTokens>(AppendTokens{.sequence = kFirst, .tokens = TokensFrom(30, 5)});
  cache.Run<CommittedTokens>(CommitTokens{.sequence = kFirst, .computed_tokens = 35});
  const KvSnapshot later = cache.Take(kFirst);
  EXPECT_EQ(Require(later.Materialize(1)).first_token, 28u);
  cache.Run<FreedSequence>(FreeSequence{kFirst});
  ASSERT_TRUE(later.Restore(cache.client(), cache.pools(), kSecond, {}, TokensFrom(0, 35)).ok());
  ExpectSameRows(cache.Take(kSecond), later);
}

TEST(KvSnapshotTest, WithAllOfItsTokensASnapshotIsSharedAgain) {
  const std::vector<TokenId> tokens = TokensFrom(0, 8);
  auto first = std::make_unique<Cache>();
  first->Compute(kFirst, tokens);
  const KvSnapshot snapshot = first->Take(kFirst);
  EXPECT_FALSE(snapshot.slid());
  first = nullptr;
  Cache cache;
  ASSERT_TRUE(snapshot.Restore(cache.client(), cache.pools(), kFirst, {}, tokens).ok());
  ExpectSameRows(cache.Take(kFirst), snapshot);
  EXPECT_EQ(cache.Matched(TokensFrom(0, 9)), 8u);
  // The second time, the cached blocks are shared and not written.
  for (const auto& pool : cache.pools()) {
    if (pool->mapping().tier == Tier::kPrimary) pool->slot(SlotIndex{7})[0] = std::byte{0x11};
  }
  std::vector<TokenId> longer = TokensFrom(0, 11);
  ASSERT_TRUE(snapshot.Restore(cache.client(), cache.pools(), kSecond, {}, longer).ok());
  ExpectSameRows(cache.Take(kSecond), snapshot);
  const auto ours = cache.Run<DescribedSequence>(DescribeSequence{kFirst});
  const auto theirs = cache.Run<DescribedSequence>(DescribeSequence{kSecond});
  EXPECT_EQ(ours.tables[1].blocks[0], theirs.tables[1].blocks[0]);
}

TEST(KvSnapshotTest, WaitsForCopiesFromBelow) {
  const std::vector<TokenId> tokens = TokensFrom(0, 8);
  Cache cache;
  cache.Compute(kFirst, tokens);
  const KvSnapshot before = cache.Take(kFirst);
  cache.Run<FreedSequence>(FreeSequence{kFirst});
  cache.Run<OffloadedPrefix>(OffloadPrefix{.tokens = tokens});
  const auto added =
      cache.Run<AddedSequence>(AddSequence{.sequence = kFirst, .tokens = TokensFrom(0, 9)});
  ASSERT_EQ(added.matched_secondary_tokens, 8u);
  ExpectSameRows(cache.Take(kFirst), before);
}

TEST(KvSnapshotTest, ARefusedRestoreLeavesNothing) {
  Cache cache;
  cache.Compute(kFirst, TokensFrom(0, 30));
  const KvSnapshot snapshot = cache.Take(kFirst);
  const auto restore = [&](Cache& to, uint32_t tokens) {
    return ReasonOf(snapshot.Restore(to.client(), to.pools(), kSecond, {}, TokensFrom(0, tokens)));
  };
  EXPECT_EQ(restore(cache, 29), Reason::kInvalidArgument) << "fewer tokens";
  CacheSpec wider = TestSpec();
  wider.layers[1].head_dim = 8;
  Cache other({8, 32}, wider);
  EXPECT_EQ(restore(other, 30), Reason::kInvalidArgument);
  Cache full({8, 9});
  full.Compute(kFirst, TokensFrom(90, 8));
  EXPECT_EQ(restore(full, 30), Reason::kBlocksExhausted);
  EXPECT_EQ(full.Matched(TokensFrom(0, 9)), 0u);
  EXPECT_EQ(ReasonOf(KvSnapshot::Take(full.client(), full.pools(), kSecond).status()),
            Reason::kUnknownSequence);
}

TEST(KvSnapshotTest, ASequenceWithoutKvHasAnEmptySnapshot) {
  Cache cache;
  cache.Run<AddedSequence>(AddSequence{.sequence = kFirst, .tokens = TokensFrom(0, 6)});
  const KvSnapshot snapshot = cache.Take(kFirst);
  EXPECT_EQ(snapshot.num_tokens(), 0u);
  EXPECT_EQ(snapshot.num_bytes(), 0u);
  EXPECT_TRUE(Require(snapshot.Materialize(0)).keys.empty());
  EXPECT_TRUE(snapshot.Restore(cache.client(), cache.pools(), kSecond, {}, TokensFrom(50, 3)).ok());
}

}  // namespace
}  // namespace pagoda
