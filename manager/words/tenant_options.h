// A tenant's limits and rights, as the operator sets them.
#ifndef PAGODA_MANAGER_WORDS_TENANT_OPTIONS_H_
#define PAGODA_MANAGER_WORDS_TENANT_OPTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "pools/types.h"

namespace pagoda {

inline constexpr uint32_t kNoQuota = 0xFFFF'FFFF;
// The label of the default tenant in lists of tenants. No tenant may have this name.
inline constexpr char kDefaultTenantLabel[] = "(default tenant)";
// Every eviction takes a step for each tenant.
inline constexpr size_t kMaxTenants = 256;

struct TenantOptions {
  std::string name;  // 1 to kMaxTenantBytes bytes.
  // If true, the tenant publishes into the default tenant's namespace and matches what is cached
  // there. If false, it has its own namespace, which no other tenant sees.
  bool shares = false;
  // Its weight when blocks are scarce: of the tenants with evictable blocks, the one with the most
  // blocks for its weight gives one up.
  uint32_t share = 1;
  // The most blocks it may have in each window, by tier. These are the blocks that it holds,
  // whoever owns them, and the cached blocks of its namespaces that nothing holds.
  std::array<uint32_t, kMaxTiers> quota_blocks = {kNoQuota, kNoQuota, kNoQuota, kNoQuota};
  // The most sequences it may have, and the most bytes that these may keep beside their blocks.
  // They apply only below what SequenceAccounts allows.
  uint32_t max_sequences = std::numeric_limits<uint32_t>::max();
  uint64_t max_sequence_bytes = std::numeric_limits<uint64_t>::max();
  // The highest priority that its requests to the bundled engine may have. The daemon's APIs check
  // it.
  int32_t max_priority = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_TENANT_OPTIONS_H_
