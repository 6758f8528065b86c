// What a tier below changes for the tiers above it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "manager/block_manager.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlockTokens = 2;

// A request: its blocks, and how they are to be kept.
struct Request {
  std::vector<uint32_t> blocks;
  Priority priority = kDefaultPriority;
};

// A cache on a list of tiers, and the requests that run in it. Copies and files are done at once.
class Ladder {
 public:
  Ladder(std::vector<TierSpec> tiers, std::string_view policy, std::vector<TenantOptions> tenants)
      : core_(*BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                     .tiers = std::move(tiers),
                                     .eviction_policy = std::string(policy),
                                     .record_events = RecordEvents::kNo,
                                     .epoch = Epoch{1},
                                     .tenants = tenants,
                                     .start_time = now_})) {
    sessions_.push_back(core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id);
    for (uint16_t t = 1; t <= tenants.size(); ++t) {
      sessions_.push_back(
          core_->OpenSession("test", absl::InfiniteDuration(), now_, TenantId{t})->ref.id);
    }
  }

  // A request is added, computed and freed. Then what it brought is written to the disk. Returns
  // the number of blocks that were cached.
  uint32_t Run(const Request& request, size_t session = 0) {
    now_ += absl::Seconds(1);
    std::vector<TokenId> tokens;
    for (const uint32_t block : request.blocks) tokens.insert(tokens.end(), {block, 0});
    const auto computed = static_cast<uint32_t>(tokens.size());
    tokens.push_back(0);  // The last token is never matched.
    SequenceRetention retention;
    retention.ranges.push_back({.token_end = std::nullopt, .retention = {request.priority}});
    const NamespaceKey name_space;
    const SessionId of = sessions_[session];
    const SequenceId sequence{++sequences_};
    const auto added = core_->sequences().AddSequence(
        of, sequence, {.name_space = name_space, .tokens = tokens, .retention = &retention}, now_);
    EXPECT_TRUE(added.ok()) << added.status();
    const uint32_t matched = added->matched_tokens / kBlockTokens;
    Settle();
    EXPECT_TRUE(core_->sequences().CommitTokens(of, sequence, {}, computed, now_).ok());
    EXPECT_TRUE(core_->sequences().FreeSequence(of, sequence, now_).ok());
    do core_->Maintain(now_, 4);
    while (Settle());
    return matched;
  }
  uint64_t HitTokens(size_t tier) const {
    uint64_t hits = 0;
    for (const TenantCounters& tenant : core_->Stats().windows[0].tenants) {
      hits += tenant.prefix_hit_tokens[tier];
    }
    return hits;
  }
  BlockManager& core() { return *core_; }

 private:
  bool Settle() {
    bool any = false;
    for (bool more = true; more; any = any || more) {
      more = false;
      for (const Order& order : core_->TakeOrders()) {
        if (order.kind != Order::Kind::kMove) continue;
        core_->Complete(order.lane, order.ticket, absl::OkStatus(), now_);
        more = true;
      }
    }
    return any;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<BlockManager> core_;
  std::vector<SessionId> sessions_;
  uint64_t sequences_ = 0;
};

TierSpec MemoryTier(size_t index, uint32_t blocks) {
  return {.name = DefaultTierName(Tier(index)), .blocks = {blocks}};
}
TierSpec DiskTier(size_t index, uint32_t blocks) {
  TierSpec disk = MemoryTier(index, blocks);
  disk.medium = Medium::kDisk;
  disk.min_priority = Priority{0};
  return disk;
}

// Five prompts of 12 blocks, which fit in memory, each twice.
TEST(TierBelowTest, PromptsThatFitInMemoryStayThereAboveADisk) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    SCOPED_TRACE(policy);
    Ladder ladder({MemoryTier(0, 16), MemoryTier(1, 64), DiskTier(2, 400)}, policy, {});
    for (int round = 0; round < 2; ++round) {
      for (uint32_t prompt = 0; prompt < 5; ++prompt) {
        Request request;
        for (uint32_t i = 0; i < 12; ++i) request.blocks.push_back(100 * prompt + i);
        EXPECT_EQ(ladder.Run(request), round == 0 ? 0u : 12u);
      }
    }
    EXPECT_EQ(ladder.core().Stats().windows[0].disk.backups, 60u);
  }
}

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<uint32_t>(values.size()))];
  }

 private:
  std::mt19937_64 random_;
};

// Documents that begin alike and branch off, some of them new.
Request RandomRequest(Random& random, uint32_t documents, uint32_t max_blocks) {
  const uint32_t document = std::min(random.Below(documents), random.Below(documents));
  Request request{.priority = Priority{static_cast<uint8_t>(
                      document % 5 == 0 ? 80 : (document % 5 == 1 ? 10 : 35))}};
  uint32_t branch = document * 2654435761u;
  const uint32_t length = 1 + random.Below(max_blocks);
  for (uint32_t i = 0; i < length; ++i) {
    if (random.Below(8) == 0) branch = (branch ^ (1 + random.Below(3))) * 2246822519u;
    if (random.Below(40) == 0) branch = random.Below(1u << 31);
    request.blocks.push_back(branch = branch * 3266489917u + 1);
  }
  return request;
}

// What the tiers above the last one hit, by tier, with it and without it.
struct Hits {
  std::array<uint64_t, kMaxTiers> with = {}, without = {};
};

// The requests of one seed run one after another in two caches, of which one has a further tier.
Hits RunTwice(uint64_t seed, std::string_view policy) {
  Random random(seed);
  std::vector<TierSpec> tiers = {MemoryTier(0, 8 + random.Below(24))};
  const uint32_t last = 1 + random.Below(3);
  for (uint32_t t = 1; t <= last; ++t) {
    const bool on_disk = t == last && random.Below(2) == 0;
    const uint32_t blocks = 1 + random.Below(t == last ? 200 : 60);
    // To keep slots free above a disk costs nothing.
    if (on_disk) tiers.back().watermark_permille = random.OneOf({0u, 200u});
    tiers.push_back(on_disk ? DiskTier(t, blocks) : MemoryTier(t, blocks));
    tiers.back().min_priority = random.OneOf({Priority{0}, kDefaultPriority, Priority{50}});
  }
  std::vector<TenantOptions> tenants(random.Below(3));
  for (TenantOptions& tenant : tenants) {
    tenant.name = absl::StrCat("tenant", random.Below(1'000'000));
    tenant.shares = random.Below(2) == 0;
    tenant.share = 1 + random.Below(3);
    for (size_t t = 1; t < last; ++t) {
      tenant.quota_blocks[t] = random.OneOf({kNoQuota, 0u, random.Below(30)});
    }
  }
  Ladder with(tiers, policy, tenants);
  tiers.pop_back();
  Ladder without(tiers, policy, tenants);
  const uint32_t documents = 2 + random.Below(20);
  const uint32_t max_blocks = 1 + random.Below(tiers.front().blocks.front() - 1);
  for (int step = 0; step < 300; ++step) {
    const Request request = RandomRequest(random, documents, max_blocks);
    const size_t session = random.Below(static_cast<uint32_t>(tenants.size()) + 1);
    with.Run(request, session);
    without.Run(request, session);
  }
  with.core().CheckInvariants();
  Hits hits;
  for (size_t t = 0; t < last; ++t) {
    hits.with[t] = with.HitTokens(t);
    hits.without[t] = without.HitTokens(t);
  }
  return hits;
}

// The policy "lru" decides by the order of releases, which a tier below does not change.
TEST(TierBelowTest, LeavesTheHitsOfTheTiersAboveAsTheyAre) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Hits hits = RunTwice(seed, "lru");
    EXPECT_EQ(hits.with, hits.without) << "seed " << seed;
  }
}

// "learned" also learns from the contents of a tier below. So single worlds hit more or less in the
// tiers above. In these 300 worlds the sum is not smaller.
TEST(TierBelowTest, TheSumOfTheHitsOfTheTiersAboveIsNotSmaller) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    uint64_t with = 0, without = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      const Hits hits = RunTwice(seed, policy);
      with = std::accumulate(hits.with.begin(), hits.with.end(), with);
      without = std::accumulate(hits.without.begin(), hits.without.end(), without);
    }
    EXPECT_GE(with, without) << policy;
  }
}

// Random requests that fit in the memory below the first tier, run again in another order. The
// ladder fetches nothing from the disk, so a block that is only there does not match.
void ExpectStaysInMemory(uint64_t seed, std::string_view policy) {
  Random random(seed);
  const uint32_t max_blocks = 1 + random.Below(12);
  std::vector<Request> requests(5 + random.Below(25));
  std::set<std::vector<uint32_t>> prefixes;  // One for each block.
  for (Request& request : requests) {
    request = RandomRequest(random, 10, max_blocks);
    const auto begin = request.blocks.begin();
    for (auto end = begin; end != request.blocks.end();) prefixes.insert({begin, ++end});
  }
  const auto blocks = static_cast<uint32_t>(prefixes.size());
  std::vector<TierSpec> tiers = {MemoryTier(0, max_blocks + 1 + random.Below(8))};
  uint32_t below = 0;
  for (const uint32_t last = 1 + random.Below(2); tiers.size() <= last;) {
    const uint32_t rest = blocks - std::min(blocks, below);
    tiers.push_back(MemoryTier(
        tiers.size(), tiers.size() == last ? std::max(rest, 1u) : 1 + random.Below(blocks)));
    tiers.back().min_priority = Priority{0};
    below += tiers.back().blocks.front();
  }
  tiers.push_back(DiskTier(tiers.size(), 1 + random.Below(2 * blocks)));
  Ladder ladder(tiers, policy, {});
  for (int round = 0; round < 3; ++round) {
    for (const Request& request : requests) {
      const uint32_t cached = ladder.Run(request);
      if (round > 0) {
        EXPECT_EQ(cached, request.blocks.size());
      }
    }
    std::shuffle(requests.begin(), requests.end(), std::mt19937_64(seed));
  }
}

TEST(TierBelowTest, WhatFitsInMemoryStaysThereUnderEveryPolicy) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      SCOPED_TRACE(testing::Message() << policy << ", seed " << seed);
      ExpectStaysInMemory(seed, policy);
    }
  }
}

}  // namespace
}  // namespace pagoda
