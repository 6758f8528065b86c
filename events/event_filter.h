// What a subscriber wants to see of the event stream.
#ifndef PAGODA_EVENTS_EVENT_FILTER_H_
#define PAGODA_EVENTS_EVENT_FILTER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "events/event.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda {

// Calls `show` for the events that are left of `event` when of a Stored, Created or Removed event
// only the blocks stay that `keep` is true for: of a Stored block it gets all tiers that have its
// bytes, else none. A Stored event may fall into several; the revision of all of them is the
// event's. Nothing is copied where everything stays.
void ForEachPart(const Event& event, absl::FunctionRef<bool(BlockId, TierSet)> keep,
                 absl::FunctionRef<void(const Event&)> show);

// Everything that is said has to hold. Subscribers with equal filters see the same.
struct EventFilter {
  static constexpr uint8_t kAll = 0xFF;

  uint8_t types = kAll;             // Bit i: alternative i of Event::what.
  uint8_t tiers = kAll;             // Bit i: Tier i.
  std::vector<WindowSize> windows;  // Ascending; empty: all of them.
  std::optional<TenantId> tenant;   // Events about its blocks alone; none: about anybody's.
  // With a tenant: about the default tenant's too. Their salts are secrets of the tenants that
  // share: of what is stored under one the salt, the tokens and the extras are hidden. The pins of
  // others are not told.
  bool default_tenant = false;

  // Calls `show` for what the filter lets through of the event: the event, parts of it (a Stored
  // event's blocks without a copy in the tiers are left out, and so are other tiers' capacities),
  // or nothing. A removal and a change of priority pass whatever `tiers` is, with what else the
  // event says. A move passes where it begins or ends in one of the tiers, a change of lower copies
  // where one comes or goes there. That everything of a window left, or its pools, concerns every
  // tenant.
  void Apply(const Event& event, absl::FunctionRef<void(const Event&)> show) const;

  friend bool operator==(const EventFilter&, const EventFilter&) = default;
  template <class H>
  friend H AbslHashValue(H h, const EventFilter& filter) {
    return H::combine(std::move(h), filter.types, filter.tiers, filter.windows,
                      filter.tenant.has_value(), filter.tenant.value_or(kDefaultTenant),
                      filter.default_tenant);
  }
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_EVENT_FILTER_H_
