// The memory that the configuration gives to clients' caches, and the tenants' shares of it.
#ifndef PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_
#define PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "manager/accounts/tenants.h"
#include "pools/types.h"
#include "server/config/config.h"

namespace pagoda::server {

// Bytes of each medium.
struct MemoryBytes {
  std::array<uint64_t, kAllMedia.size()> bytes = {};

  uint64_t& operator[](Medium medium) { return bytes[static_cast<size_t>(medium)]; }
  uint64_t operator[](Medium medium) const { return bytes[static_cast<size_t>(medium)]; }
};

// Counts bytes; allocates no memory. Thread-safe.
//
// Invariant: for each medium, the bytes taken by all tenants are at most its total, and the bytes
// taken by a tenant are at most that tenant's limit.
class MemoryBudget {
 public:
  // Reads `memory` and the tenants' `cache_memory` in the configuration.
  MemoryBudget(const Config& config, const TenantTable& tenants);

  uint64_t total(Medium medium) const { return total_[medium]; }
  // The bytes that no cache has taken.
  uint64_t free(Medium medium) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The free bytes that the tenant may take.
  uint64_t FreeFor(TenantId tenant, Medium medium) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes all of it or nothing. Errors: OUT_OF_MEMORY, with the wanted bytes, the free bytes, and
  // whether the tenant's limit or the total is the bound.
  absl::Status Take(TenantId tenant, const MemoryBytes& wanted) ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: the tenant has taken that much.
  void GiveBack(TenantId tenant, const MemoryBytes& bytes) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  uint64_t FreeForLocked(TenantId tenant, Medium medium) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MemoryBytes total_;
  std::map<TenantId, MemoryBytes> limits_;  // 0: no limit. A tenant without an entry has none.
  mutable absl::Mutex mutex_;
  MemoryBytes taken_ ABSL_GUARDED_BY(mutex_);
  std::map<TenantId, MemoryBytes> taken_by_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_
