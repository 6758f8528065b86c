#include "manager/policy/priority_lru_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

TEST(PriorityLruPolicyTest, AParkedBlockGoesNextWheneverItsChildLeaves) {
  Cache cache("lru", 4);
  cache.Add(1);
  cache.Add(2);
  cache.policy().Inserted(Facts(3));
  cache.policy().Touched(Facts(3));
  cache.policy().Unparked(Facts(3));
  EXPECT_THAT(cache.EvictAll(), ElementsAre(3, 1, 2));
}

// 32 of 96 blocks were matched three times. Then a scan follows: content that is never used again.
TEST(PriorityLruPolicyTest, AScanDrivesOutWhatWasMatched) {
  constexpr uint32_t kBlocks = 96, kMatched = 32;
  Cache cache("lru", kBlocks);
  std::mt19937_64 random(1);
  for (uint32_t id = 0; id < kBlocks; ++id) cache.Add(id, random());
  for (int i = 0; i < 3; ++i) {
    for (uint32_t id = 0; id < kMatched; ++id) cache.Match(id);
  }
  uint32_t matched_left = 0;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const uint32_t victim = cache.Evict();
    matched_left += victim < kMatched;
    cache.Add(victim, random());
  }
  EXPECT_EQ(matched_left, kMatched);
}

// A list for each priority.
class NaiveLru {
 public:
  void Released(uint32_t id, Priority priority) { candidates_[priority].push_back(id); }
  void Unparked(uint32_t id, Priority priority) { candidates_[priority].push_front(id); }
  void Withdrawn(uint32_t id) {
    for (auto& [priority, candidates] : candidates_) std::erase(candidates, id);
  }
  std::optional<uint32_t> Victim() const {
    for (const auto& [priority, candidates] : candidates_) {
      if (!candidates.empty()) return candidates.front();
    }
    return std::nullopt;
  }

 private:
  std::map<Priority, std::deque<uint32_t>> candidates_;
};

enum class Where { kNowhere, kHeld, kParked, kCandidate };

// A manager's calls at random: blocks enter, are held, parked, released, matched and leave. A block
// belongs to one tenant while it is cached, and can belong to another afterwards.
class RandomCalls {
 public:
  RandomCalls(uint64_t seed, uint16_t num_tenants)
      : random_(seed), policies_(Make("lru", kSlots, num_tenants)), naive_(num_tenants) {}

  void Step() {
    const auto id = static_cast<uint32_t>(random_() % kSlots);
    if (where_[id] == Where::kNowhere && policies_.size() > 1) {
      tenant_[id] = random_() % policies_.size();
    }
    EvictionPolicy& policy = *policies_[tenant_[id]];
    NaiveLru& naive = naive_[tenant_[id]];
    switch (where_[id]) {
      case Where::kNowhere:
        policy.Inserted(Facts(id));
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
        } else if (random_() % 8 == 0) {
          policy.Passed(Facts(id, priority_[id]));
          naive.Withdrawn(id);
          naive.Unparked(id, priority_[id]);
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
  static constexpr uint32_t kSlots = 80;

  // The tenant's victim is the model's. It is a candidate of the tenant and stable, and no
  // candidate of the tenant has a lower priority.
  void CheckVictim(size_t tenant) const {
    const SlotIndex victim = policies_[tenant]->Victim();
    ASSERT_EQ(policies_[tenant]->Victim(), victim);
    const std::optional<uint32_t> expected = naive_[tenant].Victim();
    ASSERT_EQ(victim, expected.has_value() ? SlotIndex{*expected} : kNoSlot);
    if (victim == kNoSlot) return;
    ASSERT_EQ(where_[victim.value()], Where::kCandidate);
    ASSERT_EQ(tenant_[victim.value()], tenant);
    for (uint32_t id = 0; id < kSlots; ++id) {
      if (where_[id] == Where::kCandidate && tenant_[id] == tenant) {
        ASSERT_LE(priority_[victim.value()], priority_[id]);
      }
    }
  }
  void Touch(uint32_t id) { policies_[tenant_[id]]->Touched(Facts(id)); }
  void Withdraw(uint32_t id) {
    policies_[tenant_[id]]->Withdrawn(Facts(id));
    naive_[tenant_[id]].Withdrawn(id);
  }
  void Remove(uint32_t id) {
    policies_[tenant_[id]]->Removed(Facts(id));
    where_[id] = Where::kNowhere;
  }
  void Evict(size_t tenant) {
    const uint32_t victim = policies_[tenant]->Victim().value();
    Withdraw(victim);
    Remove(victim);
  }

  std::mt19937_64 random_;
  Policies policies_;            // By tenant.
  std::vector<NaiveLru> naive_;  // By tenant.
  std::vector<size_t> tenant_ = std::vector<size_t>(kSlots, 0);
  std::vector<Where> where_ = std::vector<Where>(kSlots, Where::kNowhere);
  std::vector<Priority> priority_ = std::vector<Priority>(kSlots);
};

void CheckAgainstModel(uint64_t seed, uint16_t num_tenants, int steps) {
  RandomCalls calls(seed, num_tenants);
  for (int step = 0; step < steps; ++step) {
    calls.Step();
    calls.CheckVictims();
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << " step " << step;
  }
}

TEST(PriorityLruPolicyTest, EqualsItsNaiveModelOnRandomCalls) {
  for (uint64_t seed = 0; seed < 20; ++seed) CheckAgainstModel(seed, 1, 5'000);
}

TEST(PriorityLruPolicyTest, EachTenantsEqualsANaiveModelOfItsOwn) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CheckAgainstModel(seed, static_cast<uint16_t>(seed % 5 + 2), 3'000);
  }
}

}  // namespace
}  // namespace pagoda
