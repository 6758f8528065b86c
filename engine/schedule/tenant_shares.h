// The service that each tenant has had from the engine.
#ifndef PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_
#define PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_

#include <cstdint>
#include <map>
#include <string>

namespace pagoda {

// Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024).
// The tenant with the least service is next. A tenant that arrives starts at the least service
// among the active tenants, so that it saves nothing up while it is idle. Thread-compatible.
class TenantShares {
 public:
  // A request of the tenant can be admitted from now on; one ended.
  void Enter(const std::string& tenant);
  void Leave(const std::string& tenant);
  // The engine spent `cost` on the tenant.
  void Charge(const std::string& tenant, uint64_t cost);
  bool empty() const { return requests_ == 0; }
  // REQUIRES: the tenant has a request.
  uint64_t service(const std::string& tenant) const { return tenants_.at(tenant).service; }

 private:
  struct Tenant {
    uint64_t service = 0;
    uint64_t requests = 0;
  };
  // The least service among the tenants with requests; 0 if there are none.
  uint64_t LeastService() const;

  // Tenants without requests are forgotten when there are many, and all when the last request ends.
  std::map<std::string, Tenant> tenants_;
  uint64_t requests_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_TENANT_SHARES_H_
