// What the policy "learned" makes of a tier on disk.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "manager/policy/eviction_policy.h"
#include "manager/policy/learned_policy.h"
#include "manager/policy/learned_window.h"
#include "tests/manager/policy/disk_ladder.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

constexpr uint32_t kMemory = 0, kDisk = 1;
constexpr PolicyTiers kTiers = {PolicyTier{64}, PolicyTier{.num_slots = 64, .on_disk = true}};
constexpr uint32_t kOnce = ReuseClass::Of(1, ContentKind::kPrompt);

// The block of the content in a slot of either tier.
BlockFacts At(uint32_t slot, uint64_t content) {
  BlockFacts facts = Facts(slot, kDefaultPriority, content * 0x9E37'79B9'7F4A'7C15u);
  facts.block = BlockId{static_cast<uint32_t>(content)};
  return facts;
}

float Seen(const LearnedWindow& window) {
  float sum = 0;
  const ReuseTable table = window.Learned().back();
  for (const auto& of_class : table.counts) {
    for (const ReuseIndex::Counts& counts : of_class) sum += counts.reached + counts.reused;
  }
  return sum;
}

// A window whose memory has content 99 in slot 5. It was matched once, 20 accesses ago.
class LearnedDiskTest : public testing::Test {
 protected:
  LearnedDiskTest() {
    window_.Came(kMemory, At(5, 99));
    window_.Matched(kMemory, At(5, 99));
    window_.Released(kMemory, At(5, 99));
    for (uint32_t i = 0; i < 20; ++i) window_.Came(kMemory, At(20 + i, 1'000 + i));
    window_.Settle();
  }
  // It gets a copy in slot 7 of the disk.
  void Write() {
    window_.CameToDisk(kDisk, At(7, 99));
    window_.Inherit(kDisk, At(7, 99), {kPrimaryTier, SlotIndex{5}});
  }
  // It leaves memory for that copy.
  void Fall() {
    window_.Left(kMemory, At(5, 99));
    window_.Inherit(kDisk, At(7, 99), {kPrimaryTier, SlotIndex{5}});
  }
  // It comes back to slot 9 of the memory.
  void Fetch() {
    window_.Inherit(kMemory, At(9, 99), {Tier(1), SlotIndex{7}});
    window_.Came(kMemory, At(9, 99));
  }
  uint32_t ClassOf(uint32_t tier, uint32_t slot) {
    window_.Settle();
    return window_.ClassOf(tier, SlotIndex{slot});
  }
  // The class of the content if a request computes it anew.
  uint32_t ClassOfNew(uint64_t content) {
    window_.Came(kMemory, At(60, content));
    return ClassOf(kMemory, 60);
  }

  LearnedWindow window_{kTiers};
};

TEST_F(LearnedDiskTest, ACopyOnDiskHasTheClassAndTheAgeOfItsBlock) {
  Write();
  EXPECT_EQ(ClassOf(kDisk, 7), kOnce);
  EXPECT_EQ(window_.AgeOf(kDisk, SlotIndex{7}), 20u);
  window_.Matched(kMemory, At(5, 99));
  Fall();
  EXPECT_EQ(ClassOf(kDisk, 7), ReuseClass::Of(2, ContentKind::kPrompt));
  EXPECT_EQ(window_.AgeOf(kDisk, SlotIndex{7}), 0u);
}

TEST_F(LearnedDiskTest, ABlockThatComesBackFromDiskIsNoAccess) {
  Write();
  Fall();
  const float seen = Seen(window_);
  Fetch();
  EXPECT_EQ(ClassOf(kMemory, 9), kOnce);
  EXPECT_EQ(window_.AgeOf(kMemory, SlotIndex{9}), 20u);
  EXPECT_EQ(Seen(window_), seen);
  window_.Released(kMemory, At(9, 99));
  EXPECT_EQ(ClassOf(kMemory, 9), kOnce) << "it is not the end of a request";
  EXPECT_EQ(window_.AgeOf(kMemory, SlotIndex{9}), 20u);
  // The request that it was fetched for matches it.
  window_.Matched(kMemory, At(9, 99));
  EXPECT_EQ(ClassOf(kMemory, 9), ReuseClass::Of(2, ContentKind::kPrompt));
  EXPECT_EQ(window_.AgeOf(kMemory, SlotIndex{9}), 0u);
}

TEST_F(LearnedDiskTest, ContentThatOnlyTheDiskHadIsRememberedWhenItLeaves) {
  Write();
  Fall();
  window_.LeftDisk(kDisk, At(7, 99));
  EXPECT_EQ(ClassOfNew(99), ReuseClass::Of(2, ContentKind::kPrompt));
}

TEST_F(LearnedDiskTest, ContentThatMemoryStillHasIsNotRemembered) {
  Write();
  window_.LeftDisk(kDisk, At(7, 99));
  EXPECT_EQ(ClassOfNew(99), ReuseClass::Of(0, ContentKind::kPrompt));
}

TEST_F(LearnedDiskTest, ContentThatComesBackFromDiskIsNotRememberedThere) {
  Write();
  Fall();
  Fetch();
  window_.LeftDisk(kDisk, At(7, 99));
  EXPECT_EQ(ClassOfNew(99), ReuseClass::Of(0, ContentKind::kPrompt));
}

TEST_F(LearnedDiskTest, ContentThatFallsToDiskIsNotRememberedMeanwhile) {
  Write();
  Fall();
  window_.Came(kMemory, At(61, 2'000));
  window_.Settle();
  EXPECT_EQ(ClassOfNew(99), ReuseClass::Of(0, ContentKind::kPrompt));
}

// A copy on disk is also released when memory evicts its block. That is no use of it.
TEST(LearnedDiskPolicyTest, AListedCopyKeepsItsAge) {
  TierPolicies policies = MakeLearnedPolicies(kTiers, 1);
  EvictionPolicy& memory = *policies[kMemory][0];
  EvictionPolicy& disk = *policies[kDisk][0];
  const auto write = [&](uint32_t slot, uint64_t content) {
    memory.Inserted(At(slot, content));
    memory.Released(At(slot, content));
    disk.Inserted(At(slot, content));
    disk.Inherited(At(slot, content), {kPrimaryTier, SlotIndex{slot}});
  };
  for (uint32_t i = 1; i < 40; ++i) write(i, i);
  for (uint32_t i = 20; i < 40; ++i) disk.Released(At(i, i));
  disk.Released(At(1, 1));
  EXPECT_EQ(disk.Victim(), SlotIndex{1}) << "the least recently used";
}

// --- A core with a disk ---

// Notes the calls about contents.
class Listener final : public EvictionPolicy {
 public:
  Listener(std::unique_ptr<EvictionPolicy> policy, std::string tier,
           std::vector<std::string>* calls)
      : policy_(std::move(policy)), tier_(std::move(tier)), calls_(*calls) {}

  void Inserted(const BlockFacts&) override { calls_.push_back(tier_ + " inserted"); }
  void Removed(const BlockFacts&) override { calls_.push_back(tier_ + " removed"); }
  void Inherited(const BlockFacts&, SlotRef other) override {
    calls_.push_back(tier_ + " inherited from " + std::string(DefaultTierName(other.tier)));
  }
  void Released(const BlockFacts& block) override {
    calls_.push_back(tier_ + " released");
    policy_->Released(block);
  }
  void Unparked(const BlockFacts& block) override { policy_->Unparked(block); }
  void Withdrawn(const BlockFacts& block) override { policy_->Withdrawn(block); }
  SlotIndex Victim() const override { return policy_->Victim(); }

 private:
  const std::unique_ptr<EvictionPolicy> policy_;
  const std::string tier_;
  std::vector<std::string>& calls_;
};

TEST(DiskLadderTest, PoliciesHearWhatACopyInAnotherTierIsKnownFor) {
  std::vector<std::string> calls;
  const auto listeners = [&](const PolicyTiers& tiers, uint16_t num_tenants) {
    TierPolicies policies = *MakeEvictionPolicies("lru", tiers, num_tenants);
    policies[kMemory][0] =
        std::make_unique<Listener>(std::move(policies[kMemory][0]), "memory", &calls);
    policies[kDisk][0] = std::make_unique<Listener>(std::move(policies[kDisk][0]), "disk", &calls);
    return policies;
  };
  DiskLadder ladder(
      {.memory_blocks = 2, .disk_blocks = 4, .policy = "", .make_policies = listeners});
  const std::string memory(DefaultTierName(kPrimaryTier)), disk(DefaultTierName(Tier(1)));
  const auto in_turn = [&](const std::vector<std::string>& names) {
    return std::search(calls.begin(), calls.end(), names.begin(), names.end()) != calls.end();
  };
  ladder.Run({1});
  const std::string inherited = "disk inherited from " + memory;
  EXPECT_TRUE(in_turn({"disk inserted", inherited, inherited, "disk released"})) << "it is written";
  ladder.Run({2});
  calls.clear();
  ladder.Run({3});
  EXPECT_TRUE(in_turn({"memory removed", inherited})) << "1 falls";
  calls.clear();
  EXPECT_EQ(ladder.Run({1}), 1u);
  EXPECT_TRUE(in_turn({"memory inherited from " + disk, "memory inserted"})) << "it is fetched";
}

TEST(LearnedDiskLadderTest, AMatchInMemoryMakesTheCopyOnDiskYoung) {
  DiskLadder ladder({.memory_blocks = 8, .disk_blocks = 3, .policy = "learned"});
  for (const uint64_t id : {1, 2, 3}) ladder.Run({id});
  EXPECT_TRUE(ladder.HasOnDisk(1) && ladder.HasOnDisk(2) && ladder.HasOnDisk(3));
  EXPECT_EQ(ladder.Run({1}), 1u);
  ladder.Run({4});
  EXPECT_TRUE(ladder.HasOnDisk(1) && ladder.HasOnDisk(4));
  EXPECT_FALSE(ladder.HasOnDisk(2)) << "it was used least recently";
}

// The last child of 1 leaves the disk. So its copy can go too, and is older than that of 3.
TEST(DiskLadderTest, ACopyWhoseLastChildLeavesTheDiskKeepsItsAge) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    SCOPED_TRACE(policy);
    DiskLadder ladder({.memory_blocks = 8, .disk_blocks = 3, .policy = std::string(policy)});
    ladder.Run({1, 2});
    ladder.Run({3});
    ladder.Run({4});
    EXPECT_FALSE(ladder.HasOnDisk(2)) << "1 has a child on disk";
    ladder.Run({5});
    EXPECT_FALSE(ladder.HasOnDisk(1));
    EXPECT_TRUE(ladder.HasOnDisk(3) && ladder.HasOnDisk(4) && ladder.HasOnDisk(5));
  }
}

// Requests over 40 documents of 8 blocks, in turn. Between any two comes one of 12 blocks that is
// never seen again. So 800 blocks lie between two uses of a document, twelve times the memory.
struct Figures {
  double hit_rate = 0;  // The documents' hit rate after the first kWarm rounds.
  uint64_t backups = 0;
};
Figures RunDocuments(DiskLadder::Options options) {
  constexpr uint64_t kDocuments = 40, kRounds = 40, kWarm = 16;
  DiskLadder ladder(options);
  uint64_t hits = 0, once = 1'000'000;
  const auto run = [&](uint64_t first, uint32_t blocks) {
    std::vector<uint64_t> ids(blocks);
    for (uint64_t& id : ids) id = first++;
    return ladder.Run(ids);
  };
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (uint64_t document = 0; document < kDocuments; ++document) {
      const uint32_t cached = run(1'000 * (document + 1), 8);
      if (round >= kWarm) hits += cached;
      run(once, 12);
      once += 12;
    }
    ladder.core().CheckInvariants();
  }
  return {static_cast<double>(hits) / ((kRounds - kWarm) * kDocuments * 8), ladder.disk().backups};
}

// "learned" in memory, and another policy on disk.
TierPolicies LearnedAboveLru(const PolicyTiers& tiers, uint16_t num_tenants) {
  TierPolicies policies = *MakeEvictionPolicies("learned", tiers, num_tenants);
  policies[kDisk] = std::move((*MakeEvictionPolicies("lru", tiers, num_tenants))[kDisk]);
  return policies;
}

TEST(LearnedDiskLadderTest, KeepsOnDiskWhatIsUsedAgain) {
  const Figures lru = RunDocuments({.memory_blocks = 64, .disk_blocks = 640, .policy = "lru"});
  const Figures above_lru = RunDocuments(
      {.memory_blocks = 64, .disk_blocks = 640, .policy = "", .make_policies = LearnedAboveLru});
  const Figures learned =
      RunDocuments({.memory_blocks = 64, .disk_blocks = 640, .policy = "learned"});
  EXPECT_LT(lru.hit_rate, 0.2);
  EXPECT_LT(above_lru.hit_rate, 0.4);
  EXPECT_GT(learned.hit_rate, 0.9);
  EXPECT_LT(learned.backups * 2, lru.backups) << "what is worth less than the disk is not written";
}

}  // namespace
}  // namespace pagoda
