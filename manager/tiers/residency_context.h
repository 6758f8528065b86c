// What the parts of TierResidency share: the options, the services, the blocks, the tree, and the
// way out of the cache.
#ifndef PAGODA_MANAGER_TIERS_RESIDENCY_CONTEXT_H_
#define PAGODA_MANAGER_TIERS_RESIDENCY_CONTEXT_H_

#include <array>
#include <cstdint>

#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

// How blocks leave the cache. TierResidency and its parts call the owner of the tree only through
// this interface.
class CacheExit {
 public:
  // Takes the slot of `victim`. The block leaves the tree, or stays there as a hole. In a sliding
  // window the blocks below it can leave too. REQUIRES: it is a candidate.
  virtual void Evict(OperationScope& op, BlockId victim, RemovalReason reason) = 0;
  // The only copy of a cached block is lost: the block leaves the tree, with all blocks below it.
  virtual void Lose(OperationScope& op, BlockId id) = 0;
  virtual void Used(BlockId id) = 0;  // By ResidencyOptions::publish_uses prefix matches.

 protected:
  ~CacheExit() = default;
};

struct ResidencyOptions {
  WindowSize window = kFullAttention;
  uint32_t index = 0;  // Among the cache's windows.
  struct TierOptions {
    uint32_t blocks = 0;                       // 0: the window has no blocks in the tier.
    Priority min_priority = kDefaultPriority;  // See TierSpec.
    bool on_disk = false;                      // Only the last tier with blocks.
    uint32_t staging_slots = 0;                // In the tier above the disk.

    uint32_t num_slots(Tier tier) const {
      return on_disk ? blocks : SlotsFor(tier, blocks) + (blocks == 0 ? 0 : staging_slots);
    }
  };
  std::array<TierOptions, kMaxTiers> tiers;
  uint64_t block_bytes = 0;              // What a backup takes of the write budget.
  uint32_t publish_uses = 0;             // The uses at which CacheExit::Used is called; 0: never.
  const TenantTable* tenants = nullptr;  // Outlives the residency.

  bool sliding() const { return window != kFullAttention; }
  Priority min_priority(Tier tier) const { return tiers[tier.value()].min_priority; }
};

// Everything here outlives the residency and its parts. They read the tree. They add and
// remove no nodes, except that TierResidency::Reuse() erases its victim.
struct ResidencyContext {
  const ResidencyOptions& options;
  const CoreServices& services;
  BlockStore& store;
  PrefixTree& tree;
  CacheExit& exit;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_RESIDENCY_CONTEXT_H_
