// The settings that a seed decides before the first operation.
#ifndef PAGODA_TESTS_SIM_WORDS_CONFIG_H_
#define PAGODA_TESTS_SIM_WORDS_CONFIG_H_

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "events/tenant_id.h"
#include "manager/accounts/tenants.h"
#include "manager/block_manager.h"
#include "pools/sizing.h"

namespace pagoda::sim {

inline constexpr uint32_t kMaxTokensPerBlock = 8;
inline constexpr uint32_t kMaxWindows = 3;
inline constexpr uint32_t kMaxSessions = 4;
inline constexpr uint32_t kSequencesPerSession = 4;
inline constexpr uint16_t kMaxTenantsInSim = 4;  // With the default tenant.

// Every tier that a cache can have, the nearest first.
inline constexpr std::array<Tier, kMaxTiers> kTiers = [] {
  std::array<Tier, kMaxTiers> tiers = {};
  for (size_t t = 0; t < kMaxTiers; ++t) tiers[t] = Tier(t);
  return tiers;
}();

struct SimConfig {
  struct Window {
    WindowSize size;
    std::array<uint32_t, kMaxTiers> blocks = {};  // By tier; 0: this window has no such tier.

    bool full() const { return size == kFullAttention; }
    uint32_t blocks_in(Tier tier) const { return blocks[tier.value()]; }
    uint32_t primary() const { return blocks_in(kPrimaryTier); }
    uint32_t all_blocks() const { return std::accumulate(blocks.begin(), blocks.end(), 0u); }
    bool has_lower() const { return all_blocks() > primary(); }
  };

  uint64_t seed = 0;
  uint32_t tokens_per_block = 1;
  std::vector<Window> windows;  // Ascending.
  uint32_t max_holes = 0;
  std::string eviction_policy;
  // The length of the cache's list of tiers. A window may have no blocks in some of them.
  size_t num_tiers = 1;
  // By tier, as in TierSpec.
  std::array<Priority, kMaxTiers> min_priority = {};
  std::array<uint32_t, kMaxTiers> watermark_permille = {};
  uint32_t pin_budget_permille = 0;
  // The last tier is on disk. Each window with blocks there has its own disk.
  bool has_disk = false;
  uint64_t write_bytes_per_second = 0;  // 0: no limit.

  uint32_t alphabet = 2;           // Token ids in use.
  uint32_t max_prompt_tokens = 0;  // The bound of most prompts.
  bool extra_ids = false;
  bool items = false;
  std::vector<NamespaceKey> name_spaces;
  std::vector<TenantOptions> tenants;  // The tenants besides the default tenant; may be empty.
  bool steps = false;                  // Some sessions count steps.
  uint32_t retention_percent = 0;      // Sequences with wishes.
  uint32_t copy_failure_permille = 0;
  uint32_t copy_haste_percent = 0;  // How soon copies are carried out.
  // The same for a disk; and how often in a hundred operations the daemon maintains it.
  uint32_t file_failure_permille = 0;
  uint32_t file_haste_percent = 0;
  uint32_t maintain_percent = 0;
  uint32_t wrong_percent = 0;  // Calls with a wrong argument.
  bool durations = false;
  LifecycleEvents lifecycle = LifecycleEvents::kRaw;
  std::optional<uint8_t> publish_min_uses = std::nullopt;  // See ManagerOptions.
  // The weights of the kinds of operations, in the order of tests/sim/operations.h.
  std::vector<uint32_t> weights;

  // The tenants' ids are below this; 0 is the default tenant.
  uint16_t num_tenants() const { return static_cast<uint16_t>(tenants.size() + 1); }
  bool shares(TenantId tenant) const {
    return tenant == kDefaultTenant || tenants[tenant.value() - 1u].shares;
  }
  uint32_t quota(TenantId tenant, Tier tier) const {
    return tenant == kDefaultTenant ? kNoQuota
                                    : tenants[tenant.value() - 1u].quota_blocks[tier.value()];
  }
  size_t disk_index() const { return has_disk ? num_tiers - 1 : kMaxTiers; }
  Tier disk() const { return Tier(disk_index()); }
  // The tier with the staging slots. REQUIRES: has_disk.
  Tier above_disk() const { return Tier(num_tiers - 2); }
  bool IsOnDisk(Tier tier) const { return tier.value() == disk_index(); }
  // Whether the window has blocks on disk.
  bool has_disk_in(uint32_t window) const { return has_disk && windows[window].blocks_in(disk()); }
  // Slots for blocks, and the spare. A disk has no spare.
  uint32_t plain_slots_in(uint32_t window, Tier tier) const {
    const uint32_t blocks = windows[window].blocks_in(tier);
    return IsOnDisk(tier) ? blocks : SlotsFor(tier, blocks);
  }
  // All slots: these and the staging slots.
  uint32_t slots_in(uint32_t window, Tier tier) const {
    const bool stages = has_disk && tier == above_disk() && windows[window].blocks_in(tier) != 0;
    return plain_slots_in(window, tier) + (stages ? kStagingSlots : 0);
  }
  uint32_t memory_blocks(uint32_t window) const {
    return windows[window].all_blocks() - (has_disk ? windows[window].blocks_in(disk()) : 0);
  }
  bool IsStaging(uint32_t window, SlotRef slot) const {
    return slot.slot.value() >= plain_slots_in(window, slot.tier);
  }
  // The bytes that one block of a window takes of the write budget.
  uint64_t block_bytes(uint32_t window) const;
  // Whether clients key the name space with this index. Its contents are whole blocks.
  bool keyed(uint32_t name_space) const { return name_spaces[name_space].keyed; }
  // The tenant of a name space, by index.
  TenantId OwnerOf(uint32_t name_space) const;
  // A name space that a session of the tenant may use, instead of the drawn one.
  uint32_t Confined(TenantId tenant, uint32_t name_space) const;
  std::string ToString() const;
};

// `weights` are those of an ordinary run. Each seed leaves out some kinds of operations and runs
// others more often. That leads to states that an even mixture never sees (Groce et al., "Swarm
// testing", 2012).
SimConfig DrawConfig(uint64_t seed, const std::vector<uint32_t>& weights);

// `incarnation` counts the restarts before.
BlockManager::Options CoreOptions(const SimConfig& config, absl::Time start, uint64_t incarnation);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_CONFIG_H_
