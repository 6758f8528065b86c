// Matches in sliding windows whose trees have holes, compared with an exhaustive search.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "events/block_hash.h"
#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

constexpr uint32_t kBlockTokens = 4;

std::unique_ptr<BlockManager> MakeWindows(const std::vector<WindowSize>& windows,
                                          std::vector<uint32_t> blocks) {
  std::vector<LayerSpec> layers;
  for (const WindowSize window : windows) {
    layers.push_back({.window = window, .num_kv_heads = 1, .head_dim = 1});
  }
  return *BlockManager::Create(
      {.layout = *CacheLayout::Create(
           {.name = "test", .tokens_per_block = kBlockTokens, .layers = layers}),
       .tiers = HostTiers(std::move(blocks))});
}

double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Tokens Join(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class Cache {
 public:
  Cache(const std::vector<WindowSize>& windows, std::vector<uint32_t> blocks)
      : core_(MakeWindows(windows, std::move(blocks))),
        session_(core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id) {}

  // Runs a sequence of these tokens in chunks, and computes all of them.
  void Store(const Tokens& tokens, const SequenceRetention& retention = {}) {
    const SequenceId id{1};
    const absl::StatusOr<OperationResult> added = core_->Execute(
        session_,
        AddSequence{.sequence = id, .tokens = tokens, .reserved_tokens = 1, .retention = retention},
        now_);
    EndCopies();
    ASSERT_TRUE(added.ok()) << added.status();
    auto computed = std::get<AddedSequence>(*added).matched_tokens;
    while (computed < tokens.size()) {
      const uint32_t more = std::min<uint32_t>(kBlockTokens, tokens.size() - computed);
      const Sequence& sequence = **core_->sequences().FindSequence(session_, id);
      if (sequence.reserved_tokens < computed + more) {
        const auto reserved = core_->sequences().ReserveTokens(
            session_, id, computed + more - sequence.reserved_tokens, now_);
        EndCopies();
        if (!reserved.ok()) break;
      }
      computed += more;
      ASSERT_TRUE(core_->sequences().CommitTokens(session_, id, {}, computed, now_).ok());
    }
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, id, now_).ok());
    core_->TakeEvents();
  }
  uint32_t Match(const Tokens& tokens) const {
    return core_->prefixes().Match(PromptOf({}, tokens));
  }
  BlockManager& core() { return *core_; }
  SessionId session() const { return session_; }
  absl::Time now() const { return now_; }

  void EndCopies() {
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }

 private:
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
};

// The cached content of a window.
class Contents {
 public:
  explicit Contents(std::vector<TreeEntry> tree) : tree_(std::move(tree)) {
    for (const TreeEntry& entry : tree_) by_hash_[entry.hash.value()] = &entry;
  }

  // Whether a sequence with the first `length` of these tokens can continue, by the text of rule 7.
  bool IsValid(const Tokens& tokens, uint32_t length, WindowSize window) const {
    const uint32_t whole = length / kBlockTokens, part = length % kBlockTokens;
    uint32_t first = 0;
    if (window != kFullAttention) {
      const uint64_t reach = window.value() - 1;
      first = static_cast<uint32_t>(length > reach ? length - reach : 0) / kBlockTokens;
      if (whole > 0) first = std::min(first, whole - 1);
    }
    BlockHash hash = HashNamespace({});
    BlockId last = kNoBlock;
    for (uint32_t i = 0; i < whole; ++i) {
      const absl::Span<const TokenId> content(&tokens[i * kBlockTokens], kBlockTokens);
      hash = HashBlock(hash, {content, {}});
      const auto found = by_hash_.find(hash.value());
      if (i >= first && found == by_hash_.end()) return false;
      last = found == by_hash_.end() ? kNoBlock : found->second->id;
    }
    if (part == 0) return true;
    const auto begin = tokens.begin() + whole * kBlockTokens;
    return std::any_of(tree_.begin(), tree_.end(), [&](const TreeEntry& entry) {
      return entry.parent == last && (last != kNoBlock || IsFirst(entry)) &&
             entry.tokens.size() >= part && std::equal(begin, begin + part, entry.tokens.begin());
    });
  }

  // Whether this block of the tokens is a hole that has a cached child. A dump leaves holes out.
  bool IsHole(const Tokens& tokens, uint32_t block) const {
    BlockHash hash = HashNamespace({});
    for (uint32_t i = 0; i <= block; ++i) {
      hash = HashBlock(hash, {absl::MakeConstSpan(&tokens[i * kBlockTokens], kBlockTokens), {}});
    }
    return !by_hash_.contains(hash.value()) &&
           std::any_of(tree_.begin(), tree_.end(), [&](const TreeEntry& entry) {
             return entry.hash == HashBlock(hash, {entry.tokens, {}});
           });
  }

 private:
  // A dump names no parent if there is none, or if the parent is a hole.
  static bool IsFirst(const TreeEntry& entry) {
    return entry.hash == HashBlock(HashNamespace({}), {entry.tokens, {}});
  }

  std::vector<TreeEntry> tree_;
  absl::flat_hash_map<uint64_t, const TreeEntry*> by_hash_;
};

// A, B and X are whole blocks; Y begins with three tokens of X.
class HoleTest : public ::testing::Test {
 protected:
  static constexpr WindowSize kWindow{8};
  const Tokens a_{1, 2, 3, 4}, b_{5, 6, 7, 8}, x_{9, 10, 11, 12}, c_{13, 14, 15, 16};
  const Tokens y_{9, 10, 11, 99};
};

TEST_F(HoleTest, AHoleHidesNoBlockBesideIt) {
  Cache cache({kWindow}, {8});
  // A and X are evicted first; C, B and Y stay.
  const auto keep = [](uint32_t begin, uint32_t end) {
    return SequenceRetention{
        .ranges = {
            {.token_start = begin, .token_end = end, .retention = {.priority = Priority{90}}}}};
  };
  cache.Store(
      Join({a_, b_, x_, c_}),
      {.ranges = {{.token_start = 0, .token_end = 4, .retention = {.priority = Priority{0}}},
                  {.token_start = 4, .token_end = 8, .retention = {.priority = Priority{90}}},
                  {.token_start = 8, .token_end = 12, .retention = {.priority = Priority{0}}},
                  {.token_start = 12, .token_end = 16, .retention = {.priority = Priority{90}}}}});
  cache.Store(Join({a_, b_, y_}), keep(8, 12));
  // 5 of 8 blocks are cached, so a sequence that takes 5 blocks evicts two.
  std::vector<BlockHandle> raw(5);
  ASSERT_TRUE(cache.core()
                  .raw_blocks()
                  .AllocateBlocks(cache.session(), kWindow, absl::MakeSpan(raw), cache.now())
                  .ok());
  ASSERT_EQ(cache.core().Stats().windows[0].holes, 2u);
  cache.core().CheckInvariants();

  const Tokens other = Join({a_, b_, {9, 10, 11}, {77}});
  EXPECT_EQ(cache.Match(other), 11u);
  EXPECT_EQ(cache.Match(Join({a_, b_, x_})), 11u) << "X is a hole, and Y has three tokens of it";
  EXPECT_EQ(cache.Match(Join({a_, b_, x_, {77}})), 11u);
  // A sequence continues there: it copies the three tokens out of Y.
  std::vector<BlockRef> refs;
  for (const BlockHandle& handle : raw) refs.push_back(handle.ref());
  ASSERT_TRUE(
      cache.core().raw_blocks().FreeBlocks(cache.session(), kWindow, refs, cache.now()).ok());
  const absl::StatusOr<SequenceAdded> added = cache.core().sequences().AddSequence(
      cache.session(), SequenceId{2}, PromptOf({}, Join({a_, b_, x_, {77}})), cache.now());
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->matched_tokens, 11u);
  const std::vector<Order> copies = cache.core().TakeOrders();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].num_tokens, 3u);
  cache.core().CheckInvariants();
}

// The processor time of a pin of a path with `holes` holes, each beside a block that shares part of
// it: the shortest of a few.
double PinSeconds(uint32_t holes) {
  constexpr uint32_t kEvery = 8;  // Blocks from one hole to the next: as many as the window needs.
  const WindowSize window{kBlockTokens * kEvery};
  const uint32_t path_blocks = holes * kEvery;
  const uint32_t capacity = path_blocks + holes + 1;
  Cache cache({window}, {capacity});
  Tokens path(size_t{path_blocks} * kBlockTokens);
  for (uint32_t i = 0; i < path.size(); ++i) path[i] = i;
  SequenceRetention retention;
  for (uint32_t i = kEvery; i <= path_blocks; i += kEvery) {
    retention.ranges.push_back({.token_start = (i - 1) * kBlockTokens,
                                .token_end = i * kBlockTokens,
                                .retention = {.priority = Priority{0}}});
  }
  BlockManager& core = cache.core();
  const auto run = [&](const Operation& operation) {
    const absl::Status status = core.Execute(cache.session(), operation, cache.now()).status();
    EXPECT_TRUE(status.ok()) << status;
    cache.EndCopies();
  };
  const SequenceId main{1}, side{2};
  run(AddSequence{.sequence = main, .tokens = path});
  for (uint32_t end = kEvery * kBlockTokens; end <= path.size(); end += kEvery * kBlockTokens) {
    run(CommitTokens{.sequence = main, .computed_tokens = end - 1});
    run(ForkSequence{.sequence = main, .new_sequence = side});
    run(TruncateSequence{.sequence = side, .token_count = end - 1});
    run(AppendTokens{.sequence = side, .tokens = {~end}, .computed_tokens = end});
    run(FreeSequence{.sequence = side});
  }
  run(CommitTokens{.sequence = main, .computed_tokens = static_cast<uint32_t>(path.size())});
  run(FreeSequence{.sequence = main});
  run(SetRetention{.tokens = path, .retention = retention});
  // Takes the free blocks, and the blocks at priority 0. The last of these has no children, so it
  // does not become a hole.
  const auto free = static_cast<uint32_t>(core.Stats().windows[0].tiers[0].free);
  run(AllocateBlocks{.window = window, .count = free + holes});
  EXPECT_EQ(core.Stats().windows[0].holes, holes - 1);
  core.CheckInvariants();
  double shortest = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double before = ThreadSeconds();
    const absl::StatusOr<PinnedPrefix> pinned = core.prefixes().Pin(
        cache.session(), PromptOf({}, path), absl::InfiniteDuration(), cache.now());
    shortest = std::min(shortest, ThreadSeconds() - before);
    // Before the first hole everything is cached.
    EXPECT_EQ(pinned->pinned_tokens, (kEvery - 1) * kBlockTokens);
    EXPECT_TRUE(core.prefixes().Unpin(pinned->pin, cache.now()).ok());
  }
  return shortest;
}

// A naive search would take as many steps as there are holes, each with a copy of the whole path.
TEST(SlidingMatchTest, AWholePrefixIsFoundInTheTimeOfItsTokens) {
  const double few = PinSeconds(256), many = PinSeconds(4096);
  EXPECT_LT(many, 64 * few) << "256 holes " << few * 1e6 << " us, 4096 holes " << many * 1e6
                            << " us";
}

// Numbers, and texts that begin as earlier ones.
class TextSource {
 public:
  explicit TextSource(uint64_t seed) : random_(seed) {}

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  Tokens Draw(const std::vector<Tokens>& seen) {
    Tokens tokens;
    if (!seen.empty() && Pick(6) != 0) {
      tokens = seen[Pick(static_cast<uint32_t>(seen.size()))];
      tokens.resize(Pick(static_cast<uint32_t>(tokens.size()) + 1));
    }
    const uint32_t more = 1 + Pick(3 * kBlockTokens);
    for (uint32_t i = 0; i < more; ++i) tokens.push_back(Pick(2));
    tokens.resize(std::min<size_t>(tokens.size(), 7 * kBlockTokens));
    return tokens;
  }
  // A priority for each block.
  SequenceRetention DrawRetention(const Tokens& tokens) {
    SequenceRetention retention;
    for (uint32_t begin = 0; begin < tokens.size(); begin += kBlockTokens) {
      retention.ranges.push_back(
          {.token_start = begin,
           .token_end = begin + kBlockTokens,
           .retention = {.priority = Priority{static_cast<uint8_t>(Pick(3) * 20)}}});
    }
    return retention;
  }

 private:
  std::mt19937_64 random_;
};

// By an exhaustive search. `contents` has the windows of `info`.
uint32_t LongestValid(const Tokens& asked, const std::vector<Contents>& contents,
                      const CacheInfo& info) {
  auto longest = static_cast<uint32_t>(asked.size()) - 1;
  for (; longest > 0; --longest) {
    bool valid = true;
    for (size_t w = 0; w < contents.size(); ++w) {
      valid = valid && contents[w].IsValid(asked, longest, info.windows[w].window);
    }
    if (valid) break;
  }
  return longest;
}

// Whether a match of this length ends in a block beside a hole that has all of its tokens.
bool EndsBesideHole(const Tokens& asked, uint32_t length, const std::vector<Contents>& contents) {
  if (length % kBlockTokens == 0) return false;
  const uint32_t last = length / kBlockTokens;
  return std::any_of(contents.begin(), contents.end(), [&](const Contents& window) {
    return (last + 1) * kBlockTokens <= asked.size() && window.IsHole(asked, last);
  });
}

TEST(SlidingMatchTest, AMatchIsTheLongestThatIsValidInEveryWindow) {
  const std::vector<std::vector<WindowSize>> layouts = {{WindowSize{8}},
                                                        {WindowSize{5}},
                                                        {WindowSize{3}, WindowSize{12}},
                                                        {WindowSize{8}, kFullAttention}};
  uint64_t holes = 0, in_part = 0, beside_holes = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TextSource texts(seed);
    const std::vector<WindowSize>& windows = layouts[seed % layouts.size()];
    Cache cache(windows, std::vector<uint32_t>(windows.size(), 8 + texts.Pick(24)));
    const CacheInfo& info = cache.core().info();
    std::vector<Tokens> seen;
    for (int i = 0; i < 60; ++i) {
      const Tokens tokens = texts.Draw(seen);
      ASSERT_NO_FATAL_FAILURE(cache.Store(tokens, texts.DrawRetention(tokens)));
      seen.push_back(tokens);
      cache.core().CheckInvariants();

      std::vector<Contents> contents;
      for (const CacheInfo::Window& window : info.windows) {
        contents.emplace_back(cache.core().DumpTree(window.window));
        holes += cache.core().Stats().windows[contents.size() - 1].holes;
      }
      for (int query = 0; query < 20; ++query) {
        const Tokens asked = texts.Draw(seen);
        const uint32_t longest = LongestValid(asked, contents, info);
        ASSERT_EQ(cache.Match(asked), longest);
        in_part += longest % kBlockTokens != 0 ? 1 : 0;
        beside_holes += EndsBesideHole(asked, longest, contents) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(holes, 1000u);
  EXPECT_GT(in_part, 1000u);
  EXPECT_GT(beside_holes, 1000u);
}

}  // namespace
}  // namespace pagoda
