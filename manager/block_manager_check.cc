// The part of BlockManager that checks every invariant from scratch, over all parts.
#include <map>
#include <vector>

#include "base/check.h"
#include "manager/block_manager_parts.h"

namespace pagoda {

void BlockManager::Parts::CheckSequenceAccounts() const {
  RunningSequences::Costs costs{.sequences = std::vector<uint64_t>(tenants.size()),
                                .bytes = std::vector<uint64_t>(tenants.size())};
  sequences.AddCosts(&costs);
  std::map<SessionId, size_t> ending_deferred = endings.DeferredOfSessions();
  for (const SessionId id : sessions.Ids()) {
    const Session& session = sessions.Get(id);
    costs.bytes[session.tenant.value()] += session.deferred_charge.bytes();
    PAGODA_CHECK(session.deferred_charge.bytes() ==
                     (session.deferred.size() + ending_deferred[id]) * sizeof(DeferredRelease),
                 "a session is charged for its deferred releases");
  }
  endings.AddDeferredBytes(&costs.bytes);
  for (uint16_t i = 0; i < tenants.size(); ++i) {
    PAGODA_CHECK(accounts.sequences(TenantId{i}) == costs.sequences[i] &&
                     accounts.bytes(TenantId{i}) == costs.bytes[i],
                 "tenants are charged for their sequences and deferred releases");
  }
}

void BlockManager::Parts::CheckInvariants() const {
  CheckSequenceAccounts();
  for (size_t w = 0; w < windows.size(); ++w) {
    const WindowBlockManager& window = *windows[w];
    WindowBlockManager::Holders holders(window.num_ids());
    pins.AddHolders(w, &holders);
    sequences.AddHolders(w, &holders);
    for (const SessionId id : sessions.Ids()) {
      const Session& session = sessions.Get(id);
      for (const DeferredRelease& release : session.deferred) {
        if (release.window == w) holders[release.block.value()].push_back(release.tenant);
      }
      if (session.raw_blocks == 0) continue;
      BlockId first{0};
      for (const BlockRef& raw :
           window.raw_blocks().NextRawBlocks(id, &first, window.num_ids(), window.num_ids())) {
        holders[raw.id.value()].push_back(session.tenant);
      }
    }
    endings.AddHolders(w, &holders);
    window.CheckInvariants(holders);
  }
  endings.CheckQuarantines();
}

}  // namespace pagoda
