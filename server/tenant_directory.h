// The tenants of the configuration, by id and name.
#ifndef PAGODA_SERVER_TENANT_DIRECTORY_H_
#define PAGODA_SERVER_TENANT_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "events/tenant_id.h"
#include "server/config.h"

namespace pagoda::server {

// Does not change, so it is thread-safe.
class TenantDirectory {
 public:
  // A tenant's id is its place in the list, counted from 1.
  explicit TenantDirectory(const std::vector<Config::Tenant>& tenants);

  // kCommons has an empty name, and shares. REQUIRES: `id` is one of these.
  const Config::Tenant& operator[](TenantId id) const { return tenants_[id.value()]; }
  // Errors: UNKNOWN_TENANT.
  absl::StatusOr<TenantId> Find(const std::string& name) const;

  // The namespace that a tenant means: its own, or the commons' where it shares. The commons' own
  // callers, which are operators, mean what they say. Errors: PERMISSION_DENIED (another tenant's).
  absl::StatusOr<NamespaceKey> Confine(TenantId tenant, const NamespaceKey& asked) const;
  // Whether a tenant may see what is `owner`'s.
  bool MaySee(TenantId tenant, TenantId owner) const {
    return tenant == owner || tenant == kCommons || (owner == kCommons && (*this)[tenant].shares);
  }

 private:
  std::vector<Config::Tenant> tenants_;  // By id.
  absl::flat_hash_map<std::string, TenantId> ids_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TENANT_DIRECTORY_H_
