#include "events/snapshot.h"

#include <variant>

#include "events/event_filter.h"

namespace pagoda {

void ForEachPassed(const Event& event, const SnapshotPosition& position,
                   absl::FunctionRef<void(const Event&)> show) {
  if (!position.Reached(event.window)) return;
  // The walk's first piece of a window reports its pools.
  const auto* created = std::get_if<CreatedEvent>(&event.what);
  if (created != nullptr && !created->blocks_per_tier.empty()) return;
  ForEachPart(
      event, [&](BlockId id, TierSet) { return position.Passed(event.window, id); }, show);
}

}  // namespace pagoda
