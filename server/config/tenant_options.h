// The tenants of a configuration, as the core has them.
#ifndef PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_
#define PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_

#include <string>
#include <vector>

#include "manager/tenants.h"
#include "server/config/config.h"

namespace pagoda::server {

// Where the configuration says 0, there is no limit.
std::vector<TenantOptions> TenantsOf(const Config& config);
// The names of all tenants by id, the default tenant's among them: what the engine knows them by.
std::vector<std::string> NamesOf(const TenantTable& tenants);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_TENANT_OPTIONS_H_
