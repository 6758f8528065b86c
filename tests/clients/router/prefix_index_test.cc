#include "clients/router/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace pagoda {
namespace {

using Match = PrefixIndex::Match;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Tier kDisk = Tier(2);

std::vector<BlockHash> Prefix(uint64_t first, uint64_t count) {
  std::vector<BlockHash> chunks;
  for (uint64_t i = 0; i < count; ++i) chunks.push_back(BlockHash(first + i));
  return chunks;
}

void AddAll(PrefixIndex& index, uint16_t node, const std::vector<BlockHash>& chunks,
            Tier tier = kPrimaryTier) {
  for (const BlockHash chunk : chunks) index.Add(NodeId(node), chunk, tier);
}

TEST(PrefixIndexTest, FindsTheLongestThenTheNearest) {
  PrefixIndex index;
  AddAll(index, 1, Prefix(100, 2));
  AddAll(index, 2, Prefix(100, 5), Tier(1));
  AddAll(index, 3, Prefix(100, 5), kDisk);
  AddAll(index, 4, Prefix(100, 5));
  AddAll(index, 5, Prefix(200, 9));
  EXPECT_THAT(index.Find(Prefix(100, 8), 9),
              ElementsAre(Match{NodeId(4), 5, kPrimaryTier}, Match{NodeId(2), 5, Tier(1)},
                          Match{NodeId(3), 5, kDisk}, Match{NodeId(1), 2, kPrimaryTier}));
  EXPECT_THAT(index.Find(Prefix(100, 8), 2), testing::SizeIs(2));
  EXPECT_THAT(index.Find(Prefix(100, 1), 1), ElementsAre(Match{NodeId(1), 1, kPrimaryTier}));
  EXPECT_THAT(index.Find(Prefix(300, 1), 9), IsEmpty());
  EXPECT_THAT(index.Find({}, 9), IsEmpty());
  EXPECT_THAT(index.Find(Prefix(100, 8), 0), IsEmpty());
}

TEST(PrefixIndexTest, ARecordMovesBetweenTiersAndLeaves) {
  PrefixIndex index;
  index.Add(NodeId(1), BlockHash(7), kPrimaryTier);
  index.Add(NodeId(1), BlockHash(7), kDisk);
  EXPECT_EQ(index.size(), 1u);
  EXPECT_THAT(index.Find(Prefix(7, 1), 9), ElementsAre(Match{NodeId(1), 1, kDisk}));
  index.Remove(NodeId(2), BlockHash(7));
  index.Remove(NodeId(1), BlockHash(8));
  EXPECT_EQ(index.size(), 1u);
  index.Remove(NodeId(1), BlockHash(7));
  index.Remove(NodeId(1), BlockHash(7));
  EXPECT_EQ(index.size(), 0u);
  EXPECT_THAT(index.Find(Prefix(7, 1), 9), IsEmpty());
}

TEST(PrefixIndexTest, AForgottenNodeIsIgnoredAtOnceAndStartsAnew) {
  PrefixIndex index;
  for (uint16_t node = 0; node < 20; ++node) AddAll(index, node, Prefix(1, 100));
  index.Forget(NodeId(3));
  EXPECT_EQ(index.size(), 1900u);
  EXPECT_EQ(index.size(NodeId(3)), 0u);
  for (const Match& match : index.Find(Prefix(1, 100), 100)) EXPECT_NE(match.node, NodeId(3));
  index.Add(NodeId(3), BlockHash(1), kPrimaryTier);
  EXPECT_EQ(index.Find(Prefix(1, 1), 100).size(), 20u);
  EXPECT_EQ(index.Find(Prefix(2, 1), 100).size(), 19u);
}

TEST(PrefixIndexTest, MemoryOfForgottenNodesComesBack) {
  PrefixIndex index;
  AddAll(index, 1, Prefix(0, 100'000));
  const uint64_t before = index.memory_bytes();
  index.Forget(NodeId(1));
  for (int i = 0; i < 1024; ++i) index.Sweep();
  EXPECT_LT(index.memory_bytes(), before / 2);
}

TEST(PrefixIndexTest, MemoryOfRemovedRecordsComesBack) {
  PrefixIndex index;
  AddAll(index, 1, Prefix(0, 100'000));
  const uint64_t before = index.memory_bytes();
  for (const BlockHash chunk : Prefix(0, 99'000)) index.Remove(NodeId(1), chunk);
  for (int i = 0; i < 1024; ++i) index.Sweep();
  EXPECT_LT(index.memory_bytes(), before / 2);
  EXPECT_EQ(index.Find(Prefix(99'000, 1000), 1).front().chunks, 1000u);
  // Many nodes have this chunk, and all but the first ones are forgotten.
  for (uint16_t node = 0; node < 10'000; ++node)
    index.Add(NodeId(node), BlockHash(1), kPrimaryTier);
  const uint64_t full = index.memory_bytes();
  for (uint16_t node = 20; node < 10'000; ++node) index.Forget(NodeId(node));
  for (int i = 0; i < 1024; ++i) index.Sweep();
  EXPECT_LT(index.memory_bytes(), full - 30'000);
}

TEST(PrefixIndexTest, GenerationsComeAgain) {
  PrefixIndex index;
  for (uint16_t node = 0; node < 20; ++node) index.Add(NodeId(node), BlockHash(9), kPrimaryTier);
  for (int i = 0; i < 65'535; ++i) index.Forget(NodeId(5));
  EXPECT_EQ(index.Find(Prefix(9, 1), 100).size(), 19u) << "the old record is not found again";
  index.Add(NodeId(5), BlockHash(9), kPrimaryTier);
  EXPECT_EQ(index.Find(Prefix(9, 1), 100).size(), 20u);
}

// The same in the plainest way.
class NaiveIndex {
 public:
  void Add(NodeId node, BlockHash chunk, Tier tier) { records_[chunk][node] = tier; }
  void Remove(NodeId node, BlockHash chunk) {
    const auto found = records_.find(chunk);
    if (found == records_.end()) return;
    found->second.erase(node);
    if (found->second.empty()) records_.erase(found);
  }
  void Forget(NodeId node) {
    for (auto it = records_.begin(); it != records_.end();) {
      it->second.erase(node);
      it->second.empty() ? it = records_.erase(it) : ++it;
    }
  }
  void Hide(NodeId node) { hidden_.insert(node); }
  void Show(NodeId node) { hidden_.erase(node); }
  std::optional<Tier> TierOf(NodeId node, BlockHash chunk) const {
    const auto found = records_.find(chunk);
    if (hidden_.contains(node) || found == records_.end()) return std::nullopt;
    const auto record = found->second.find(node);
    if (record == found->second.end()) return std::nullopt;
    return record->second;
  }
  uint64_t size() const {
    uint64_t size = 0;
    for (const auto& [chunk, nodes] : records_) size += nodes.size();
    return size;
  }
  std::vector<Match> Find(const std::vector<BlockHash>& chunks, size_t most) const {
    std::vector<Match> found;
    size_t depth = 0;
    while (depth < chunks.size() && Has(chunks[depth])) ++depth;
    std::set<NodeId> seen = hidden_;
    for (size_t left = depth; left > 0; --left) {
      std::vector<Match> level;
      for (const auto& [node, tier] : records_.at(chunks[left - 1])) {
        if (seen.insert(node).second) level.push_back({node, static_cast<uint32_t>(left), tier});
      }
      std::sort(level.begin(), level.end(), [](const Match& a, const Match& b) {
        return std::tie(a.tier, a.node) < std::tie(b.tier, b.node);
      });
      found.insert(found.end(), level.begin(), level.end());
    }
    if (found.size() > most) found.resize(most);
    return found;
  }

 private:
  bool Has(BlockHash chunk) const {
    const auto found = records_.find(chunk);
    if (found == records_.end()) return false;
    for (const auto& [node, tier] : found->second) {
      if (!hidden_.contains(node)) return true;
    }
    return false;
  }

  std::map<BlockHash, std::map<NodeId, Tier>> records_;
  std::set<NodeId> hidden_;
};

// Few chunks and nodes, so that runs, chunks with many records, growth and forgotten records all
// meet.
TEST(PrefixIndexTest, AgreesWithANaiveIndex) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const uint32_t nodes = 2 + random() % 40, chunks = 4 + random() % 300;
    PrefixIndex index;
    NaiveIndex naive;
    // In every other run all hashes are of one table, whose runs then cross and wrap around.
    std::vector<BlockHash> hashes;
    std::mt19937_64 random_hash(seed);
    while (hashes.size() < chunks + 6) {
      const uint64_t hash = random_hash();
      const bool is_of_first_table = hash * 0x9E3779B97F4A7C15u >> 54 == 0;
      if (seed % 2 == 0 || is_of_first_table) hashes.push_back(BlockHash(hash));
    }
    const auto chunk_of = [&](uint32_t i) { return hashes[i]; };
    for (int step = 0; step < 6000; ++step) {
      const NodeId node(static_cast<uint16_t>(random() % nodes));
      const BlockHash chunk = chunk_of(random() % chunks);
      const Tier tier(random() % 3);
      const uint32_t roll = random() % 1000;
      if (roll < 600) {
        index.Add(node, chunk, tier);
        naive.Add(node, chunk, tier);
      } else if (roll < 970) {
        index.Remove(node, chunk);
        naive.Remove(node, chunk);
      } else if (roll < 975) {
        index.Forget(node);
        naive.Forget(node);
      } else if (roll < 977) {
        index.Sweep();
      } else if (roll < 979) {
        index.Hide(node);
        naive.Hide(node);
      } else if (roll < 982) {
        index.Show(node);
        naive.Show(node);
      } else {
        std::vector<BlockHash> prefix;
        for (uint32_t i = random() % chunks, end = i + random() % 6; i < end; ++i) {
          prefix.push_back(chunk_of(i));
        }
        const size_t most = random() % 60;
        ASSERT_EQ(index.Find(prefix, most), naive.Find(prefix, most)) << seed << " " << step;
        ASSERT_EQ(index.TierOf(node, chunk), naive.TierOf(node, chunk)) << seed << " " << step;
        ASSERT_EQ(index.size(), naive.size());
      }
    }
    for (uint32_t i = 0; i < chunks; ++i) {
      ASSERT_EQ(index.Find({chunk_of(i)}, 100), naive.Find({chunk_of(i)}, 100)) << seed;
    }
    for (int i = 0; i < 1024; ++i) index.Sweep();
    for (uint32_t i = 0; i < chunks; ++i) {
      ASSERT_EQ(index.Find({chunk_of(i)}, 100), naive.Find({chunk_of(i)}, 100)) << seed;
    }
  }
}

}  // namespace
}  // namespace pagoda
