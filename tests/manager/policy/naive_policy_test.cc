// Eviction policies beside naive models of them, on random calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manager/policy/eviction_policy.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

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

  void Passed(uint32_t id, Priority priority) {
    Withdrawn(id);
    const auto [low, high] = Bounds();
    Insert(priority, low, {low, id});
  }

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
    const auto [low, high] = Bounds();
    const Candidate candidate{std::clamp(Key(id), low, high), id};
    Insert(priority, low, candidate, front);
  }
  void Insert(Priority priority, uint64_t low, Candidate added, bool front = true) {
    std::vector<Candidate>& candidates = candidates_[priority];
    // Slots with one key stay in the list's order, even if their keys became equal later.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    for (Candidate& candidate : candidates) candidate.key = std::max(candidate.key, low);
    candidates.insert(front ? candidates.begin() : candidates.end(), added);
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
        } else if (random_() % 8 == 0) {
          policy.Passed(Facts(id, priority_[id]));
          naive.Passed(id, priority_[id]);
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

// "learned" has a model of its own, in learned_policy_test.cc.
class NaivePolicyTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Policies, NaivePolicyTest, ::testing::Values("lru", "mq", "lfuda"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(NaivePolicyTest, EqualsItsNaiveModelOnRandomCalls) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomCalls calls(GetParam(), seed, 1);
    for (int step = 0; step < 5'000; ++step) {
      calls.Step();
      calls.CheckVictims();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
  }
}

TEST_P(NaivePolicyTest, EachTenantsEqualsANaiveModelOfItsOwn) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomCalls calls(GetParam(), seed, static_cast<uint16_t>(seed % 5 + 2));
    for (int step = 0; step < 3'000; ++step) {
      calls.Step();
      calls.CheckVictims();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace pagoda
