#include "clients/pagoda_plan/replay/replay.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "manager/policy/eviction_policy.h"

namespace pagoda {
namespace {

struct NaiveFigures {
  uint64_t requested = 0;
  uint64_t hit = 0;
  uint64_t evictions = 0;
  uint64_t onboards = 0;
  uint64_t skipped = 0;
};

// The figures of an LRU cache of ids, in the simplest way: a map that is searched for its oldest
// entry. A request's tail is older than its head. A running request holds its blocks, so they stay.
// Only an id without cached children can leave. If its parent has no other child, the parent is the
// next to leave.
class NaiveLru {
 public:
  explicit NaiveLru(size_t capacity) : capacity_(capacity) {}

  NaiveFigures Run(const std::vector<TraceRequest>& requests) {
    for (const TraceRequest& request : requests) Run(request.hash_ids);
    return figures_;
  }

 private:
  struct Node {
    int64_t last_use = 0;
    uint64_t parent = 0;
    int children = 0;
    bool held = false;
  };

  void Run(const std::vector<uint64_t>& ids) {
    figures_.requested += ids.size();
    if (ids.size() >= capacity_) {
      ++figures_.skipped;
      return;
    }
    size_t hit = 0;
    while (hit < ids.size() && nodes_.contains(ids[hit])) nodes_[ids[hit++]].held = true;
    figures_.hit += hit;
    while (nodes_.size() + ids.size() - hit > capacity_) Evict();
    for (size_t i = hit; i < ids.size(); ++i) {
      nodes_[ids[i]].parent = i == 0 ? kNoParent : ids[i - 1];
      if (i > 0) ++nodes_[ids[i - 1]].children;
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      nodes_[*id].last_use = ++back_;
      nodes_[*id].held = false;
    }
  }

  void Evict() {
    auto victim = nodes_.end();
    for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
      if (it->second.held || it->second.children > 0) continue;
      if (victim == nodes_.end() || it->second.last_use < victim->second.last_use) victim = it;
    }
    const uint64_t parent = victim->second.parent;
    nodes_.erase(victim);
    ++figures_.evictions;
    if (parent != kNoParent && --nodes_[parent].children == 0) nodes_[parent].last_use = --front_;
  }

  static constexpr uint64_t kNoParent = ~uint64_t{0};

  const size_t capacity_;
  std::map<uint64_t, Node> nodes_;
  int64_t back_ = 0;
  int64_t front_ = 0;
  NaiveFigures figures_;
};

void ExpectAsNaive(const std::vector<TraceRequest>& requests, uint32_t capacity) {
  SCOPED_TRACE(capacity);
  const auto report =
      ReplayTrace(requests, {.tier_blocks = {capacity}, .policy = "lru", .on_request = {}});
  ASSERT_TRUE(report.ok()) << report.status();
  const NaiveFigures naive = NaiveLru(capacity).Run(requests);
  EXPECT_EQ(report->requests, requests.size());
  EXPECT_EQ(report->skipped_requests, naive.skipped);
  EXPECT_EQ(report->blocks_requested, naive.requested);
  EXPECT_EQ(report->blocks_hit, naive.hit);
  EXPECT_EQ(report->evictions, naive.evictions);
}

std::vector<TraceRequest> ChatTrace() {
  const auto trace = ReadTrace(CHAT_TRACE);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace->requests;
}

TEST(ReplayTest, EqualsANaiveLruOnTheChatTrace) {
  const std::vector<TraceRequest> requests = ChatTrace();
  ASSERT_GT(requests.size(), 200u);
  for (uint32_t capacity : {1, 10, 30, 70, 100, 200, 300, 500, 900}) {
    ExpectAsNaive(requests, capacity);
  }
}

TEST(ReplayTest, UnlimitedCapacityMissesOnlyWhatIsNew) {
  const std::vector<TraceRequest> requests = ChatTrace();
  const auto report = ReplayTrace(requests, {});
  ASSERT_TRUE(report.ok()) << report.status();
  const NaiveFigures naive = NaiveLru(1'000'000).Run(requests);
  EXPECT_EQ(report->blocks_hit, naive.hit);
  EXPECT_EQ(report->evictions, 0u);
  EXPECT_EQ(report->skipped_requests, 0u);
  EXPECT_DOUBLE_EQ(report->hit_rate(), static_cast<double>(naive.hit) / naive.requested);
}

// Random walks down a random tree: many prefixes of all lengths, and short ones after long ones
// too.
std::vector<TraceRequest> RandomTrace(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> child_ids;  // By parent and branch.
  std::vector<TraceRequest> requests(200);
  for (TraceRequest& request : requests) {
    uint64_t parent = 0;
    const size_t length = 1 + random() % 8;
    for (size_t i = 0; i < length; ++i) {
      const std::pair edge{parent, random() % 3};
      parent = child_ids.try_emplace(edge, child_ids.size() + 1).first->second;
      request.hash_ids.push_back(parent);
    }
  }
  return requests;
}

TEST(ReplayTest, EqualsANaiveLruOnRandomTrees) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    ExpectAsNaive(RandomTrace(seed), 9 + seed);
  }
}

// Two tiers of ids, as simply. The primary tier evicts a node without children in that tier. The
// host tier evicts a node without any children. A node that leaves the first tier goes to the
// second. Each tier has its own order: an arriving node is the newest, and a parent whose last
// child left is the next to leave.
class NaiveTwoTiers {
 public:
  NaiveTwoTiers(size_t primary, size_t host) : capacity_{primary, host} {}

  NaiveFigures Run(const std::vector<TraceRequest>& requests) {
    for (const TraceRequest& request : requests) Run(request.hash_ids);
    return figures_;
  }

 private:
  enum Tier { kPrimary, kHost };
  struct Node {
    uint64_t parent = kNoParent;
    Tier tier = kPrimary;
    bool held = false;
    int64_t order = 0;  // Orders the nodes of its tier.
  };

  void Run(const std::vector<uint64_t>& ids) {
    figures_.requested += ids.size();
    size_t hit = 0;
    while (hit < ids.size() && nodes_.contains(ids[hit])) nodes_[ids[hit++]].held = true;
    figures_.hit += hit;
    for (size_t i = 0; i < hit; ++i) {
      if (nodes_[ids[i]].tier == kHost) Onboard(ids[i]);
    }
    for (size_t i = hit; i < ids.size(); ++i) {
      if (Count(kPrimary) == capacity_[kPrimary]) MoveDown(Victim(kPrimary));
      nodes_[ids[i]] = {.parent = i == 0 ? kNoParent : ids[i - 1], .held = true};
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      nodes_[*id].order = ++newest_;
      nodes_[*id].held = false;
    }
  }

  // Its place below becomes free before a place for another node is needed.
  void Onboard(uint64_t id) {
    ++figures_.onboards;
    nodes_[id].tier = kPrimary;
    if (Count(kPrimary) > capacity_[kPrimary]) MoveDown(Victim(kPrimary));
  }

  void MoveDown(uint64_t id) {
    if (Count(kHost) == capacity_[kHost]) Displace();
    nodes_[id].tier = kHost;
    nodes_[id].order = ++newest_;
    Unpark(nodes_[id].parent, kPrimary);
  }

  void Displace() {
    const uint64_t id = Victim(kHost);
    ++figures_.evictions;
    const uint64_t parent = nodes_[id].parent;
    nodes_.erase(id);
    Unpark(parent, kHost);
  }

  // If the node's last child in the way has left its tier, the node is the next to leave.
  void Unpark(uint64_t id, Tier tier) {
    if (id == kNoParent || nodes_[id].tier != tier) return;
    if (Children(id, tier) == 0) nodes_[id].order = --oldest_;
  }

  size_t Children(uint64_t id, Tier tier) const {
    return std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
      return entry.second.parent == id && (tier == kHost || entry.second.tier == kPrimary);
    });
  }
  size_t Count(Tier tier) const {
    return std::count_if(nodes_.begin(), nodes_.end(),
                         [tier](const auto& entry) { return entry.second.tier == tier; });
  }
  uint64_t Victim(Tier tier) const {
    const std::pair<const uint64_t, Node>* victim = nullptr;
    for (const auto& entry : nodes_) {
      if (entry.second.tier != tier || entry.second.held || Children(entry.first, tier) > 0)
        continue;
      if (victim == nullptr || entry.second.order < victim->second.order) victim = &entry;
    }
    return victim->first;
  }

  static constexpr uint64_t kNoParent = ~uint64_t{0};

  const std::array<size_t, 2> capacity_;
  std::map<uint64_t, Node> nodes_;
  int64_t newest_ = 0;
  int64_t oldest_ = 0;
  NaiveFigures figures_;
};

ReplayReport ReplayWithHost(const std::vector<TraceRequest>& requests, uint32_t primary,
                            uint32_t host) {
  const auto report =
      ReplayTrace(requests, {.tier_blocks = {primary, host}, .policy = "lru", .on_request = {}});
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

TEST(ReplayTest, EqualsANaivePairOfTiersOnRandomTrees) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const uint32_t primary = 9 + seed % 20;
    const uint32_t host = 1 + seed % 17;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << primary << " + " << host);
    const std::vector<TraceRequest> requests = RandomTrace(seed);
    const ReplayReport report = ReplayWithHost(requests, primary, host);
    const NaiveFigures naive = NaiveTwoTiers(primary, host).Run(requests);
    EXPECT_EQ(report.blocks_hit, naive.hit);
    EXPECT_EQ(report.onboards, naive.onboards);
    EXPECT_EQ(report.lower_blocks_hit, naive.onboards);
    EXPECT_EQ(report.evictions, naive.evictions);
  }
}

// On a trace of conversations the two tiers are one LRU list: a block that leaves the first tier is
// the newest in the second, and the oldest one there leaves.
TEST(ReplayTest, TwoTiersHitWhatOneOfTheirSumHits) {
  const std::vector<TraceRequest> requests = ChatTrace();
  for (uint32_t primary : {70, 100, 200}) {
    for (uint32_t host : {1, 10, 100, 300, 900}) {
      SCOPED_TRACE(testing::Message() << primary << " + " << host);
      const ReplayReport report = ReplayWithHost(requests, primary, host);
      EXPECT_EQ(report.skipped_requests, 0u);
      const NaiveFigures naive = NaiveLru(primary + host).Run(requests);
      EXPECT_EQ(report.blocks_hit, naive.hit);
      EXPECT_EQ(report.evictions, naive.evictions);
      // Blocks that were offloaded, by a copy or to one, are still there, were onboarded, or were
      // displaced.
      const uint64_t down = report.offloads + report.tiers[0].free_evictions;
      EXPECT_GE(down, report.onboards + report.evictions);
      EXPECT_LE(down, report.onboards + report.evictions + host);
    }
  }
}

TEST(ReplayTest, EveryPolicyHitsMoreWithAHostTier) {
  const std::vector<TraceRequest> requests = ChatTrace();
  for (const std::string_view policy : EvictionPolicyNames()) {
    SCOPED_TRACE(policy);
    const std::string name(policy);
    const auto without =
        ReplayTrace(requests, {.tier_blocks = {100}, .policy = name, .on_request = {}});
    const auto with =
        ReplayTrace(requests, {.tier_blocks = {100, 200}, .policy = name, .on_request = {}});
    ASSERT_TRUE(without.ok() && with.ok());
    EXPECT_EQ(without->lower_blocks_hit, 0u);
    EXPECT_GT(with->hit_rate(), without->hit_rate());
  }
}

TEST(ReplayTest, WhatCannotBeReplayedIsRefused) {
  const std::vector<TraceRequest> requests = {{0, {1}}};
  const auto refused = [&requests](const ReplayOptions& options) {
    return ReasonOf(ReplayTrace(requests, options).status()) == Reason::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.tier_blocks = {0, 1}, .policy = "", .on_request = {}}));
  EXPECT_TRUE(refused({.tier_blocks = {2, 1, 1, 1, 1}, .policy = "", .on_request = {}}));
  EXPECT_TRUE(refused({.tier_blocks = {1}, .policy = "x", .on_request = {}}));
}

TEST(ReplayTest, ARequestAsLargeAsTheCacheIsSkippedAndMissed) {
  const std::vector<TraceRequest> requests = {{0, {1, 2}}, {5, {1, 2, 3}}, {9, {1, 2}}};
  const auto report = ReplayTrace(requests, {.tier_blocks = {3}, .on_request = {}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->requests, 3u);
  EXPECT_EQ(report->skipped_requests, 1u);
  EXPECT_EQ(report->blocks_requested, 7u);
  EXPECT_EQ(report->blocks_hit, 2u);
}

TEST(ReplayTest, IdsThatDifferOnlyAboveThirtyTwoBitsAreDifferentBlocks) {
  const std::vector<TraceRequest> requests = {{0, {1}}, {1, {(uint64_t{1} << 32) + 1}}};
  const auto report = ReplayTrace(requests, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->blocks_hit, 0u);
}

TEST(ReplayTest, TimeThatRunsBackAndEmptyRequestsAreTaken) {
  const std::vector<TraceRequest> requests = {{100, {1}}, {50, {1}}, {60, {}}};
  const auto report = ReplayTrace(requests, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->requests, 3u);
  EXPECT_EQ(report->blocks_hit, 1u);
}

TEST(ReplayTest, ReportsAfterEachRequest) {
  const std::vector<TraceRequest> requests = {{0, {1}}, {1, {1}}};
  std::vector<uint64_t> hits;
  const auto report =
      ReplayTrace(requests, {.tier_blocks = {}, .on_request = [&hits](const ReplayReport& so_far) {
                               hits.push_back(so_far.blocks_hit);
                             }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(hits, (std::vector<uint64_t>{0, 1}));
}

}  // namespace
}  // namespace pagoda
