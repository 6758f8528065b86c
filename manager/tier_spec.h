// The tiers of a cache, as data: nothing outside this list knows how many there are.
#ifndef PAGODA_MANAGER_TIER_SPEC_H_
#define PAGODA_MANAGER_TIER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// A name is 1 to kMaxTierName letters, digits, '-' and '_'.
inline constexpr size_t kMaxTierName = 32;

// One tier of a cache. Its index in the cache's list is its Tier.
struct TierSpec {
  std::string name;  // Unique in the list.
  Medium medium = Medium::kHost;
  // One entry for each of CacheLayout::windows(), or none: no window has blocks here. Only below
  // the first tier may a window have no blocks. A window with blocks below the first tier has
  // SlotsFor() slots there.
  std::vector<uint32_t> blocks;
  // Admission: a victim of the tier above comes in if its priority is at least this; else it is
  // dropped. Means nothing for the first tier.
  Priority min_priority = kDefaultPriority;
  // BlockManager::Maintain keeps as many blocks of each window free here, in thousandths of the
  // tier's blocks, by moving victims down ahead of need. 0: never.
  uint32_t watermark_permille = 0;
  // Of a tier on disk: at most so many bytes are written to it in any second, beside a burst of one
  // second's worth. 0: no limit.
  uint64_t write_bytes_per_second = 0;

  // Of a window, by its index in CacheLayout::windows().
  uint32_t blocks_in(size_t window_index) const {
    return blocks.empty() ? 0 : blocks[window_index];
  }
};

// Errors: INVALID_ARGUMENT for a name that is not one.
absl::Status CheckTierName(std::string_view name);
// What is wrong with a list for a cache of `num_windows` windows. Errors: INVALID_ARGUMENT for no
// tiers or more than kMaxTiers, a name that is not one or not unique, a wrong number of block
// counts, a window without blocks in the first tier or with more than kMaxBlocks, and a threshold
// or a watermark outside its range.
absl::Status CheckTiers(absl::Span<const TierSpec> tiers, size_t num_windows);

// Tiers in host memory under their default names: a first one, and a second one unless `secondary`
// is empty. Blocks by window.
std::vector<TierSpec> HostTiers(std::vector<uint32_t> primary,
                                std::vector<uint32_t> secondary = {});

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIER_SPEC_H_
