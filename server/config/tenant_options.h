// The tenants of a configuration in the form that the core takes.
#ifndef PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_
#define PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_

#include <vector>

#include "manager/accounts/tenants.h"
#include "server/config/config.h"

namespace pagoda::server {

// A 0 in the configuration becomes no limit.
std::vector<TenantOptions> TenantsOf(const Config& config);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_
