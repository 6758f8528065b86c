#include "manager/learned_policy.h"

#include <bit>
#include <memory>

#include "manager/reuse_table.h"

namespace pagoda {

void LearnedPolicy::Inserted(const BlockFacts& block) {
  if (on_disk_) {
    window_->CameToDisk(tier_, block);
  } else {
    window_->Came(tier_, block);
  }
}

void LearnedPolicy::Recovered(const BlockFacts& block) {
  if (on_disk_) {
    window_->CameToDisk(tier_, block);
  } else {
    window_->Recovered(tier_, block);
  }
}

// Requests match blocks in memory only.
void LearnedPolicy::Touched(const BlockFacts& block) {
  if (!on_disk_) window_->Matched(tier_, block);
}

void LearnedPolicy::Removed(const BlockFacts& block) {
  if (on_disk_) {
    window_->LeftDisk(tier_, block);
  } else {
    window_->Left(tier_, block);
  }
}

// A copy on disk is listed again when its last child leaves the disk, which is no use of it.
void LearnedPolicy::Released(const BlockFacts& block) {
  if (!on_disk_) window_->Released(tier_, block);
  candidates_.PushBack(block.slot, block.priority, window_->ClassOf(tier_, block.slot),
                       KeyOf(block.slot), present());
}

void LearnedPolicy::Unparked(const BlockFacts& block) {
  window_->Unparked(tier_, block);
  candidates_.PushFront(block.slot, block.priority, window_->ClassOf(tier_, block.slot),
                        KeyOf(block.slot), present());
}

void LearnedPolicy::Withdrawn(const BlockFacts& block) { candidates_.Remove(block.slot); }

SlotIndex LearnedPolicy::Victim() const {
  const uint32_t priority = candidates_.LowestPriority();
  if (priority == ClassedCandidates::kNoPriority) return kNoSlot;
  const bool by_index = window_->trusts_index();
  SlotIndex victim = kNoSlot;
  float least = 0;
  uint64_t oldest = 0;
  for (uint32_t classes = candidates_.Classes(priority); classes != 0; classes &= classes - 1) {
    const auto c = static_cast<uint32_t>(std::countr_zero(classes));
    const SlotIndex slot = candidates_.Oldest(priority, c);
    const uint64_t age = window_->AgeOf(tier_, slot);
    const float index = by_index ? window_->IndexOf(c, age) : 0;
    if (victim != kNoSlot && (index > least || (index == least && age <= oldest))) continue;
    victim = slot;
    least = index;
    oldest = age;
  }
  return victim;
}

bool LearnedPolicy::Keeps(const BlockFacts& candidate, const BlockFacts& comes, Tier from) const {
  if (!window_->trusts_index()) return false;
  window_->Settle();  // A block that comes to the disk need not have been a candidate.
  const auto index = [this](size_t tier, SlotIndex slot) {
    return window_->IndexOf(window_->ClassOf(tier, slot), window_->AgeOf(tier, slot));
  };
  return index(tier_, candidate.slot) > index(static_cast<size_t>(from), comes.slot);
}

SlotIndex LearnedPolicy::Evicted(const BlockFacts& victim, const BlockFacts* unparked) {
  candidates_.Remove(victim.slot);
  LearnedPolicy::Removed(victim);
  if (unparked != nullptr) LearnedPolicy::Unparked(*unparked);
  return LearnedPolicy::Victim();
}

std::vector<std::byte> LearnedPolicy::Learned() const { return Encode(window_->Learned()); }

absl::Status LearnedPolicy::RestoreLearned(absl::Span<const std::byte> learned) {
  const absl::StatusOr<ReuseTable> table = DecodeReuseTable(learned);
  if (!table.ok()) return table.status();
  window_->Restore(*table);
  return absl::OkStatus();
}

TierPolicies MakeLearnedPolicies(const PolicyTiers& tiers, uint16_t num_tenants) {
  const auto window = std::make_shared<LearnedWindow>(tiers);
  TierPolicies policies;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    if (tiers[t].num_slots == 0) continue;
    for (uint16_t i = 0; i < num_tenants; ++i) {
      policies[t].push_back(std::make_unique<LearnedPolicy>(window, t, tiers[t].on_disk));
    }
  }
  return policies;
}

}  // namespace pagoda
