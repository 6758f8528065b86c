// The pins of a cache: which exist, when each one ends, and how many each tenant has.
#ifndef PAGODA_MANAGER_SEQUENCES_PIN_TABLE_H_
#define PAGODA_MANAGER_SEQUENCES_PIN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "events/event.h"
#include "events/tenant_id.h"
#include "manager/accounts/tenants.h"
#include "manager/api/operation.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

struct PinEntry {
  PinInfo info;
  TenantId tenant;                           // The tenant of the session that made it.
  TenantId holder;                           // The tenant that is charged for the blocks.
  std::vector<std::vector<BlockId>> blocks;  // By window.

  uint64_t references() const { return info.blocks; }
};

// Thread-compatible.
//
// Invariants
// 1. There are at most kMaxPins pins. Together they name at most max_references() blocks; a block
// counts once for each pin that names it. A tenant has at most its share of both, by its weight
// among all. Sessions of the default tenant are trusted, so it can have all.
// 2. An expired pin is found without a look at any other pin.
class PinTable {
 public:
  static constexpr size_t kMaxPins = 65'536;
  static constexpr uint64_t kMaxReferences = uint64_t{4} << 20;

  // `tenants` outlives the table. `budget_blocks`: the most blocks that can be pinned at once.
  PinTable(const TenantTable* tenants, uint64_t budget_blocks);

  bool empty() const { return pins_.empty(); }
  size_t size() const { return pins_.size(); }
  uint64_t max_references() const { return max_references_; }
  // Ascending by id.
  auto begin() const { return pins_.begin(); }
  auto end() const { return pins_.end(); }
  // The last pin that was made; 0: none.
  PinId last() const { return last_; }
  const PinEntry* Find(PinId pin) const;

  // Whether the tenant can have one more pin, with this many blocks. Errors: PIN_BUDGET_EXCEEDED.
  absl::Status CheckCapacity(TenantId tenant, uint64_t blocks) const;
  // Gives the pin an id and keeps it. Cost: O(log pins).
  PinId Add(PinEntry entry);
  // Forgets the pin and returns it. REQUIRES: it exists. Cost: O(log pins).
  PinEntry Take(PinId pin);

  // The pin whose lease ended first, if it is over at `now`. Cost: O(1).
  std::optional<PinId> FirstExpired(absl::Time now) const;
  // When the next lease ends; InfiniteFuture if no pin has a lease.
  absl::Time next_deadline() const;

 private:
  struct Account {
    uint64_t pins = 0;
    uint64_t references = 0;
  };

  const TenantTable* const tenants_;
  const uint64_t max_references_;
  std::map<PinId, PinEntry> pins_;
  absl::btree_set<std::pair<absl::Time, PinId>> deadlines_;  // Ends of the pins' leases.
  std::vector<Account> accounts_;                            // By TenantId.
  uint64_t references_ = 0;
  PinId last_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_PIN_TABLE_H_
