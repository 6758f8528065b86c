#include "server/peers/digest_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "events/event_log.h"
#include "manager/cache_lists.h"
#include "manager/exchange/stored_prefix.h"
#include "manager/shared_manager.h"
#include "pools/store/stored_value.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

constexpr uint32_t kBlockTokens = 4;

struct Prompt {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  friend bool operator==(const Prompt&, const Prompt&) = default;
};

// A core with an engine whose prompts are remembered, so that an index can be compared with it.
class IndexedCache {
 public:
  struct Options {
    uint32_t blocks = 24;
    uint32_t lower_blocks = 16;
    std::vector<WindowSize> windows = {kFullAttention};
    EventLog::Limits log = {};
  };
  explicit IndexedCache(const Options& options) : log_(options.log) {
    CacheSpec spec = {.name = "test", .tokens_per_block = kBlockTokens, .layers = {}};
    for (const WindowSize window : options.windows) {
      spec.layers.push_back({.window = window, .num_kv_heads = 1, .head_dim = 1});
    }
    const size_t windows = options.windows.size();
    manager_ = std::make_unique<SharedManager>(
        *BlockManager::Create(
            {.layout = *CacheLayout::Create(std::move(spec)),
             .tiers = HostTiers(std::vector<uint32_t>(windows, options.blocks),
                                std::vector<uint32_t>(windows, options.lower_blocks)),
             .epoch = Epoch{1}}),
        &log_);
    client_ = *OpenLocalCacheClient(manager_.get(), "engine");
  }

  SharedManager& manager() { return *manager_; }

  void Serve(const Prompt& prompt) {
    const SequenceId id{++sequences_};
    ASSERT_TRUE(RunOne<AddedSequence>(*client_, AddSequence{.sequence = id,
                                                            .name_space = prompt.name_space,
                                                            .tokens = prompt.tokens})
                    .ok());
    ASSERT_TRUE(
        RunOne<CommittedTokens>(
            *client_, CommitTokens{.sequence = id,
                                   .computed_tokens = static_cast<uint32_t>(prompt.tokens.size())})
            .ok());
    ASSERT_TRUE(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = id}).ok());
    if (std::find(prompts_.begin(), prompts_.end(), prompt) == prompts_.end()) {
      prompts_.push_back(prompt);
    }
  }
  const std::vector<Prompt>& prompts() const { return prompts_; }

 private:
  EventLog log_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<CacheClient> client_;
  uint64_t sequences_ = 0;
  std::vector<Prompt> prompts_;
};

std::vector<ContentDigest> Digests(const Prompt& prompt) {
  return DigestsOf({.name_space = prompt.name_space, .tokens = prompt.tokens},
                   TokensPerBlock(kBlockTokens), 1000);
}

std::vector<BlockHash> Hashes(const Prompt& prompt) {
  std::vector<BlockHash> hashes;
  BlockHash parent = HashNamespace(prompt.name_space);
  for (size_t at = 0; at + kBlockTokens <= prompt.tokens.size(); at += kBlockTokens) {
    const auto tokens = absl::MakeConstSpan(prompt.tokens).subspan(at, kBlockTokens);
    hashes.push_back(parent = HashBlock(parent, {.tokens = tokens, .extras = {}}));
  }
  return hashes;
}

// Compares the index with the cache for each block of each prompt that was ever served. Returns how
// many it found.
size_t ExpectRight(IndexedCache& cache, DigestIndex& index, const std::string& secret = "") {
  size_t found = 0;
  for (const Prompt& prompt : cache.prompts()) {
    const InspectedPrefix inspected = *cache.manager().Read([&](const BlockManager& core) {
      return core.lists().InspectPrefix({.name_space = prompt.name_space, .tokens = prompt.tokens});
    });
    const std::vector<ContentDigest> digests = Digests(prompt);
    for (size_t i = 0; i < digests.size(); ++i) {
      std::optional<BlockHandle> cached;
      for (const InspectedBlock& block : inspected.blocks) {
        const bool is_whole = block.token_count == kBlockTokens;
        if (is_whole && block.token_start == i * kBlockTokens) cached = block.block;
      }
      const auto entry = index.Find(0, NameDigest(secret, digests[i].bytes));
      EXPECT_EQ(entry.has_value(), cached.has_value()) << "block " << i;
      if (!entry.has_value() || !cached.has_value()) continue;
      ++found;
      EXPECT_EQ(entry->block, cached->id);
      EXPECT_EQ(entry->digest, digests[i]);
      EXPECT_TRUE(index.HadUntil(0, *entry, cache.manager().Read(&BlockManager::revision)));
    }
  }
  return found;
}

Prompt RandomPrompt(std::mt19937& random) {
  Prompt prompt;
  if (random() % 4 == 0) prompt.name_space.cache_salt = "s";
  if (random() % 8 == 0) prompt.name_space.lora_id = 3;
  // Prompts share beginnings.
  const size_t size = random() % 40 + 1;
  for (size_t i = 0; i < size; ++i) prompt.tokens.push_back(i < 12 ? random() % 2 : random() % 3);
  return prompt;
}

TEST(DigestIndexTest, FindsABlockAsSoonAsItIsStored) {
  IndexedCache cache({});
  DigestIndex index({.manager = &cache.manager()});
  const Prompt prompt = {.name_space = {}, .tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const std::vector<ContentDigest> digests = Digests(prompt);
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_EQ(index.Find(0, digests[0].bytes), std::nullopt);
  for (int round = 0; round < 100; ++round) {
    cache.Serve(prompt);
    ASSERT_TRUE(index.Find(0, digests[0].bytes).has_value());
    ASSERT_TRUE(index.Find(0, digests[1].bytes).has_value());
    EXPECT_EQ(index.stats().blocks, 3u) << "with the tail";
    cache.manager().ResetPrefixCache();
    EXPECT_EQ(index.Find(0, digests[0].bytes), std::nullopt);
    EXPECT_EQ(index.stats().blocks, 0u);
  }
  EXPECT_EQ(index.stats().resets, 0u);
  EXPECT_EQ(index.stats().left_out, 0u);
}

TEST(DigestIndexTest, EqualsTheCacheAfterRandomOperations) {
  for (const std::string secret : {"", "a secret"}) {
    std::mt19937 random(7);
    IndexedCache cache({});
    DigestIndex index({.manager = &cache.manager(), .secret = secret});
    size_t found = 0;
    for (int round = 0; round < 150; ++round) {
      cache.Serve(RandomPrompt(random));
      if (random() % 40 == 0) cache.manager().ResetPrefixCache();
      found += ExpectRight(cache, index, secret);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(found, 5'000u);
    EXPECT_EQ(index.stats().resets, 0u);
    EXPECT_EQ(index.stats().left_out, 0u);
  }
}

TEST(DigestIndexTest, ANameWithASecretIsNotTheDigest) {
  IndexedCache cache({});
  DigestIndex index({.manager = &cache.manager(), .secret = "a secret"});
  const Prompt prompt = {.name_space = {}, .tokens = {1, 2, 3, 4, 5}};
  cache.Serve(prompt);
  const ContentDigest digest = Digests(prompt).front();
  EXPECT_EQ(index.Find(0, digest.bytes), std::nullopt);
  EXPECT_EQ(index.Find(0, NameDigest("another", digest.bytes)), std::nullopt);
  EXPECT_TRUE(index.Find(0, NameDigest("a secret", digest.bytes)).has_value());
}

// The log has dropped the beginning, so the index begins with a snapshot. In it most blocks come
// before their parents: the ids that were freed last are given out first.
TEST(DigestIndexTest, ASnapshotGivesTheSame) {
  std::mt19937 random(11);
  IndexedCache cache({.blocks = 4000, .lower_blocks = 100, .log = {.max_events = 50}});
  for (int round = 0; round < 400; ++round) cache.Serve(RandomPrompt(random));
  for (int i = 0; i < 3; ++i) {
    Prompt prompt = {.name_space = {}, .tokens = {}};
    for (int t = 0; t < 4000; ++t) prompt.tokens.push_back(random() % 1000);
    cache.Serve(prompt);
  }
  DigestIndex index({.manager = &cache.manager()});
  ASSERT_TRUE(WaitUntil([&] { return index.stats().blocks >= 3000; }));
  EXPECT_GT(ExpectRight(cache, index), 3000u);
  EXPECT_EQ(index.stats().resets, 1u);
  EXPECT_EQ(index.stats().left_out, 0u);
}

// Blocks come and go while the index reads a snapshot, so it has to apply the events between the
// pieces. The log is long enough for that.
TEST(DigestIndexTest, ASnapshotOfACacheThatChangesGivesTheSame) {
  std::mt19937 random(12);
  for (int round = 0; round < 5; ++round) {
    IndexedCache cache({.blocks = 3000, .lower_blocks = 500, .log = {.max_events = 10'000}});
    const auto serve = [&] {
      Prompt prompt = RandomPrompt(random);
      // The beginnings are shared, and the ends are new: blocks are evicted everywhere.
      for (int i = 0; i < 12; ++i) prompt.tokens.push_back(random() % 1000);
      cache.Serve(prompt);
    };
    while (cache.manager().Read(&BlockManager::revision).value() < 12'000) serve();
    DigestIndex index({.manager = &cache.manager()});
    for (int i = 0; i < 400; ++i) serve();
    // A call reads a bounded part of the snapshot. These read all of it.
    for (int i = 0; i < 100; ++i) index.Find(0, DigestIndex::Name());
    EXPECT_GT(ExpectRight(cache, index), 1000u);
    EXPECT_EQ(index.stats().resets, 1u);
    EXPECT_EQ(index.stats().left_out, 0u);
    if (testing::Test::HasFailure()) return;
  }
}

// While the index reads snapshots and the log, an engine changes the cache. A short log passes the
// index again and again.
TEST(DigestIndexTest, CatchesUpWithACacheThatChangesAllTheTime) {
  for (const size_t max_events : {60, 400, 100'000}) {
    std::mt19937 random(13);
    IndexedCache cache({.blocks = 3000, .lower_blocks = 200, .log = {.max_events = max_events}});
    for (int round = 0; round < 200; ++round) cache.Serve(RandomPrompt(random));
    DigestIndex index({.manager = &cache.manager()});
    const absl::Time end = absl::Now() + absl::Seconds(1);
    for (int round = 0; absl::Now() < end; ++round) {
      cache.Serve(RandomPrompt(random));
      if (round % 100 == 99) cache.manager().ResetPrefixCache();
    }
    // Now it has time.
    ASSERT_TRUE(WaitUntil([&] {
      return index.stats().read_revision >= cache.manager().Read(&BlockManager::revision).value();
    }));
    // After a reset nothing is left of the time in which it could have missed blocks.
    cache.manager().ResetPrefixCache();
    for (int round = 0; round < 5; ++round) {
      cache.Serve(RandomPrompt(random));
      ExpectRight(cache, index);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DigestIndexTest, NeverNamesAWrongBlockOfASlidingWindow) {
  std::mt19937 random(17);
  for (const size_t max_events : {100'000, 20}) {
    IndexedCache cache({.blocks = 16,
                        .lower_blocks = 8,
                        .windows = {WindowSize{8}, kFullAttention},
                        .log = {.max_events = max_events}});
    DigestIndex index({.manager = &cache.manager()});
    size_t found = 0;
    for (int round = 0; round < 300; ++round) {
      cache.Serve(RandomPrompt(random));
      for (const Prompt& prompt : cache.prompts()) {
        const std::vector<ContentDigest> digests = Digests(prompt);
        const std::vector<BlockHash> hashes = Hashes(prompt);
        for (size_t i = 0; i < digests.size(); ++i) {
          for (uint32_t window : {0, 1}) {
            const auto entry = index.Find(window, digests[i].bytes);
            if (!entry.has_value()) continue;
            ++found;
            const LocatedBlocks located = cache.manager().Read([&](const BlockManager& core) {
              return core.lists().LocateBlocks(window, {&entry->block, 1});
            });
            ASSERT_TRUE(located.blocks[0].has_value());
            EXPECT_EQ(located.blocks[0]->hash, hashes[i]);
          }
        }
      }
    }
    EXPECT_GT(found, 1000u);
  }
}

// The content between two reads of a block: it can have left and come back.
TEST(DigestIndexTest, ABlockThatLeftMeanwhileIsNoLongerTheSame) {
  IndexedCache cache({});
  DigestIndex index({.manager = &cache.manager()});
  const Prompt prompt = {.name_space = {}, .tokens = {1, 2, 3, 4, 5}};
  cache.Serve(prompt);
  const auto entry = index.Find(0, Digests(prompt).front().bytes);
  ASSERT_TRUE(entry.has_value());
  EXPECT_TRUE(index.HadUntil(0, *entry, cache.manager().Read(&BlockManager::revision)));
  EXPECT_FALSE(index.HadUntil(0, *entry,
                              Revision(cache.manager().Read(&BlockManager::revision).value() + 1)))
      << "that revision has not come";
  cache.manager().ResetPrefixCache();
  cache.Serve(prompt);
  EXPECT_FALSE(index.HadUntil(0, *entry, cache.manager().Read(&BlockManager::revision)));
  const auto again = index.Find(0, Digests(prompt).front().bytes);
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(*again, *entry);
}

}  // namespace
}  // namespace pagoda::server
