// Reads of one window from outside: for late subscribers, operators and tests.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_SCANS_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_SCANS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "events/tree_entry.h"
#include "manager/tree/prefix_uses.h"
#include "manager/window/window_part.h"
#include "manager/words/lifecycle_events.h"
#include "manager/words/lists.h"
#include "pools/types.h"

namespace pagoda {

// Changes nothing. Thread-compatible.
//
// Invariant: the cached blocks here are those that events mention. So a block that a reset has cut
// off is not among them.
class WindowScans final : private WindowPart {
 public:
  explicit WindowScans(const WindowFloor& floor) : WindowPart(floor) {}

  // Adds to `out` the cached blocks with ids from `begin` on. Also the window's pools if `begin` is
  // 0, and the blocks outside the tree that `lifecycle` asks for. Looks at up to `max_ids` ids, at
  // least at one. Stops once it has added `max_tokens` tokens. Returns the next id.
  BlockId ReadSnapshot(BlockId begin, size_t max_ids, size_t max_tokens, LifecycleEvents lifecycle,
                       absl::Time now, std::vector<Event>* out) const;

  // --- For operators: what CacheLists' methods of the same names read ---

  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  std::optional<LocatedBlock> Locate(BlockId id, TierSet tiers) const;
  std::optional<PrefixUse> Describe(const UsedPrefix& prefix) const;

  // --- For tests ---

  std::vector<TreeEntry> DumpTree() const;
  std::vector<BlockId> DumpAllocated() const;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_SCANS_H_
