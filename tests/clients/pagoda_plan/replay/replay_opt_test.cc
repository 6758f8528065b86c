#include "clients/pagoda_plan/replay/replay_opt.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "manager/policy/eviction_policy.h"

namespace pagoda {
namespace {

uint64_t Hits(const std::vector<TraceRequest>& requests, const std::vector<uint32_t>& tiers) {
  const auto report =
      ReplayOptimal(requests, {.tier_blocks = tiers, .policy = "", .on_request = {}});
  EXPECT_TRUE(report.ok()) << report.status();
  return report->blocks_hit;
}

// The most hits over all choices of victims: every leaf that the request does not use is tried.
class AllChoices {
 public:
  AllChoices(const std::vector<TraceRequest>& requests, size_t capacity)
      : requests_(requests), capacity_(capacity) {}

  uint64_t Most() { return From(0, {}); }

 private:
  using Prefix = std::vector<uint64_t>;

  uint64_t From(size_t index, const std::set<Prefix>& cached) {
    if (index == requests_.size()) return 0;
    const auto known = known_.find({index, cached});
    if (known != known_.end()) return known->second;
    const Prefix& ids = requests_[index].hash_ids;
    uint64_t most = 0;
    if (ids.size() >= capacity_) {
      most = From(index + 1, cached);
    } else {
      uint64_t hit = 0;
      while (hit < ids.size() && cached.contains(First(ids, hit + 1))) ++hit;
      most = hit + AfterEvictions(index, cached, hit);
    }
    return known_[{index, cached}] = most;
  }

  uint64_t AfterEvictions(size_t index, const std::set<Prefix>& cached, uint64_t hit) {
    const Prefix& ids = requests_[index].hash_ids;
    if (cached.size() + ids.size() - hit <= capacity_) {
      std::set<Prefix> after = cached;
      for (size_t k = 1; k <= ids.size(); ++k) after.insert(First(ids, k));
      return From(index + 1, after);
    }
    uint64_t most = 0;
    for (const Prefix& victim : cached) {
      if (IsPrefixOf(victim, ids) || HasChild(cached, victim)) continue;
      std::set<Prefix> fewer = cached;
      fewer.erase(victim);
      most = std::max(most, AfterEvictions(index, fewer, hit));
    }
    return most;
  }

  static Prefix First(const Prefix& ids, size_t count) {
    return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)};
  }
  static bool IsPrefixOf(const Prefix& prefix, const Prefix& ids) {
    return prefix.size() <= ids.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  }
  static bool HasChild(const std::set<Prefix>& cached, const Prefix& parent) {
    return std::any_of(cached.begin(), cached.end(), [&](const Prefix& other) {
      return other.size() == parent.size() + 1 && IsPrefixOf(parent, other);
    });
  }

  const std::vector<TraceRequest>& requests_;
  const size_t capacity_;
  std::map<std::pair<size_t, std::set<Prefix>>, uint64_t> known_;
};

// Walks down a random tree, whose ids repeat after different prefixes.
std::vector<TraceRequest> RandomWalks(uint64_t seed, size_t count, uint64_t depth) {
  std::mt19937_64 random(seed);
  std::vector<TraceRequest> requests(count);
  for (TraceRequest& request : requests) {
    const size_t length = 1 + random() % depth;
    for (size_t i = 0; i < length; ++i) request.hash_ids.push_back(random() % 3);
  }
  return requests;
}

TEST(ReplayOptTest, NoChoiceOfVictimsHitsMore) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const std::vector<TraceRequest> requests = RandomWalks(seed, 9, 3);
    const uint32_t capacity = 4 + seed % 3;
    EXPECT_EQ(Hits(requests, {capacity}), AllChoices(requests, capacity).Most()) << seed;
  }
}

TEST(ReplayOptTest, NoPolicyHitsMore) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<TraceRequest> requests = RandomWalks(seed, 300, 8);
    for (const std::string_view policy : EvictionPolicyNames()) {
      for (const std::vector<uint32_t>& tiers :
           {std::vector<uint32_t>{10}, {40}, {100}, {20, 30}, {10, 10, 10}}) {
        const auto report = ReplayTrace(
            requests, {.tier_blocks = tiers, .policy = std::string(policy), .on_request = {}});
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_GE(Hits(requests, tiers), report->blocks_hit) << policy << ", seed " << seed;
      }
    }
  }
}

TEST(ReplayOptTest, AnUnlimitedCacheMissesOnlyWhatIsNew) {
  const std::vector<TraceRequest> requests = RandomWalks(1, 300, 8);
  const auto unlimited = ReplayTrace(requests, {});
  ASSERT_TRUE(unlimited.ok()) << unlimited.status();
  EXPECT_EQ(Hits(requests, {}), unlimited->blocks_hit);
  EXPECT_EQ(Hits(requests, {100'000}), unlimited->blocks_hit);
}

TEST(ReplayOptTest, ARequestAsLargeAsTheFirstTierIsSkipped) {
  const std::vector<TraceRequest> requests = {{0, {1, 2}}, {5, {1, 2, 3}}, {9, {1, 2}}};
  const auto report =
      ReplayOptimal(requests, {.tier_blocks = {3, 9}, .policy = "", .on_request = {}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->requests, 3u);
  EXPECT_EQ(report->skipped_requests, 1u);
  EXPECT_EQ(report->blocks_requested, 7u);
  EXPECT_EQ(report->blocks_hit, 2u);
  EXPECT_FALSE(ReplayOptimal(requests, {.tier_blocks = {0}, .policy = "", .on_request = {}}).ok());
}

}  // namespace
}  // namespace pagoda
