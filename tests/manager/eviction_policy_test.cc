#include "manager/eviction_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Priority kPriorities[] = {Priority{0}, Priority{34}, kDefaultPriority, Priority{100}};

using Policies = std::vector<std::unique_ptr<EvictionPolicy>>;

Policies Make(std::string_view name, uint32_t num_slots, uint16_t num_tenants) {
  absl::StatusOr<Policies> policies = MakeEvictionPolicies(name, num_slots, num_tenants);
  return policies.ok() ? *std::move(policies) : Policies(num_tenants);
}

// A block whose id is unrelated to its slot, because policies go by slot.
BlockFacts Facts(uint32_t slot, Priority priority = kDefaultPriority, uint64_t hash = 0) {
  return {.slot = SlotIndex{slot},
          .block = BlockId{2'000'000 - slot},
          .hash = BlockHash{hash},
          .priority = priority};
}

// A manager's actions on one block, as calls of a policy.
class Cache {
 public:
  explicit Cache(std::unique_ptr<EvictionPolicy> policy) : policy_(std::move(policy)) {}
  Cache(std::string_view name, uint32_t num_slots)
      : Cache(std::move(Make(name, num_slots, 1)[0])) {}

  EvictionPolicy& policy() { return *policy_; }
  uint32_t Victim() const { return policy_->Victim().value(); }

  // New content, used and released.
  void Add(uint32_t id, uint64_t content = 0, Priority priority = kDefaultPriority) {
    policy_->Inserted(Facts(id, kDefaultPriority, content));
    policy_->Released(Facts(id, priority));
  }
  // A candidate is matched and released again.
  void Match(uint32_t id, Priority priority = kDefaultPriority) {
    policy_->Withdrawn(Facts(id));
    policy_->Touched(Facts(id));
    policy_->Released(Facts(id, priority));
  }
  // The victim leaves.
  uint32_t Evict(uint64_t content = 0) {
    const uint32_t victim = Victim();
    policy_->Withdrawn(Facts(victim));
    policy_->Removed(Facts(victim, kDefaultPriority, content));
    return victim;
  }
  std::vector<uint32_t> EvictAll() {
    std::vector<uint32_t> ids;
    while (policy_->Victim() != kNoSlot) ids.push_back(Evict());
    return ids;
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
};

TEST(EvictionPolicyTest, LruIsTheDefault) {
  EXPECT_THAT(EvictionPolicyNames(), ElementsAre("lru", "mq", "lfuda"));
}

TEST(EvictionPolicyTest, AnUnknownPolicyIsRefusedWithTheNamesThereAre) {
  const auto policies = MakeEvictionPolicies("belady", 10, 1);
  EXPECT_EQ(ReasonOf(policies.status()), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(policies.status().message()), HasSubstr("\"belady\""));
  EXPECT_THAT(std::string(policies.status().message()), HasSubstr("lru mq lfuda"));
  EXPECT_FALSE(MakeEvictionPolicies("", 10, 1).ok());
}

// --- What holds for every policy ---

class EveryPolicyTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicyTest, ::testing::ValuesIn(EvictionPolicyNames()),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(EveryPolicyTest, WithoutCandidatesThereIsNoVictim) {
  Cache cache(GetParam(), 4);
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
  cache.policy().Inserted(Facts(1, kDefaultPriority, 5));
  cache.policy().Touched(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), kNoSlot) << "it is held";
  cache.policy().Released(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), SlotIndex{1});
  cache.policy().Withdrawn(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
}

TEST_P(EveryPolicyTest, LowestPriorityFirstThenLeastRecentlyUsedWhereNothingWasMatched) {
  Cache cache(GetParam(), 300);
  std::vector<uint32_t> expected;
  for (uint32_t id = 0; id < 300; ++id) {
    cache.Add(id, 0, Priority{static_cast<uint8_t>(id % 3 * 50)});
  }
  for (uint32_t rest = 0; rest < 3; ++rest) {
    for (uint32_t id = rest; id < 300; id += 3) expected.push_back(id);
  }
  EXPECT_EQ(cache.EvictAll(), expected);
}

TEST_P(EveryPolicyTest, HoweverOftenABlockIsMatchedALowerPriorityGoesFirst) {
  Cache cache(GetParam(), 4);
  cache.Add(1, 0, Priority{10});
  cache.Add(2, 0, Priority{11});
  for (int i = 0; i < 50; ++i) cache.Match(1, Priority{10});
  EXPECT_EQ(cache.Victim(), 1u);
}

TEST_P(EveryPolicyTest, ABlockMayComeBackWithAnotherPriority) {
  Cache cache(GetParam(), 4);
  cache.Add(1, 0, Priority{10});
  cache.Add(2, 0, Priority{20});
  cache.policy().Withdrawn(Facts(1));
  cache.policy().Released(Facts(1, Priority{100}));
  EXPECT_THAT(cache.EvictAll(), ElementsAre(2, 1));
}

TEST_P(EveryPolicyTest, AParkedBlockFollowsTheChildThatLeft) {
  Cache cache(GetParam(), 10);
  cache.policy().Inserted(Facts(0));  // The parent: used with its child, and parked.
  cache.Add(1);
  for (uint32_t id = 2; id < 10; ++id) cache.Add(id);
  EXPECT_EQ(cache.Evict(), 1u);
  cache.policy().Unparked(Facts(0));
  EXPECT_EQ(cache.Victim(), 0u);
}

TEST_P(EveryPolicyTest, AMillionCandidatesGoOneByOne) {
  // A policy that looked at all candidates for each victim would not end.
  constexpr uint32_t kSlots = 1'000'000;
  Cache cache(GetParam(), kSlots);
  for (uint32_t id = 0; id < kSlots; ++id) cache.Add(id, id, kPriorities[id % 4]);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kSlots; ++i) sum += cache.Evict(i);
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
  EXPECT_EQ(sum, uint64_t{kSlots} * (kSlots - 1) / 2);
}

TEST_P(EveryPolicyTest, WhoIsACandidateIsTheManagersToSay) {
  Cache cache(GetParam(), 4);
  EXPECT_DEATH(cache.policy().Withdrawn(Facts(1)), "only a candidate is withdrawn");
  cache.Add(1);
  EXPECT_DEATH(cache.policy().Released(Facts(1)), "becomes a candidate once");
  EXPECT_DEATH(cache.policy().Unparked(Facts(1, Priority{0})), "becomes a candidate once");
  EXPECT_DEATH(cache.policy().Released(Facts(2, Priority{101})), "");
}

// --- Against naive models ---

// The policies as their headers describe them, with a sorted list and without memory of evicted
// content.
class NaivePolicy {
 public:
  virtual ~NaivePolicy() = default;
  virtual void Inserted(uint32_t id) = 0;
  virtual void Touched(uint32_t id) = 0;
  virtual void Removed(uint32_t id) = 0;
  void Released(uint32_t id, Priority priority) { Push(id, priority, false); }
  void Unparked(uint32_t id, Priority priority) { Push(id, priority, true); }

  void Withdrawn(uint32_t id) {
    for (auto& [priority, candidates] : candidates_) {
      std::erase_if(candidates, [id](const Candidate& c) { return c.id == id; });
    }
  }
  // The lowest key of the lowest priority, the first of those.
  std::optional<uint32_t> Victim() const {
    for (const auto& [priority, candidates] : candidates_) {
      if (candidates.empty()) continue;
      return std::min_element(candidates.begin(), candidates.end(),
                              [](const Candidate& a, const Candidate& b) { return a.key < b.key; })
          ->id;
    }
    return std::nullopt;
  }

 protected:
  virtual uint64_t Key(uint32_t id) const = 0;
  virtual void LetGo() {}
  // Keys in [first, second] are distinguished.
  virtual std::pair<uint64_t, uint64_t> Bounds() const { return {0, ~uint64_t{0}}; }

 private:
  struct Candidate {
    uint64_t key;
    uint32_t id;
  };

  void Push(uint32_t id, Priority priority, bool front) {
    LetGo();
    std::vector<Candidate>& candidates = candidates_[priority];
    const auto [low, high] = Bounds();
    // Slots with one key stay in the list's order, even if their keys became equal later.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    for (Candidate& candidate : candidates) candidate.key = std::max(candidate.key, low);
    candidates.insert(front ? candidates.begin() : candidates.end(),
                      Candidate{std::clamp(Key(id), low, high), id});
  }

  std::map<Priority, std::vector<Candidate>> candidates_;
};

class NaiveLru : public NaivePolicy {
  void Inserted(uint32_t) override {}
  void Touched(uint32_t) override {}
  void Removed(uint32_t) override {}
  uint64_t Key(uint32_t) const override { return 0; }  // Only places decide.
};

struct NaiveUse {
  uint64_t when = 0;
  uint64_t matches = 0;
};

class NaiveMultiQueue : public NaivePolicy {
 public:
  void Inserted(uint32_t id) override {
    ++cached_;
    if (++insertions_ >= std::max<uint64_t>(1, cached_ / 8)) {
      insertions_ = 0;
      ++now_;
    }
    uses_[id] = {.when = now_, .matches = 0};
    arrived_ = id;
  }
  void Touched(uint32_t id) override {
    NaiveUse& use = uses_[id];
    if (use.matches == 0 && arrived_ != id) second_use_ages_.push_back(now_ - use.when);
    arrived_.reset();
    use = {.when = now_, .matches = std::min<uint64_t>(use.matches + 1, 15)};
  }
  void Removed(uint32_t) override { --cached_; }

 private:
  void LetGo() override { arrived_.reset(); }
  uint64_t Key(uint32_t id) const override {
    const NaiveUse& use = uses_.at(id);
    const auto queue = static_cast<uint64_t>(std::bit_width(use.matches + 1) - 1);
    return use.when + queue * Lifetime() / 256;
  }
  // In 1/256 of a tick.
  uint64_t Lifetime() const {
    if (second_use_ages_.empty()) return 0;
    uint64_t sum = 0;
    for (const uint64_t age : second_use_ages_) sum += 256 * age;
    return sum / second_use_ages_.size();
  }
  std::pair<uint64_t, uint64_t> Bounds() const override {
    const uint64_t low = now_ < 8 ? 0 : now_ - 8;
    return {low, low + 31};
  }

  uint64_t now_ = 0;
  uint64_t insertions_ = 0;
  uint64_t cached_ = 0;
  std::vector<uint64_t> second_use_ages_;
  std::optional<uint32_t> arrived_;  // Inserted by the last call.
  std::map<uint32_t, NaiveUse> uses_;
};

class NaiveLfuAging : public NaivePolicy {
 public:
  void Inserted(uint32_t id) override { uses_[id] = {.when = age_, .matches = 0}; }
  void Touched(uint32_t id) override {
    uses_[id] = {.when = age_, .matches = std::min<uint64_t>(uses_[id].matches + 1, 15)};
  }
  void Removed(uint32_t id) override {
    if (const std::optional<uint32_t> next = Victim()) {
      age_ = std::max(age_, std::min(Key(id), Key(*next)));
    }
  }

 private:
  uint64_t Key(uint32_t id) const override { return uses_.at(id).when + 1 + uses_.at(id).matches; }
  std::pair<uint64_t, uint64_t> Bounds() const override { return {age_, age_ + 31}; }

  uint64_t age_ = 0;
  std::map<uint32_t, NaiveUse> uses_;
};

std::unique_ptr<NaivePolicy> MakeNaive(std::string_view name) {
  if (name == "mq") return std::make_unique<NaiveMultiQueue>();
  if (name == "lfuda") return std::make_unique<NaiveLfuAging>();
  return std::make_unique<NaiveLru>();
}

enum class Where { kNowhere, kHeld, kParked, kCandidate };

// A manager's calls at random: blocks enter, are held, parked, released, matched and leave. A block
// belongs to one tenant while it is cached, and can belong to another afterwards.
class RandomCalls {
 public:
  RandomCalls(std::string_view name, uint64_t seed, uint16_t num_tenants)
      : random_(seed), policies_(Make(name, kNumSlots, num_tenants)) {
    for (uint16_t i = 0; i < num_tenants; ++i) naive_.push_back(MakeNaive(name));
  }

  void Step() {
    const auto id = static_cast<uint32_t>(random_() % kUsedSlots);
    if (where_[id] == Where::kNowhere && policies_.size() > 1) {
      tenant_[id] = random_() % policies_.size();
    }
    EvictionPolicy& policy = *policies_[tenant_[id]];
    NaivePolicy& naive = *naive_[tenant_[id]];
    switch (where_[id]) {
      case Where::kNowhere:
        policy.Inserted(Facts(id));
        naive.Inserted(id);
        where_[id] = Where::kHeld;
        break;
      case Where::kHeld:
        if (random_() % 4 == 0) {
          where_[id] = Where::kParked;
        } else if (random_() % 8 == 0) {
          Remove(id);
        } else {
          priority_[id] = kPriorities[random_() % 4];
          policy.Released(Facts(id, priority_[id]));
          naive.Released(id, priority_[id]);
          where_[id] = Where::kCandidate;
        }
        break;
      case Where::kParked:
        if (random_() % 2 == 0) {
          Touch(id);
        } else {
          priority_[id] = kPriorities[random_() % 4];
          policy.Unparked(Facts(id, priority_[id]));
          naive.Unparked(id, priority_[id]);
          where_[id] = Where::kCandidate;
        }
        break;
      case Where::kCandidate:
        if (random_() % 3 == 0) {
          Evict(tenant_[id]);
        } else {
          Touch(id);
          if (random_() % 4 == 0) return;  // Matched, and not held.
          Withdraw(id);
          where_[id] = Where::kHeld;
        }
        break;
    }
  }

  void CheckVictims() const {
    for (size_t tenant = 0; tenant < policies_.size(); ++tenant) {
      CheckVictim(tenant);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  // More than are used, so that means cover all samples.
  static constexpr uint32_t kNumSlots = 10'000;
  static constexpr uint32_t kUsedSlots = 80;

  // The tenant's victim is the model's. It is a candidate of the tenant and stable, and no
  // candidate of the tenant has a lower priority.
  void CheckVictim(size_t tenant) const {
    const SlotIndex victim = policies_[tenant]->Victim();
    ASSERT_EQ(policies_[tenant]->Victim(), victim);
    const std::optional<uint32_t> expected = naive_[tenant]->Victim();
    ASSERT_EQ(victim, expected.has_value() ? SlotIndex{*expected} : kNoSlot);
    if (victim == kNoSlot) return;
    ASSERT_EQ(where_[victim.value()], Where::kCandidate);
    ASSERT_EQ(tenant_[victim.value()], tenant);
    for (uint32_t id = 0; id < kUsedSlots; ++id) {
      if (where_[id] == Where::kCandidate && tenant_[id] == tenant) {
        ASSERT_LE(priority_[victim.value()], priority_[id]);
      }
    }
  }
  void Touch(uint32_t id) {
    policies_[tenant_[id]]->Touched(Facts(id));
    naive_[tenant_[id]]->Touched(id);
  }
  void Withdraw(uint32_t id) {
    policies_[tenant_[id]]->Withdrawn(Facts(id));
    naive_[tenant_[id]]->Withdrawn(id);
  }
  void Remove(uint32_t id) {
    policies_[tenant_[id]]->Removed(Facts(id));
    naive_[tenant_[id]]->Removed(id);
    where_[id] = Where::kNowhere;
  }
  void Evict(size_t tenant) {
    const uint32_t victim = policies_[tenant]->Victim().value();
    Withdraw(victim);
    Remove(victim);
  }

  std::mt19937_64 random_;
  Policies policies_;                                // By tenant.
  std::vector<std::unique_ptr<NaivePolicy>> naive_;  // By tenant.
  std::vector<size_t> tenant_ = std::vector<size_t>(kUsedSlots, 0);
  std::vector<Where> where_ = std::vector<Where>(kUsedSlots, Where::kNowhere);
  std::vector<Priority> priority_ = std::vector<Priority>(kUsedSlots);
};

TEST_P(EveryPolicyTest, EqualsItsNaiveModelOnRandomCalls) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomCalls calls(GetParam(), seed, 1);
    for (int step = 0; step < 5'000; ++step) {
      calls.Step();
      calls.CheckVictims();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
  }
}

TEST_P(EveryPolicyTest, EachTenantsEqualsANaiveModelOfItsOwn) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomCalls calls(GetParam(), seed, static_cast<uint16_t>(seed % 5 + 2));
    for (int step = 0; step < 3'000; ++step) {
      calls.Step();
      calls.CheckVictims();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
  }
}

TEST_P(EveryPolicyTest, OneCallForAnEvictionEqualsTheCallsOneByOne) {
  constexpr uint32_t kSlots = 400;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Cache batched(GetParam(), kSlots), single(GetParam(), kSlots);
    // Chains: the parent of slot s is s - 1, except at the heads. Only the ends are candidates.
    const auto is_head = [](uint32_t slot) { return slot % 8 == 0; };
    const auto priority = [&](uint32_t slot) { return kPriorities[slot / 8 % 4]; };
    const auto add_chain = [&](uint32_t head) {
      for (Cache* cache : {&batched, &single}) {
        for (uint32_t slot = head; slot < head + 8; ++slot) {
          cache->policy().Inserted(Facts(slot, priority(slot), slot));
          if (seed % 2 == 0 && slot % 3 == 0) cache->policy().Touched(Facts(slot, priority(slot)));
        }
        cache->policy().Released(Facts(head + 7, priority(head)));
      }
    };
    std::vector<uint32_t> absent;
    for (uint32_t head = 0; head < kSlots; head += 8) add_chain(head);
    for (int step = 0; step < 5'000; ++step) {
      ASSERT_EQ(batched.Victim(), single.Victim()) << "seed " << seed << " step " << step;
      if (batched.policy().Victim() == kNoSlot || (!absent.empty() && random() % 10 == 0)) {
        const size_t pick = random() % absent.size();
        std::swap(absent[pick], absent.back());
        add_chain(absent.back());
        absent.pop_back();
        continue;
      }
      const uint32_t victim = batched.Victim();
      const BlockFacts facts = Facts(victim, priority(victim), victim);
      const BlockFacts parent = Facts(victim - 1, priority(victim), victim - 1);
      const bool unparks = !is_head(victim);
      const SlotIndex next = batched.policy().Evicted(facts, unparks ? &parent : nullptr);
      single.policy().Withdrawn(facts);
      single.policy().Removed(facts);
      if (unparks) single.policy().Unparked(parent);
      ASSERT_EQ(next, single.policy().Victim()) << "seed " << seed << " step " << step;
      if (!unparks) absent.push_back(victim);
    }
  }
}

// --- What the policies are for ---

TEST(PriorityLruPolicyTest, AParkedBlockGoesNextWheneverItsChildLeaves) {
  Cache cache("lru", 4);
  cache.Add(1);
  cache.Add(2);
  cache.policy().Inserted(Facts(3));
  cache.policy().Touched(Facts(3));
  cache.policy().Unparked(Facts(3));
  EXPECT_THAT(cache.EvictAll(), ElementsAre(3, 1, 2));
}

// A cache of 96 blocks, of which 0 to 31 were matched a few times, a while after they entered. Then
// content passes through that is never used again.
class ScannedCache {
 public:
  explicit ScannedCache(std::string_view name) : cache_(name, kBlocks) {
    for (uint32_t id = 0; id < kBlocks; ++id) cache_.Add(id, Content());
    for (int i = 0; i < 3; ++i) {
      for (uint32_t id = 0; id < kMatched; ++id) cache_.Match(id);
    }
  }

  void Scan(uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; ++i) {
      const uint32_t victim = cache_.Evict();
      left_ += is_matched_[victim];
      is_matched_[victim] = false;
      cache_.Add(victim, Content());
    }
  }
  // How many of the matched blocks have left.
  uint32_t left() const { return left_; }

  static constexpr uint32_t kBlocks = 96;
  static constexpr uint32_t kMatched = 32;

 private:
  uint64_t Content() { return random_(); }

  std::mt19937_64 random_{1};
  Cache cache_;
  std::vector<bool> is_matched_ = [] {
    std::vector<bool> matched(kBlocks, false);
    std::fill_n(matched.begin(), kMatched, true);
    return matched;
  }();
  uint32_t left_ = 0;
};

TEST(PriorityLruPolicyTest, AScanDrivesOutWhatWasMatched) {
  ScannedCache cache("lru");
  cache.Scan(ScannedCache::kBlocks);
  EXPECT_EQ(cache.left(), ScannedCache::kMatched);
}

// The policies that count matches.
class CountingPolicyTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Policies, CountingPolicyTest, ::testing::Values("mq", "lfuda"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(CountingPolicyTest, AScanPassesByWhatWasMatched) {
  ScannedCache cache(GetParam());
  cache.Scan(ScannedCache::kBlocks);
  EXPECT_EQ(cache.left(), 0u);
}

TEST_P(CountingPolicyTest, WhatIsNotMatchedAnyMoreGoesInTheEnd) {
  ScannedCache cache(GetParam());
  cache.Scan(20 * ScannedCache::kBlocks);
  EXPECT_EQ(cache.left(), ScannedCache::kMatched);
}

TEST_P(CountingPolicyTest, ContentThatComesBackStaysLongerThanNewContent) {
  constexpr uint32_t kBlocks = 96;
  Cache cache(GetParam(), kBlocks);
  std::mt19937_64 random(1);
  std::vector<uint64_t> content;
  for (uint32_t id = 0; id < kBlocks; ++id) cache.Add(id, content.emplace_back(random()));
  // Blocks leave and come back at once, so that there is a return time to learn.
  for (uint32_t id = 0; id < 24; ++id) {
    ASSERT_EQ(cache.Evict(content[id]), id);
    cache.Add(id, content[id]);
  }
  ASSERT_EQ(cache.Evict(content[24]), 24u);
  ASSERT_EQ(cache.Evict(content[25]), 25u);
  cache.Add(24, content[24]);
  cache.Add(25, random());
  for (uint32_t victim = 0; victim != 25; victim = cache.Evict()) ASSERT_NE(victim, 24u);
}

TEST_P(CountingPolicyTest, AParkedBlockReturnsToThePlaceThatItsMatchesGiveIt) {
  constexpr uint32_t kBlocks = 96;
  Cache cache(GetParam(), kBlocks);
  cache.policy().Inserted(Facts(0));
  for (uint32_t id = 1; id < kBlocks; ++id) {
    cache.Add(id);
    if (id % 16 == 0) cache.policy().Touched(Facts(0));  // Held with one child or another.
  }
  EXPECT_EQ(cache.Evict(), 1u);
  cache.policy().Unparked(Facts(0));
  // It does not go to the front, as under LRU: most of the blocks without a match are evicted
  // first.
  uint32_t gone_before = 0;
  while (cache.Evict() != 0) ++gone_before;
  EXPECT_GT(gone_before, kBlocks / 2);
}

}  // namespace
}  // namespace pagoda
