// Tries a store out: its servers, and what they do with values.
#ifndef PAGODA_CLIENTS_PAGODACTL_STORE_STORE_CHECK_H_
#define PAGODA_CLIENTS_PAGODACTL_STORE_STORE_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_options.h"

namespace pagoda {

enum class ClusterCheck { kAny, kMustBeCluster };

struct StoreCheckOptions {
  // Its key prefix is completed by "check:", so that no value of a daemon is touched.
  RedisOptions redis;
  ClusterCheck cluster = ClusterCheck::kAny;
  absl::Duration timeout = absl::Seconds(10);  // The limit for each step.
  // The values vanish after this time. The check waits for it.
  absl::Duration time_to_live = absl::Seconds(2);
};

struct StoreCheckStep {
  std::string name;     // "connect 127.0.0.1:6379", "write", ...
  absl::Status status;  // Why it failed.
  std::string detail;   // What was found; empty: nothing to tell.
};

// A server of the store.
struct StoreCheckNode {
  RedisAddress address;
  bool is_replica = false;
  uint32_t slots = 0;  // Hash slots of a cluster's primary.
  absl::Status status;
  absl::Duration round_trip;  // The median of some PINGs.
};

struct StoreCheckResult {
  std::vector<StoreCheckStep> steps;
  std::vector<StoreCheckNode> nodes;
  double write_bytes_per_second = 0;  // The rate for values of 1 MiB; 0: not measured.
  double read_bytes_per_second = 0;
  size_t failed_steps() const;
};

// Runs all steps that the failed ones leave possible, and reports each as it ends. Writes some ten
// MiB. Blocks for some seconds, or up to the timeout of each step.
StoreCheckResult CheckStore(const StoreCheckOptions& options,
                            const std::function<void(const StoreCheckStep&)>& on_step);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_STORE_STORE_CHECK_H_
