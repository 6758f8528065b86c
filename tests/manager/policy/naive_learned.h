// The policy "learned" of a window in memory, by its definition.
#ifndef PAGODA_TESTS_MANAGER_POLICY_NAIVE_LEARNED_H_
#define PAGODA_TESTS_MANAGER_POLICY_NAIVE_LEARNED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "events/event.h"
#include "manager/policy/evicted_content.h"
#include "manager/policy/reuse_sample.h"
#include "manager/policy/reuse_table.h"
#include "manager/words/block_facts.h"

namespace pagoda {

// Keeps the class and the last use of each block, and each class's candidates in a list. Only the
// sample and the memory of evicted contents are those of the policy: they have models of their own.
//
// REQUIRES: tiers of `slots` slots each, at most 255, so that each access is a step of the clock.
class NaiveLearned {
 public:
  NaiveLearned(uint32_t tiers, uint32_t slots)
      : several_(tiers > 1), evicted_(2 * tiers * slots), tiers_(tiers) {
    for (uint32_t t = 1; t <= tiers; ++t) {
      samples_.push_back(std::make_unique<ReuseSample>(t * slots));
    }
    // A key is the largest power of two of steps that is at most an eighth of the slots.
    while (uint64_t{2} << key_shift_ <= slots / 8) ++key_shift_;
  }

  // --- The calls, as EvictionPolicy has them ---

  void Inserted(uint32_t tier, const BlockFacts& block) {
    Block& known = tiers_[tier].blocks[block.slot];
    if (moving_.has_value() && moving_->block == block.block && moving_->content == block.hash &&
        moving_->tier != tier) {
      known = moving_->known;
      known.has_moved = true;
      moving_.reset();
      return;
    }
    EndMove();
    // The last 16 arrivals are no accesses yet. Each becomes one when something else happens.
    if (arrivals_.size() == 16) SettleOne();
    known = {};
    arrivals_.push_back({tier, block});
  }
  void Touched(uint32_t tier, const BlockFacts& block) {
    Settle();
    Block& known = tiers_[tier].blocks[block.slot];
    known.is_new = known.has_moved = false;
    known.uses = std::min(known.uses + 1, 3u);
    known.kind = KindOf(block);
    Use(known, block.hash);
  }
  void Removed(uint32_t tier, const BlockFacts& block) {
    Settle();
    EndMove();
    moving_ = {tier, block.block, block.hash, tiers_[tier].blocks[block.slot]};
    tiers_[tier].blocks.erase(block.slot);
    if (!several_) EndMove();
  }
  void Released(uint32_t tier, const BlockFacts& block) {
    Settle();
    Block& known = tiers_[tier].blocks[block.slot];
    if (!std::exchange(known.has_moved, false)) {
      const uint64_t held = now_ - known.last_use;
      known.last_use = now_;
      if (std::exchange(known.is_new, false)) {
        for (const auto& sample : samples_) sample->Ended(held);
        known.kind = ContentKind::kLast;
        for (const auto& sample : samples_) sample->Reclassify(block.hash, known.reuse_class());
      }
    }
    List(tier, block, End::kBack);
  }
  void Unparked(uint32_t tier, const BlockFacts& block) {
    Settle();
    tiers_[tier].blocks[block.slot].is_new = false;
    List(tier, block, End::kFront);
  }
  void Withdrawn(uint32_t tier, SlotIndex slot) {
    for (auto& [priority, lists] : tiers_[tier].candidates) {
      for (auto& [c, list] : lists) {
        std::erase_if(list, [slot](const Candidate& one) { return one.slot == slot; });
      }
    }
  }

  // --- Its decisions ---

  // The next victim: one of the oldest candidates of all classes of the lowest priority. The
  // candidate with the lowest index comes first if the tier's index is trusted, then the least
  // recently used one, then the one of the lowest class.
  std::optional<SlotIndex> Victim(uint32_t tier) const {
    for (const auto& [priority, lists] : tiers_[tier].candidates) {
      std::optional<SlotIndex> victim;
      for (const auto& [c, list] : lists) {
        if (list.empty()) continue;
        const SlotIndex slot = list.front().slot;
        if (!victim.has_value() || GoesBefore(tier, slot, *victim)) victim = slot;
      }
      if (victim.has_value()) return victim;
    }
    return std::nullopt;
  }
  bool Keeps(uint32_t tier, SlotIndex candidate, uint32_t from, SlotIndex comes) const {
    return trusts_index(tier) && Index(tier, candidate, tier) > Index(from, comes, tier);
  }

  bool trusts_index(uint32_t tier) const { return samples_[tier]->trusts_index(); }
  bool settled() const { return arrivals_.empty(); }
  std::vector<ReuseTable> learned() const {
    std::vector<ReuseTable> tables;
    for (const auto& sample : samples_) tables.push_back(sample->Learned());
    return tables;
  }

 private:
  struct Block {
    uint32_t uses = 0;
    ContentKind kind = ContentKind::kPrompt;
    uint64_t last_use = 0;   // In accesses.
    bool is_new = true;      // No request has matched it, released it, or ended before it.
    bool has_moved = false;  // To another tier, where it is about to be a candidate.

    uint32_t reuse_class() const { return ReuseClass::Of(uses, kind); }
  };
  struct Candidate {
    SlotIndex slot;
    uint64_t key = 0;
  };
  struct Tier {
    std::map<SlotIndex, Block> blocks;
    // By priority and class; the oldest first.
    std::map<Priority, std::map<uint32_t, std::vector<Candidate>>> candidates;
  };
  struct Arrival {
    uint32_t tier;
    BlockFacts block;
  };
  struct Moving {
    uint32_t tier;
    BlockId block;
    BlockHash content;
    Block known;
  };
  enum class End : uint8_t { kFront, kBack };

  static ContentKind KindOf(const BlockFacts& block) {
    return block.content.origin() == ContentOrigin::kReply ? ContentKind::kReply
                                                           : ContentKind::kPrompt;
  }
  void Use(Block& known, BlockHash content) {
    for (const auto& sample : samples_) sample->Accessed(content, known.reuse_class());
    known.last_use = ++now_;
  }
  void Settle() {
    while (!arrivals_.empty()) SettleOne();
  }
  void SettleOne() {
    const Arrival arrival = arrivals_.front();
    arrivals_.pop_front();
    Block& known = tiers_[arrival.tier].blocks[arrival.block.slot];
    known.kind = KindOf(arrival.block);
    if (const auto uses_before = evicted_.Take(arrival.block.hash)) {
      known.uses = std::min(*uses_before + 1, 3u);
    }
    Use(known, arrival.block.hash);
  }
  void EndMove() {
    if (moving_.has_value()) evicted_.Remember(moving_->content, moving_->known.uses);
    moving_.reset();
  }

  // A key more than 31 behind the present counts as 31 behind.
  void List(uint32_t tier, const BlockFacts& block, End end) {
    const Block& known = tiers_[tier].blocks[block.slot];
    std::vector<Candidate>& list = tiers_[tier].candidates[block.priority][known.reuse_class()];
    const uint64_t present = now_ >> key_shift_;
    const uint64_t floor = present < 31 ? 0 : present - 31;
    for (Candidate& one : list) one.key = std::max(one.key, floor);
    const Candidate own = {block.slot, std::max(known.last_use >> key_shift_, floor)};
    const auto place = std::find_if(list.begin(), list.end(), [&](const Candidate& one) {
      return end == End::kFront ? one.key >= own.key : one.key > own.key;
    });
    list.insert(place, own);
  }
  uint64_t AgeOf(uint32_t tier, SlotIndex slot) const {
    return now_ - tiers_[tier].blocks.at(slot).last_use;
  }
  // What the block is worth to the tier `to`.
  float Index(uint32_t tier, SlotIndex slot, uint32_t to) const {
    return samples_[to]->index().at(tiers_[tier].blocks.at(slot).reuse_class(),
                                    samples_[to]->BinOf(AgeOf(tier, slot)));
  }
  bool GoesBefore(uint32_t tier, SlotIndex slot, SlotIndex other) const {
    if (trusts_index(tier) && Index(tier, slot, tier) != Index(tier, other, tier)) {
      return Index(tier, slot, tier) < Index(tier, other, tier);
    }
    return AgeOf(tier, slot) > AgeOf(tier, other);
  }

  const bool several_;
  EvictedContent evicted_;
  std::vector<std::unique_ptr<ReuseSample>> samples_;  // By tier: of it and those above.
  std::vector<Tier> tiers_;
  uint32_t key_shift_ = 0;
  uint64_t now_ = 0;
  std::deque<Arrival> arrivals_;
  std::optional<Moving> moving_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_POLICY_NAIVE_LEARNED_H_
