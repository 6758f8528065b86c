// What a router has to know about the cache of a node.
#ifndef PAGODA_CLIENTS_ROUTER_SERVED_CACHE_H_
#define PAGODA_CLIENTS_ROUTER_SERVED_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pagoda/v1/caches.pb.h"
#include "pools/types.h"

namespace pagoda {

struct ServedCache {
  std::string name;
  std::string model_fingerprint;
  uint64_t epoch = 0;
  uint32_t tokens_per_block = 0;
  // The largest one, whose blocks the router follows. On the wire: 0 is full attention.
  uint32_t window_size = 0;
  struct TierInfo {
    std::string name;
    Medium medium = Medium::kHost;
  };
  std::vector<TierInfo> tiers;  // Nearest first.
  // The KV bytes of one token over all layers, in the layers' own element types. In a sliding
  // window old tokens are released, so a long prefix of such a cache takes less.
  double bytes_per_token = 0;
};

// The cache of this name in a daemon's answer; "": the only one. Errors: UNKNOWN_CACHE,
// CACHE_NOT_NAMED (there are several); INVALID_ARGUMENT for an answer that makes no sense.
absl::StatusOr<ServedCache> ServedCacheFrom(const v1::ListCachesResponse& answer,
                                            const std::string& name);

// An error unless blocks of the two caches have the same hashes and the same bytes: both have the
// same model and tokens_per_block. Reason: MODEL_MISMATCH or INVALID_ARGUMENT.
absl::Status CheckSameContent(const ServedCache& first, const ServedCache& other);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_SERVED_CACHE_H_
