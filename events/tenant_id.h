#ifndef PAGODA_EVENTS_TENANT_ID_H_
#define PAGODA_EVENTS_TENANT_ID_H_

#include <cstdint>

#include "base/strong_id.h"

namespace pagoda {

// A tenant's place in the configuration, counted from 1.
using TenantId = StrongId<struct TenantIdTag, uint16_t>;
// The default tenant. It owns everything if no tenants are configured, and otherwise the blocks
// that tenants share.
inline constexpr TenantId kDefaultTenant{0};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_TENANT_ID_H_
