#include "clients/pagodactl/replay.h"

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagoda {
namespace {

struct NaiveFigures {
  uint64_t requested = 0;
  uint64_t hit = 0;
  uint64_t evictions = 0;
  uint64_t skipped = 0;
};

// The figures of an LRU cache of ids, in the simplest way there is: a map that is searched for its
// oldest entry. A request's tail is older than its head, and what a request holds does not leave
// while it runs. Only an id without cached children may leave; its parent, if that was its last
// child, is the next in line.
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
  const auto report = ReplayTrace(requests, {.capacity_blocks = capacity, .on_request = {}});
  ASSERT_TRUE(report.ok()) << report.status();
  const NaiveFigures naive = NaiveLru(capacity).Run(requests);
  EXPECT_EQ(report->requests, requests.size());
  EXPECT_EQ(report->skipped_requests, naive.skipped);
  EXPECT_EQ(report->blocks_requested, naive.requested);
  EXPECT_EQ(report->blocks_hit, naive.hit);
  EXPECT_EQ(report->evictions, naive.evictions);
}

std::vector<TraceRequest> ChatTrace() {
  const auto requests = ReadTrace(CHAT_TRACE, /*limit=*/0);
  EXPECT_TRUE(requests.ok()) << requests.status();
  return *requests;
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

// Random walks down a random tree: many prefixes of all lengths, short ones after long ones too.
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

TEST(ReplayTest, ARequestAsLargeAsTheCacheIsSkippedAndMissed) {
  const std::vector<TraceRequest> requests = {{0, {1, 2}}, {5, {1, 2, 3}}, {9, {1, 2}}};
  const auto report = ReplayTrace(requests, {.capacity_blocks = 3, .on_request = {}});
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
  const auto report = ReplayTrace(
      requests, {.capacity_blocks = 0, .on_request = [&hits](const ReplayReport& so_far) {
                   hits.push_back(so_far.blocks_hit);
                 }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(hits, (std::vector<uint64_t>{0, 1}));
}

}  // namespace
}  // namespace pagoda
