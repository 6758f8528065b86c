#ifndef PAGODA_MANAGER_POLICY_MULTI_QUEUE_POLICY_H_
#define PAGODA_MANAGER_POLICY_MULTI_QUEUE_POLICY_H_

#include <cstdint>
#include <memory>

#include "manager/policy/aging_arena.h"
#include "manager/policy/aging_candidates.h"
#include "manager/policy/eviction_policy.h"
#include "manager/policy/use_history.h"

namespace pagoda {

// "mq": the Multi-Queue algorithm (Y. Zhou, J. Philbin, K. Li, "The Multi-Queue Replacement
// Algorithm for Second Level Buffer Caches", USENIX 2001), strictly by priority first. A prefix
// cache resembles a second-level cache in two ways. Content comes back after a pause (a turn of a
// conversation), not at once. Content that came back before does so again.
//
// A block that was matched f times is in queue log2(1 + f). It counts as used that many lifetimes
// later than it was, and the least recently used block is evicted first. This equals MQ's demotion
// by one queue for each lifetime without a use. A parked block returns to the place of its own last
// use, not to the front. The policy remembers matches for a while after content has left (MQ's
// Qout). It learns the lifetime: the mean time until content is used for the second time, while it
// is cached or remembered.
//
// All tenants of a tier share 16 bytes for each slot. Each tenant takes 2 KiB, and 256 bytes for
// each priority that its blocks have.
class MultiQueuePolicy final : public EvictionPolicy {
 public:
  using Shared = AgingArena;

  explicit MultiQueuePolicy(std::shared_ptr<Shared> shared);

  void Inserted(const BlockFacts& block) override;
  void Touched(const BlockFacts& block) override;
  void Removed(const BlockFacts& block) override;
  void Released(const BlockFacts& block) override;
  void Unparked(const BlockFacts& block) override;
  void Passed(const BlockFacts& block) override;
  void Withdrawn(const BlockFacts& block) override;
  SlotIndex Victim() const override;

 private:
  // Time is counted in ticks. A tick is one insertion for every eight cached blocks.
  static constexpr uint32_t kTicksPerTurnover = 8;
  // The parts of a tick in which means are kept.
  static constexpr uint64_t kTick = 256;
  // Candidates that are older than a turnover need no order by key.
  static constexpr uint64_t kReach = kTicksPerTurnover;

  // The mean of about the last `window` samples.
  class Mean {
   public:
    explicit Mean(uint64_t window) : window_(window) {}
    void Add(uint64_t sample) {
      samples_ < window_ ? ++samples_ : sum_ -= sum_ / samples_;
      sum_ += sample;
    }
    uint64_t value() const { return samples_ == 0 ? 0 : sum_ / samples_; }

   private:
    const uint64_t window_;
    uint64_t samples_ = 0;
    uint64_t sum_ = 0;
  };

  uint32_t tick_insertions() const;
  uint64_t KeyOf(SlotIndex slot) const;
  uint64_t floor() const { return now_ < kReach ? 0 : now_ - kReach; }

  const std::shared_ptr<Shared> shared_;  // Owned by these policies.
  AgingCandidates candidates_;
  UseHistory history_;
  uint64_t now_ = 0;         // Ticks.
  uint32_t insertions_ = 0;  // Of the current tick.
  uint32_t cached_ = 0;      // Blocks.
  Mean age_at_second_use_;   // In 1 / kTick ticks.
  Mean age_at_eviction_;     // In 1 / kTick ticks.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_MULTI_QUEUE_POLICY_H_
