// What a seed decides before the first operation.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_CONFIG_H_
#define PAGODA_TESTS_SIM_EXCHANGE_CONFIG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "manager/accounts/tenants.h"
#include "manager/exchange/block_exchange.h"

namespace pagoda::exchange_sim {

inline constexpr size_t kCaches = 2;

struct CacheConfig {
  uint32_t blocks = 0;
  uint32_t host_blocks = 0;  // 0: no second tier.
  std::string model;
  uint32_t copy_failure_percent = 0;
  absl::Duration longest_copy;
  BlockExchange::Options exchange;
};

// Chances are in a thousand: of a key, or of a batch.
struct StoreConfig {
  absl::Duration quickest;
  absl::Duration slowest;
  absl::Duration lag;      // The longest time between an end and its report.
  uint32_t miss = 0;       // A key is not found, although it is there.
  uint32_t fail = 0;       // A key is refused, unreachable or overloaded, or gets no answer.
  uint32_t fail_all = 0;   // All keys of a batch fail.
  uint32_t overload = 0;   // A batch is refused within the call.
  uint32_t lost = 0;       // A written value is acknowledged, and not kept.
  uint32_t damaged = 0;    // A written value is kept with a wrong byte.
  size_t most_values = 0;  // Above it, values are evicted.
  std::string secret;      // The secret of the authentication codes; may be empty.
};

// The kinds of operations.
enum class Kind : uint8_t {
  kAdd,
  kProgress,
  kAppend,
  kFork,
  kFree,
  kPin,
  kUnpin,
  kOffload,
  kPrefetch,
  kInvalidate,
  kReset,
  kFetch,
  kFetchTwice,  // The same prompt, or the same beginning, at once.
  kPublish,
  kHarm,   // A value in the store is damaged, swapped, truncated, foreign, forged or gone.
  kStall,  // The store answers nothing for a time.
  kStop,   // An exchange is stopped, and later another one is made.
  kCount,
};
inline constexpr size_t kKinds = static_cast<size_t>(Kind::kCount);

struct SimConfig {
  uint64_t seed = 0;
  uint32_t tokens_per_block = 1;
  std::vector<NamespaceKey> name_spaces;
  std::vector<TenantOptions> tenants;
  std::array<CacheConfig, kCaches> caches;
  StoreConfig store;
  uint32_t alphabet = 2;
  uint32_t longest_prompt = 0;  // Blocks.
  bool extras = false;
  absl::Duration longest_pause;  // Between two operations.
  std::array<uint32_t, kKinds> weights = {};

  std::string ToString() const;
};

SimConfig DrawConfig(uint64_t seed);

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_CONFIG_H_
