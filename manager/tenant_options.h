// A tenant's limits and rights, as the operator sets them.
#ifndef PAGODA_MANAGER_TENANT_OPTIONS_H_
#define PAGODA_MANAGER_TENANT_OPTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "pools/types.h"

namespace pagoda {

inline constexpr uint32_t kNoQuota = 0xFFFF'FFFF;
// What the default tenant are called beside tenants. No tenant may be called so.
inline constexpr char kDefaultTenantLabel[] = "(default tenant)";
// Room is made in time proportional to the tenants.
inline constexpr size_t kMaxTenants = 256;

struct TenantOptions {
  std::string name;  // 1 to kMaxTenantBytes bytes.
  // What it publishes is the default tenant's, and it matches what is there; else it has a
  // namespace of its own, which nobody else sees.
  bool shares = false;
  // Its weight where blocks are scarce: of those who have cached blocks, the one with the most
  // blocks for its weight gives one up.
  uint32_t share = 1;
  // The most blocks it may have in each window, by tier: those that it holds, whose ever they are,
  // and those of its namespaces that are cached and held by nobody.
  std::array<uint32_t, kMaxTiers> quota_blocks = {kNoQuota, kNoQuota, kNoQuota, kNoQuota};
  // The most sequences it may have, and the most bytes these may keep beside their blocks, where
  // that is less than SequenceAccounts allows.
  uint32_t max_sequences = std::numeric_limits<uint32_t>::max();
  uint64_t max_sequence_bytes = std::numeric_limits<uint64_t>::max();
  // The highest priority that its requests to the bundled engine may have: the daemon's doors look.
  int32_t max_priority = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TENANT_OPTIONS_H_
