// The memory that the configuration gives for clients' caches, and who has how much of it.
#ifndef PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_
#define PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "manager/tenants.h"
#include "pools/types.h"
#include "server/config/config.h"

namespace pagoda::server {

inline constexpr std::array kMedia = {Medium::kGpu, Medium::kHost, Medium::kDisk};

// Bytes of each medium.
struct MemoryBytes {
  std::array<uint64_t, kMedia.size()> bytes = {};

  uint64_t& operator[](Medium medium) { return bytes[static_cast<size_t>(medium)]; }
  uint64_t operator[](Medium medium) const { return bytes[static_cast<size_t>(medium)]; }
};

// Counts only; nobody takes memory here. Thread-safe.
//
// Invariant: of each medium, what all have is at most its total, and what a tenant has is at most
// that tenant's limit.
class MemoryBudget {
 public:
  // Memory, and the tenants' `cache_memory`, as the configuration has them.
  MemoryBudget(const Config& config, const TenantTable& tenants);

  uint64_t total(Medium medium) const { return total_[medium]; }
  // What nobody has.
  uint64_t free(Medium medium) const ABSL_LOCKS_EXCLUDED(mutex_);
  // What of it the tenant may take.
  uint64_t FreeFor(TenantId tenant, Medium medium) const ABSL_LOCKS_EXCLUDED(mutex_);

  // All of it or nothing. Errors: OUT_OF_MEMORY, with what is wanted, what is free and whose limit
  // it is.
  absl::Status Take(TenantId tenant, const MemoryBytes& wanted) ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: the tenant has that much.
  void GiveBack(TenantId tenant, const MemoryBytes& bytes) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  uint64_t FreeForLocked(TenantId tenant, Medium medium) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MemoryBytes total_;
  std::map<TenantId, MemoryBytes> limits_;  // 0: no limit. Tenants without any are not here.
  mutable absl::Mutex mutex_;
  MemoryBytes taken_ ABSL_GUARDED_BY(mutex_);
  std::map<TenantId, MemoryBytes> taken_by_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_MEMORY_BUDGET_H_
