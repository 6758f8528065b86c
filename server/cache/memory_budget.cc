#include "server/cache/memory_budget.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/byte_size.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

std::string NameOf(Medium medium) { return std::string(MediumName(medium)); }

}  // namespace

MemoryBudget::MemoryBudget(const Config& config, const TenantTable& tenants) {
  total_[Medium::kGpu] = config.memory.gpu;
  total_[Medium::kHost] = config.memory.host;
  total_[Medium::kDisk] = config.memory.disk.size;
  for (const Config::Tenant& tenant : config.tenants) {
    const absl::StatusOr<TenantId> id = tenants.Find(tenant.name);
    PAGODA_CHECK(id.ok(), "the table has every tenant of the configuration");
    MemoryBytes& limit = limits_[*id];
    limit[Medium::kGpu] = tenant.cache_memory.gpu;
    limit[Medium::kHost] = tenant.cache_memory.host;
    limit[Medium::kDisk] = tenant.cache_memory.disk;
  }
}

uint64_t MemoryBudget::free(Medium medium) const {
  absl::MutexLock lock(&mutex_);
  return total_[medium] - taken_[medium];
}

uint64_t MemoryBudget::FreeFor(TenantId tenant, Medium medium) const {
  absl::MutexLock lock(&mutex_);
  return FreeForLocked(tenant, medium);
}

uint64_t MemoryBudget::FreeForLocked(TenantId tenant, Medium medium) const {
  const uint64_t free = total_[medium] - taken_[medium];
  const auto limit = limits_.find(tenant);
  if (limit == limits_.end() || limit->second[medium] == 0) return free;
  const auto taken = taken_by_.find(tenant);
  const uint64_t has = taken == taken_by_.end() ? 0 : taken->second[medium];
  return std::min(free, limit->second[medium] - has);
}

absl::Status MemoryBudget::Take(TenantId tenant, const MemoryBytes& wanted) {
  absl::MutexLock lock(&mutex_);
  for (const Medium medium : kAllMedia) {
    const uint64_t free = FreeForLocked(tenant, medium);
    if (wanted[medium] <= free) continue;
    if (total_[medium] == 0) {
      return MakeError(Reason::kOutOfMemory,
                       absl::StrCat("the daemon gives clients' caches no ", NameOf(medium),
                                    " memory (memory.", NameOf(medium), ")"));
    }
    const bool is_own_limit = free < total_[medium] - taken_[medium];
    return MakeError(
        Reason::kOutOfMemory,
        absl::StrCat("the cache needs ", ByteSizeText(wanted[medium]), " of ", NameOf(medium),
                     " memory; ", ByteSizeText(free), is_own_limit ? " of the tenant's limit" : "",
                     " are free of ", ByteSizeText(total_[medium])));
  }
  for (const Medium medium : kAllMedia) {
    taken_[medium] += wanted[medium];
    taken_by_[tenant][medium] += wanted[medium];
  }
  return absl::OkStatus();
}

void MemoryBudget::GiveBack(TenantId tenant, const MemoryBytes& bytes) {
  absl::MutexLock lock(&mutex_);
  MemoryBytes& has = taken_by_[tenant];
  for (const Medium medium : kAllMedia) {
    PAGODA_CHECK(has[medium] >= bytes[medium], "a tenant gives back at most what it has taken");
    has[medium] -= bytes[medium];
    taken_[medium] -= bytes[medium];
  }
}

}  // namespace pagoda::server
