// What the cache lets each tenant hold.
#ifndef PAGODA_ENGINE_SCHEDULE_TENANT_QUOTAS_H_
#define PAGODA_ENGINE_SCHEDULE_TENANT_QUOTAS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/generate.h"
#include "engine/schedule/stopwatch.h"
#include "manager/operation.h"

namespace pagoda {

// By the tenants whose blocks are counted, GenerateRequest::charged(): not by its `tenant`, which
// is who asks. Quotas stay as they are as long as a cache does. Thread-compatible.
class TenantQuotas {
 public:
  // Whether it has been learnt, and not forgotten since.
  bool Knows(const std::string& tenant) const;
  void Learn(const std::string& tenant, absl::Span<const WindowCapacity> windows);
  // INVALID_COUNT where the tenant, as far as it is known, can never hold one of the
  // request's sequences.
  absl::Status Check(const GenerateRequest& request, uint32_t tokens_per_block) const;

  // The tenant had no room for one that waits. Those who wait for it are passed over until it gives
  // blocks back, or for `pause`, in which other clients of its may.
  void NoteFull(const std::string& tenant);
  void NoteChange(const std::string& tenant);
  bool IsFull(const std::string& tenant, absl::Duration pause) const;

  // Another cache.
  void Forget() { tenants_.clear(); }

 private:
  struct Tenant {
    struct Quota {
      WindowSize window;
      uint32_t blocks;
    };
    bool known = false;
    std::vector<Quota> quotas;        // Of the windows that have one.
    std::optional<SteadyTime> asked;  // When it was full, unless something has changed since.
  };

  std::map<std::string, Tenant> tenants_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_TENANT_QUOTAS_H_
