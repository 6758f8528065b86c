// How much of the engine each tenant has had.
#ifndef PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_
#define PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_

#include <cstdint>
#include <map>
#include <string>

namespace pagoda {

// Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024):
// the tenant with the least service is next; one that comes anew starts where the least served of
// those that are here stands, so that it does not save up while it asks for nothing.
// Thread-compatible.
class TenantShares {
 public:
  // A request of the tenant came, and one has ended.
  void Enter(const std::string& tenant);
  void Leave(const std::string& tenant);
  // The engine did `cost` for the tenant.
  void Charge(const std::string& tenant, uint64_t cost);
  // REQUIRES: a request of the tenant is here.
  uint64_t service(const std::string& tenant) const { return tenants_.at(tenant).service; }

 private:
  struct Tenant {
    uint64_t service = 0;
    uint64_t requests = 0;
  };
  // Of those that are here; 0 where nobody is.
  uint64_t LeastService() const;

  // Those that are gone are forgotten when there are many, and all when the last one goes.
  std::map<std::string, Tenant> tenants_;
  uint64_t requests_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_
