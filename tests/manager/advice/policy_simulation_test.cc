// The small caches of a simulation, beside caches that are kept by hand.
#include "manager/advice/policy_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace pagoda {
namespace {

using Content = PolicySimulation::Content;
constexpr Content kNone = PolicySimulation::kNoContent;
constexpr size_t kCaches = PolicySimulation::kCaches;

BlockHash HashOf(Content content) {
  return BlockHash{uint64_t{content} * 0x9E37'79B9'7F4A'7C15u + 1};
}

// One cache that evicts by LRU, but never content that has children.
class NaiveCache {
 public:
  explicit NaiveCache(size_t capacity) : capacity_(capacity) {}

  bool Has(Content content) const { return parents_.contains(content); }
  void Hold(Content content, Content parent) {
    if (Has(content)) {
      std::erase(candidates_, content);
      held_[content] = true;
      return;
    }
    if (parents_.size() == capacity_) {
      if (candidates_.empty()) return;
      Leave(candidates_.front());
    }
    const bool has_parent = parent != kNone && parent != content && Has(parent);
    parents_[content] = has_parent ? std::optional(parent) : std::nullopt;
    held_[content] = true;
    if (has_parent) std::erase(candidates_, parent);
  }
  void Release(Content content) {
    if (!Has(content) || !held_[content]) return;
    held_[content] = false;
    if (Children(content) == 0) candidates_.push_back(content);
  }
  void Leave(Content content) {
    if (!Has(content)) return;
    std::erase(candidates_, content);
    const std::optional<Content> parent = parents_[content];
    parents_.erase(content);
    held_.erase(content);
    for (auto& [child, above] : parents_) {
      if (above == content) above = std::nullopt;
    }
    if (parent.has_value() && Children(*parent) == 0 && !held_[*parent]) {
      candidates_.push_front(*parent);
    }
  }

 private:
  int64_t Children(Content content) const {
    return std::count_if(parents_.begin(), parents_.end(),
                         [&](const auto& entry) { return entry.second == content; });
  }

  const size_t capacity_;
  std::map<Content, std::optional<Content>> parents_;  // The parents of the cached contents.
  std::map<Content, bool> held_;
  std::deque<Content> candidates_;  // The next victim first.
};

// "lru" needs no simulation, but its order is easy to keep by hand.
TEST(PolicySimulationTest, EvictsWhatCachesKeptByHandEvict) {
  constexpr Content kContents = 120;
  for (const uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 random(seed);
    PolicySimulation simulation("lru", 10, kContents);
    std::vector<NaiveCache> naive;
    for (const double factor : PolicySimulation::kFactors) naive.emplace_back(10 * factor);
    std::array<int, kCaches> hits = {};
    for (int step = 0; step < 30'000; ++step) {
      // Few contents are popular.
      const auto content = static_cast<Content>(random() % (random() % kContents + 1));
      const auto parent = random() % 4 == 0 ? kNone : static_cast<Content>(random() % kContents);
      switch (random() % 16) {
        case 0:
          simulation.Remove(content);
          for (NaiveCache& cache : naive) cache.Leave(content);
          break;
        case 1:
        case 2:
          simulation.Hold(content, parent, HashOf(content), {});
          for (NaiveCache& cache : naive) cache.Hold(content, parent);
          break;
        case 3:
          if (random() % 200 != 0) break;
          simulation.Clear();
          for (NaiveCache& cache : naive) {
            for (Content each = 0; each < kContents; ++each) cache.Leave(each);
          }
          break;
        default: {
          const PolicySimulation::Caches had = simulation.Use(content, parent, HashOf(content), {});
          for (size_t i = 0; i < kCaches; ++i) {
            ASSERT_EQ((had >> i & 1) != 0, naive[i].Has(content)) << step << " in cache " << i;
            hits[i] += had >> i & 1;
            naive[i].Hold(content, parent);
          }
        }
      }
      // Most are released at once, and some stay held until the caches are full of them.
      if (random() % 8 == 0) continue;
      const Content released =
          random() % 2 == 0 ? content : static_cast<Content>(random() % kContents);
      simulation.Release(released);
      for (NaiveCache& cache : naive) cache.Release(released);
    }
    for (size_t i = 0; i < kCaches; ++i) EXPECT_GT(hits[i], 1000) << i;
    EXPECT_GT(hits[3], hits[0] + 1000);
  }
}

// A cache of 20, 40, 80 and 160 contents; each is used twice, n others in between.
TEST(PolicySimulationTest, EachCacheHasItsSize) {
  for (const auto& [others, expected] :
       std::map<int, int>{{10, 0b1111}, {30, 0b1110}, {70, 0b1100}, {150, 0b1000}, {170, 0}}) {
    PolicySimulation simulation("lru", 40, 1000);
    const auto use = [&](int content) {
      const auto number = static_cast<Content>(content);
      const auto had = simulation.Use(number, kNone, HashOf(number), {});
      simulation.Release(number);
      return had;
    };
    use(999);
    for (int i = 0; i < others; ++i) use(i);
    EXPECT_EQ(use(999), expected) << others;
  }
}

// Content that comes back stays with "learned", although others came once since.
TEST(PolicySimulationTest, ThePolicyDecides) {
  const auto hits = [](std::string_view policy) {
    PolicySimulation simulation(policy, 40, 4000);
    int sum = 0;
    for (int round = 0; round < 60; ++round) {
      for (int i = 0; i < 80; ++i) {
        // Ten contents come back in each round, twice in a row in the beginning.
        const auto number = static_cast<Content>(i < 10 ? i : 10 + (round * 80 + i) % 3900);
        const auto had = simulation.Use(number, kNone, HashOf(number), {});
        if (i < 10 && round < 5) simulation.Use(number, kNone, HashOf(number), {});
        simulation.Release(number);
        sum += had >> ReuseCounts::kToday & 1;
      }
    }
    return sum;
  };
  EXPECT_EQ(hits("lru"), 0);
  EXPECT_GT(hits("learned"), 200);
}

TEST(PolicySimulationTest, OnlyLruNeedsNone) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    EXPECT_EQ(PolicySimulation::IsNeededFor(policy), policy != "lru") << policy;
  }
  EXPECT_FALSE(PolicySimulation::IsNeededFor(""));
}

}  // namespace
}  // namespace pagoda
