#include "manager/policy/learned_policy.h"

#include <bit>
#include <memory>

#include "manager/policy/reuse_table.h"

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
  PutBack();  // Its age can change.
  if (!on_disk_) window_->Matched(tier_, block);
}

void LearnedPolicy::Removed(const BlockFacts& block) {
  if (on_disk_) {
    window_->LeftDisk(tier_, block);
  } else {
    window_->Left(tier_, block);
  }
}

// A copy on disk is also released when it is written and when memory evicts its block. That is no
// use of it.
void LearnedPolicy::Released(const BlockFacts& block) {
  PutBack();
  if (!on_disk_) window_->Released(tier_, block);
  candidates_.PushBack(block.slot, block.priority, window_->ClassOf(tier_, block.slot),
                       KeyOf(block.slot), present());
}

void LearnedPolicy::Unparked(const BlockFacts& block) {
  PutBack();
  window_->Unparked(tier_, block.slot);
  PushFront(block);
}

// The policy takes it for the oldest one of its class.
void LearnedPolicy::Passed(const BlockFacts& block) {
  Withdrawn(block);
  window_->Passed(tier_, block.slot);
  PushFront(block);
}

void LearnedPolicy::PushFront(const BlockFacts& block) {
  candidates_.PushFront(block.slot, block.priority, window_->ClassOf(tier_, block.slot),
                        KeyOf(block.slot), present());
}

void LearnedPolicy::Withdrawn(const BlockFacts& block) {
  if (block.slot == in_hand_.slot) {
    in_hand_.slot = kNoSlot;
    return;
  }
  PutBack();  // What lies behind the block can be the next victim.
  candidates_.Remove(block.slot);
}

LearnedPolicy::InHand LearnedPolicy::FindVictim() const {
  const uint64_t version = window_->version(tier_);
  if (in_hand_.slot != kNoSlot && in_hand_.version == version) return in_hand_;
  const uint32_t priority =
      in_hand_.slot != kNoSlot ? in_hand_.priority.value() : candidates_.LowestPriority();
  if (priority == ClassedCandidates::kNoPriority) return {};
  uint32_t classes = candidates_.Classes(priority);
  if (in_hand_.slot != kNoSlot) classes |= 1u << in_hand_.of_class;
  const bool by_index = window_->trusts_index(tier_);
  InHand victim;
  float least = 0;
  uint64_t oldest = 0;
  for (; classes != 0; classes &= classes - 1) {
    const auto c = static_cast<uint32_t>(std::countr_zero(classes));
    const bool in_hand = in_hand_.slot != kNoSlot && c == in_hand_.of_class;
    const SlotIndex slot = in_hand ? in_hand_.slot : candidates_.Oldest(priority, c);
    const uint64_t age = window_->AgeOf(tier_, slot);
    const float index = by_index ? window_->IndexOf(tier_, c, age) : 0;
    if (victim.slot != kNoSlot && (index > least || (index == least && age <= oldest))) continue;
    victim.slot = slot;
    victim.of_class = c;
    least = index;
    oldest = age;
  }
  victim.priority = Priority{static_cast<uint8_t>(priority)};
  victim.version = version;
  return victim;
}

// Takes the unparked block in hand, as if it were the victim, if it comes before all others of its
// class. Mostly it is the victim then.
bool LearnedPolicy::TakeUnparked(const BlockFacts& block) {
  const uint32_t of_class = window_->ClassOf(tier_, block.slot);
  const uint32_t priority = block.priority.value();
  const uint64_t key = KeyOf(block.slot);
  if (priority != candidates_.LowestPriority()) return false;
  const bool has_others = (candidates_.Classes(priority) >> of_class & 1) != 0;
  if (has_others && key > candidates_.OldestKey(priority, of_class)) return false;
  in_hand_ = {.slot = block.slot,
              .priority = block.priority,
              .of_class = of_class,
              .key = key,
              .version = kNoVersion,
              .known = window_->KnownOf(tier_, block.slot),
              .goes_by_known = true};
  return true;
}

SlotIndex LearnedPolicy::TakeVictim() {
  InHand victim = FindVictim();
  if (victim.slot == kNoSlot) return kNoSlot;
  if (victim.slot == in_hand_.slot) {
    in_hand_.version = window_->version(tier_);
    return victim.slot;
  }
  PutBack();
  victim.key = candidates_.OldestKey(victim.priority.value(), victim.of_class);
  victim.known = window_->KnownOf(tier_, victim.slot);
  victim.goes_by_known =
      victim.known.reuse_class == victim.of_class && KeyOf(victim.slot) <= victim.key;
  candidates_.Remove(victim.slot);
  in_hand_ = victim;
  return victim.slot;
}

void LearnedPolicy::PutBack() {
  if (in_hand_.slot == kNoSlot) return;
  candidates_.PushFront(in_hand_.slot, in_hand_.priority, in_hand_.of_class, in_hand_.key,
                        present());
  in_hand_.slot = kNoSlot;
}

bool LearnedPolicy::Keeps(const BlockFacts& candidate, const BlockFacts& comes, Tier from) const {
  if (!window_->trusts_index(tier_)) return false;
  window_->Settle();  // A block that comes to the disk need not have been a candidate.
  const auto index = [this](size_t tier, SlotIndex slot) {
    return window_->IndexOf(tier_, window_->ClassOf(tier, slot), window_->AgeOf(tier, slot));
  };
  return index(tier_, candidate.slot) > index(from.value(), comes.slot);
}

// A chain of blocks leaves here, with a few instructions for each block and without a call.
SlotIndex LearnedPolicy::Evicted(const BlockFacts& victim, const BlockFacts* unparked) {
  const bool is_chain = unparked != nullptr && victim.slot == in_hand_.slot && !on_disk_ &&
                        window_->LeavesAtOnce() && IsNext(*unparked);
  if (!is_chain) return EvictedAlone(victim, unparked);
  window_->LeftAtOnce(victim.hash, in_hand_.known);
  window_->Unparked(tier_, unparked->slot);
  in_hand_.slot = unparked->slot;
  return unparked->slot;
}

SlotIndex LearnedPolicy::EvictedAlone(const BlockFacts& victim, const BlockFacts* unparked) {
  const bool was_in_hand = victim.slot == in_hand_.slot;
  if (!was_in_hand) {
    PutBack();
    candidates_.Remove(victim.slot);
  }
  Removed(victim);
  if (unparked != nullptr) {
    window_->Unparked(tier_, unparked->slot);
    if (was_in_hand && IsNext(*unparked)) {
      in_hand_.slot = unparked->slot;
      return unparked->slot;
    }
  }
  in_hand_.slot = kNoSlot;
  if (unparked != nullptr && !TakeUnparked(*unparked)) PushFront(*unparked);
  return TakeVictim();
}

std::vector<std::byte> LearnedPolicy::Learned() const { return Encode(window_->Learned()); }

absl::Status LearnedPolicy::RestoreLearned(absl::Span<const std::byte> learned) {
  const absl::StatusOr<std::vector<ReuseTable>> tables = DecodeReuseTables(learned);
  if (!tables.ok()) return tables.status();
  window_->Restore(*tables);
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
