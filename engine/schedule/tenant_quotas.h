// The number of blocks that the cache lets each tenant hold.
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
#include "base/stopwatch.h"
#include "engine/request/generate.h"
#include "manager/api/operation.h"

namespace pagoda {

// Keyed by GenerateRequest::charged(), the tenant that pays for the blocks, not by the tenant that
// asks. A cache's quotas never change. Thread-compatible.
class TenantQuotas {
 public:
  // Whether the quota has been learnt and not forgotten since.
  bool Knows(const std::string& tenant) const;
  void Learn(const std::string& tenant, absl::Span<const WindowCapacity> windows);
  // INVALID_COUNT if the tenant's known quota can never hold one of the request's sequences.
  absl::Status Check(const GenerateRequest& request, uint32_t tokens_per_block) const;

  // The tenant's quota had no space for a waiting sample. The tenant's samples are passed over
  // until it releases blocks, or for `pause`, because other clients of the tenant can release some.
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
    std::vector<Quota> quotas;        // The quotas of the windows that have one.
    std::optional<SteadyTime> asked;  // When it was full; unset once something has changed.
  };

  std::map<std::string, Tenant> tenants_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_TENANT_QUOTAS_H_
