// The part of the event stream that a subscriber sees.
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

// Restricts an event to the blocks for which `keep` is true, and calls `show` for each event that
// results. `keep` gets the block's id and, for a Stored block, all tiers that have its bytes
// (otherwise none). A Stored event can become several events, all with its revision, unless it has
// hashes only. An event that keeps everything is not copied.
void ForEachPart(const Event& event, absl::FunctionRef<bool(BlockId, TierSet)> keep,
                 absl::FunctionRef<void(const Event&)> show);

// An event passes only if every part of the filter allows it. Subscribers with equal filters see
// the same events.
struct EventFilter {
  static constexpr uint8_t kAll = 0xFF;

  uint8_t types = kAll;             // Bit i: alternative i of Event::what.
  uint8_t tiers = kAll;             // Bit i: Tier i.
  std::vector<WindowSize> windows;  // Ascending. Empty: all windows.
  std::optional<TenantId> tenant;   // Only events about its blocks. None: about all blocks.
  // With a tenant: events about the default tenant's blocks too. Their salts are secrets of the
  // tenants that share. If blocks are stored under a salt, the salt, the tokens and the extras are
  // hidden. Ends of other tenants' pins do not pass.
  bool default_tenant = false;
  // 0: events with all content. Otherwise their projection onto hashes by chunks of so many tokens
  // (hash_projection.h). It hides nothing from a tenant, because it has no content. REQUIRES: a
  // multiple of the cache's tokens_per_block.
  uint32_t chunk_tokens = 0;

  // Calls `show` for the event, for parts of it, or not at all. These rules decide which events and
  // parts pass `tiers`:
  // * Stored blocks with a copy in one of the tiers, and capacities of these tiers.
  // * Removals, taken blocks, changes of priority and ends of pins, always. The whole event passes.
  // * Moves that begin or end in one of the tiers, and lower copies that come or go there.
  // An event about a whole window or its pools concerns every tenant.
  void Apply(const Event& event, absl::FunctionRef<void(const Event&)> show) const;

  friend bool operator==(const EventFilter&, const EventFilter&) = default;
  template <class H>
  friend H AbslHashValue(H h, const EventFilter& filter) {
    return H::combine(std::move(h), filter.types, filter.tiers, filter.windows,
                      filter.tenant.has_value(), filter.tenant.value_or(kDefaultTenant),
                      filter.default_tenant, filter.chunk_tokens);
  }

 private:
  void ShowInTiers(const Event& event, absl::FunctionRef<void(const Event&)> show) const;
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_EVENT_FILTER_H_
