// Which tenant is charged for which block. Computed anew after every operation from the clients'
// holds and the cached blocks of the events. It never asks the core for its accounts.
#ifndef PAGODA_TESTS_SIM_RECORD_ACCOUNTANT_H_
#define PAGODA_TESTS_SIM_RECORD_ACCOUNTANT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "events/tenant_id.h"
#include "manager/api/stats.h"
#include "tests/sim/record/ledger.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/coverage.h"

namespace pagoda::sim {

// For one window. Rule 16: a tenant is charged for each slot whose block one of its sequences,
// sessions, pins or quarantines holds, whether or not others hold it too. It is also charged for
// each block that is cached in a name space of its own. Blocks of the default tenant that it holds
// count in the primary tier.
class Accountant {
 public:
  Accountant(const SimConfig* config, uint32_t window_index);

  // Forgets all holders.
  void BeginCount();
  void Hold(BlockId id, TenantId tenant);
  // Called when all holders are counted.
  void EndCount(const Ledger& ledger, const Shadow& shadow, Coverage& coverage);

  // Slots that the tenant is charged for, and those of them that have a holder.
  uint32_t charged(Tier tier, TenantId tenant) const { return At(tier, tenant).charged; }
  uint32_t held(Tier tier, TenantId tenant) const { return At(tier, tenant).held; }
  // Whether the tenant is charged for the block as a held one.
  bool Holds(uint32_t id, TenantId tenant) const;
  // Primary slots that the tenant may hold in addition, if it gives up its cached blocks.
  uint32_t Left(TenantId tenant) const;

  // Stops the run if a tenant has more than its quota, or if `told` (CacheLists::TenantUses)
  // differs.
  void Check(const std::vector<TenantUsage>& told) const;

 private:
  struct Account {
    uint32_t charged = 0;
    uint32_t held = 0;
  };
  Account& At(Tier tier, TenantId tenant) { return accounts_[tier.value()][tenant.value()]; }
  const Account& At(Tier tier, TenantId tenant) const {
    return accounts_[tier.value()][tenant.value()];
  }

  const SimConfig* const config_;
  const uint32_t window_index_;
  std::vector<uint8_t> holders_;  // By block id: a bit for each tenant that holds it.
  std::vector<uint8_t> owners_;   // By block id: the tenant for which it is cached; kNobody.
  std::array<std::array<Account, kMaxTenantsInSim>, kMaxTiers> accounts_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_ACCOUNTANT_H_
