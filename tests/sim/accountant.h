// Which tenant is charged for which block, computed anew after every operation from what the
// clients hold and what the events say is cached. It never asks the core for its accounts.
#ifndef PAGODA_TESTS_SIM_ACCOUNTANT_H_
#define PAGODA_TESTS_SIM_ACCOUNTANT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "events/tenant_id.h"
#include "manager/stats.h"
#include "tests/sim/config.h"
#include "tests/sim/coverage.h"
#include "tests/sim/ledger.h"
#include "tests/sim/shadow.h"

namespace pagoda::sim {

// Of one window. Rule 16: a tenant is charged for each slot whose block one of its sequences,
// sessions, pins or quarantines holds, whether or not others hold it too, and for each block that
// is cached in a name space of its own. What it holds of the default tenant's blocks counts in the
// primary tier.
class Accountant {
 public:
  Accountant(const SimConfig* config, uint32_t window_index);

  // Forgets all holders.
  void BeginCount();
  void Hold(BlockId id, TenantId tenant);
  // All holders are counted.
  void EndCount(const Ledger& ledger, const Shadow& shadow, Coverage& coverage);

  // Slots that the tenant is charged for, and those of them that somebody holds.
  uint32_t charged(Tier tier, TenantId tenant) const { return At(tier, tenant).charged; }
  uint32_t held(Tier tier, TenantId tenant) const { return At(tier, tenant).held; }
  // Whether the tenant is charged for the block as one that is held.
  bool Holds(uint32_t id, TenantId tenant) const;
  // Primary slots that the tenant may hold besides, with its cached blocks given up.
  uint32_t Left(TenantId tenant) const;

  // Stops the run where a tenant has more than its quota, or `told` (BlockManager::TenantUses) says
  // something else.
  void Check(const std::vector<TenantUsage>& told) const;

 private:
  struct Account {
    uint32_t charged = 0;
    uint32_t held = 0;
  };
  Account& At(Tier tier, TenantId tenant) {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }
  const Account& At(Tier tier, TenantId tenant) const {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }

  const SimConfig* const config_;
  const uint32_t window_index_;
  std::vector<uint8_t> holders_;  // By block id: a bit for each tenant that holds it.
  std::vector<uint8_t> owners_;   // By block id: the tenant that it is cached for; kNobody.
  std::array<std::array<Account, kMaxTenantsInSim>, kMaxTiers> accounts_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_ACCOUNTANT_H_
