// The distances of a sample, beside a list that is kept by hand.
#include "manager/advice/reuse_distances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace pagoda {
namespace {

using ::testing::DoubleNear;

double Total(const ReuseCounts& counts, size_t bucket) {
  double sum = 0;
  for (const ReuseCounts::Group& group : counts.groups) sum += group.by_distance[bucket];
  return sum;
}

double TotalHits(const ReuseCounts& counts) {
  double sum = 0;
  for (const ReuseCounts::Group& group : counts.groups) sum += group.hits;
  return sum;
}

TEST(ReuseDistancesTest, EachDistanceHasItsBucket) {
  size_t bucket = 0;
  for (uint32_t distance = 0; distance < ReuseCounts::kMaxDistance; ++distance) {
    while (bucket + 1 < ReuseCounts::kBuckets && ReuseCounts::BeginOf(bucket + 1) <= distance) {
      ++bucket;
    }
    ASSERT_EQ(ReuseCounts::BucketOf(distance), bucket) << distance;
  }
  EXPECT_EQ(bucket, ReuseCounts::kBuckets - 1);
  EXPECT_EQ(ReuseCounts::BeginOf(ReuseCounts::kBuckets), ReuseCounts::kMaxDistance);
}

TEST(ReuseDistancesTest, TheSampleIsAsLargeAsTheCapacityAllows) {
  const auto share = [](uint64_t capacity, uint32_t samples) {
    const ReuseDistances distances({.capacity_blocks = capacity, .max_samples = samples});
    std::mt19937_64 random(1);
    constexpr int kHashes = 1'000'000;
    int sampled = 0;
    for (int i = 0; i < kHashes; ++i) sampled += distances.Samples(BlockHash{random()}) ? 1 : 0;
    const double rate = static_cast<double>(sampled) / kHashes;
    EXPECT_NEAR(rate, distances.counts().rate, 0.001) << capacity;
    return rate;
  };
  EXPECT_EQ(share(100, 16'384), 1);
  EXPECT_EQ(share(1024, 16'384), 1);
  EXPECT_NEAR(share(10'000, 16'384), 0.1024, 0.002);
  EXPECT_LE(share(110'000, 16'384), 0.01);
  EXPECT_EQ(share(1000, 0), 0);
}

// The order of the blocks in a list, the most recent one last.
class NaiveOrder {
 public:
  NaiveOrder(uint64_t capacity, size_t samples)
      : reach_(std::min<size_t>(samples, 16 * capacity)) {}

  std::optional<uint32_t> DistanceOf(uint64_t hash) const {
    const auto found = places_.find(hash);
    if (found == places_.end()) return std::nullopt;
    if (!found->second.has_value()) return 0;
    return static_cast<uint32_t>(
        std::count_if(places_.begin(), places_.end(), [&](const auto& other) {
          return !other.second.has_value() || *other.second > *found->second;
        }));
  }
  void Hold(uint64_t hash) {
    if (!places_.contains(hash) && !MakePlace()) return;
    places_[hash] = std::nullopt;
  }
  void Release(uint64_t hash) {
    const auto found = places_.find(hash);
    if (found != places_.end() && !found->second.has_value()) found->second = ++clock_;
  }
  void Remove(uint64_t hash) { places_.erase(hash); }
  void Clear() { places_.clear(); }
  bool Holds(uint64_t hash) const {
    const auto found = places_.find(hash);
    return found != places_.end() && !found->second.has_value();
  }
  size_t size() const { return places_.size(); }

 private:
  bool MakePlace() {
    if (places_.size() < reach_) return true;
    auto oldest = places_.end();
    for (auto it = places_.begin(); it != places_.end(); ++it) {
      if (!it->second.has_value()) continue;
      if (oldest == places_.end() || *it->second < *oldest->second) oldest = it;
    }
    if (oldest == places_.end()) return false;
    places_.erase(oldest);
    return true;
  }

  const size_t reach_;
  uint64_t clock_ = 0;
  std::map<uint64_t, std::optional<uint64_t>> places_;  // No place: it is held.
};

TEST(ReuseDistancesTest, CountsWhatAListKeptByHandCounts) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    std::mt19937_64 random(seed);
    const uint32_t samples = seed % 2 == 0 ? 40 : 200;
    ReuseDistances distances({.capacity_blocks = 10'000, .max_samples = samples});
    NaiveOrder naive(10'000, samples);
    // The contents are 1.5 times as many as the sample takes.
    std::vector<BlockHash> hashes;
    while (hashes.size() < samples * 3 / 2) {
      const BlockHash hash{random()};
      if (distances.Samples(hash)) hashes.push_back(hash);
    }
    std::vector<double> expected(ReuseCounts::kBuckets);
    double hits = 0;
    for (int step = 0; step < 30'000; ++step) {
      const BlockHash hash = hashes[random() % hashes.size()];
      const std::optional<uint32_t> distance = naive.DistanceOf(hash.value());
      ReuseDistances::Request request = distances.Begin();
      switch (random() % 64) {
        case 0:
          distances.Removed(hash);
          naive.Remove(hash.value());
          break;
        case 1:
          if (random() % 100 == 0) {
            distances.Clear();
            naive.Clear();
          }
          break;
        default:
          if (random() % 4 == 0) {
            // Found in the cache, if it is followed.
            distances.Hit(hash, {}, request);
            if (distance.has_value()) ++expected[ReuseCounts::BucketOf(*distance)], ++hits;
          } else {
            distances.Missed(hash, {}, request);
            if (distance.has_value()) ++expected[ReuseCounts::BucketOf(*distance)];
          }
          distances.Held(hash);
          naive.Hold(hash.value());
          // Some stay held for a while.
          if (random() % 8 != 0) {
            distances.Released(hash);
            naive.Release(hash.value());
          }
      }
      // Sometimes everything is held, and nothing more is followed.
      if (step % 1000 == 999) {
        for (const BlockHash held : hashes) {
          if (naive.Holds(held.value()) && random() % 2 == 0) {
            distances.Released(held);
            naive.Release(held.value());
          }
        }
      }
    }
    const ReuseCounts counts = distances.counts();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(Total(counts, i), expected[i]) << "bucket " << i << ", seed " << seed;
    }
    EXPECT_EQ(TotalHits(counts), hits);
    EXPECT_GT(hits, 1000);
  }
}

class SmallDistancesTest : public ::testing::Test {
 protected:
  void Use(uint64_t hash) {
    distances_.Held(BlockHash{hash});
    distances_.Released(BlockHash{hash});
  }
  void Hit(uint64_t hash) {
    ReuseDistances::Request request = distances_.Begin();
    distances_.Hit(BlockHash{hash}, {}, request);
  }
  void Miss(uint64_t hash, ReuseDistances::Request request) {
    distances_.Missed(BlockHash{hash}, {}, request);
  }
  ReuseDistances distances_{{.capacity_blocks = 4, .max_samples = 64}};
};

TEST_F(SmallDistancesTest, AHeldBlockIsMoreRecentThanAllOthers) {
  Use(1);
  distances_.Held(BlockHash{2});
  Use(3);
  Use(4);
  Hit(1);  // Behind 2, 3 and 4.
  EXPECT_EQ(Total(distances_.counts(), 3), 1);
  Hit(3);  // Behind 4 and 2, which is held since before.
  EXPECT_EQ(Total(distances_.counts(), 2), 1);
  Hit(2);
  EXPECT_EQ(Total(distances_.counts(), 0), 1);
}

// Two requests compute the same block at the same time. A larger cache would have had it for both.
TEST_F(SmallDistancesTest, ABlockThatAnotherRequestMissedMeanwhileCountsWithItsDistance) {
  Use(1);
  for (const uint64_t hash : {2, 3, 4, 5, 6}) Use(hash);
  ReuseDistances::Request first = distances_.Begin(), second = distances_.Begin();
  distances_.Missed(BlockHash{1}, {}, first);
  Use(1);
  distances_.Missed(BlockHash{1}, {}, second);
  EXPECT_EQ(Total(distances_.counts(), 5), 2);
  EXPECT_EQ(Total(distances_.counts(), 0), 0);
  // And a first use is one for both.
  const ReuseDistances::Request both = distances_.Begin();
  Miss(7, both);
  Use(7);
  Miss(7, both);
  EXPECT_EQ(Total(distances_.counts(), 0), 0);
  Miss(7, distances_.Begin());
  EXPECT_EQ(Total(distances_.counts(), 0), 1);
}

TEST_F(SmallDistancesTest, CountsHalveAfterAHalfLife) {
  Use(1);
  Hit(1);
  distances_.CountLookups(1, 3);
  const double before = distances_.counts().lookups;
  const double hit_before = Total(distances_.counts(), 0);
  for (int i = 0; i < 63; ++i) distances_.CountLookups(0, 4);
  EXPECT_NEAR(Total(distances_.counts(), 0), hit_before / 2, 0.05);
  EXPECT_NEAR(distances_.counts().hits, 0.5, 0.05);
  EXPECT_LT(distances_.counts().lookups, before + 252 - 50);
  EXPECT_EQ(distances_.counts().rate, 1);
}

// 64 times the capacity pass in an hour. In a day nothing has halved.
TEST_F(SmallDistancesTest, CountsDoNotHalveBeforeADayIsOver) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(5);
  const auto look_up = [&](absl::Duration until) {
    distances_.CountRequest(start + until);
    for (int i = 0; i < 64; ++i) distances_.CountLookups(1, 3);
    return distances_.counts().lookups;
  };
  EXPECT_EQ(look_up(absl::ZeroDuration()), 256);
  EXPECT_EQ(look_up(absl::Hours(1)), 512);
  double all = 512;
  for (int hour = 2; hour <= 24; ++hour) all = look_up(absl::Hours(hour));
  EXPECT_GT(all, 25 * 256 / 2);
  EXPECT_LT(all, 25 * 256 * 0.9);
  // Many lookups at once do not make up for the time.
  const double before = distances_.counts().lookups;
  distances_.CountLookups(0, 100'000);
  EXPECT_EQ(distances_.counts().lookups, before + 100'000);
  // Much time does not make up for lookups: after a month one step is due, with the next lookup.
  distances_.CountRequest(start + absl::Hours(24 * 30));
  distances_.CountLookups(0, 1);
  EXPECT_NEAR(distances_.counts().lookups, (before + 100'001) * 0.9576, 1);
}

TEST(ReuseDistancesTest, ASimulationCountsForEachFactorUnderThePolicy) {
  ReuseDistances distances({.capacity_blocks = 40, .max_samples = 640, .policy = "learned"});
  const auto simulated = [&] {
    std::array<double, ReuseCounts::kSimulated> sums = {};
    for (const ReuseCounts::Group& group : distances.counts().groups) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += group.simulated_hits[i];
    }
    return sums;
  };
  const auto miss = [&](uint64_t hash) {
    ReuseDistances::Request request = distances.Begin();
    distances.Missed(BlockHash{hash}, {}, request);
    distances.Released(BlockHash{hash});
  };
  EXPECT_TRUE(distances.counts().is_simulated);
  miss(1);
  for (uint64_t hash = 2; hash <= 61; ++hash) miss(hash);
  EXPECT_THAT(simulated(), testing::ElementsAre(0, 0, 0, 0));
  miss(1);  // Behind 60 others.
  EXPECT_THAT(simulated(), testing::ElementsAre(0, 0, 1, 1));
  // Two requests miss the same block at the same time: it counts alike for both.
  const ReuseDistances::Request both = distances.Begin();
  for (ReuseDistances::Request request : {both, both}) {
    distances.Missed(BlockHash{15}, {}, request);
  }
  EXPECT_THAT(simulated(), testing::ElementsAre(0, 0, 3, 3));
  // It is not there any more, but what was counted stays.
  distances.Released(BlockHash{15});
  distances.Removed(BlockHash{15});
  miss(15);
  EXPECT_THAT(simulated(), testing::ElementsAre(0, 0, 3, 3));
  distances.Clear();
  miss(15);
  EXPECT_THAT(simulated(), testing::ElementsAre(0, 0, 3, 3));
  miss(15);
  EXPECT_THAT(simulated(), testing::ElementsAre(1, 1, 4, 4));
  for (int i = 0; i < 64; ++i) distances.CountLookups(0, 40);
  EXPECT_THAT(simulated(), testing::ElementsAre(DoubleNear(0.5, 0.01), DoubleNear(0.5, 0.01),
                                                DoubleNear(2, 0.01), DoubleNear(2, 0.01)));
}

TEST(ReuseDistancesTest, LruNeedsNoSimulation) {
  for (const char* policy : {"lru", ""}) {
    const ReuseDistances distances({.capacity_blocks = 40, .max_samples = 640, .policy = policy});
    EXPECT_FALSE(distances.counts().is_simulated) << policy;
  }
}

TEST_F(SmallDistancesTest, TimeRunsFromTheFirstRequestToTheLast) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(5);
  distances_.CountRequest(start);
  distances_.CountRequest(start + absl::Minutes(3));
  distances_.CountRequest(start + absl::Minutes(12));
  EXPECT_EQ(distances_.counts().observed, absl::Minutes(12));
  EXPECT_EQ(distances_.counts().requests, 3u);
  EXPECT_EQ(distances_.counts().seconds, 720);
}

}  // namespace
}  // namespace pagoda
