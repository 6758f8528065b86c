#ifndef PAGODA_ENGINE_MODEL_KV_POOLS_H_
#define PAGODA_ENGINE_MODEL_KV_POOLS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "kernels/types.h"
#include "manager/cache_client.h"
#include "pools/pool.h"

namespace pagoda {

// The client's primary pools, mapped, as the kernels want to see them. Movable.
class KvPools {
 public:
  // Errors: INVALID_ARGUMENT where they do not hold every layer of the model with full attention
  // and the model's shape; those of CacheClient::MapPools.
  static absl::StatusOr<KvPools> Map(CacheClient& client, const ModelConfig& config);

  // K and V of each layer of the model, in its order; valid as long as this lives.
  absl::Span<const kernels::KvLayer> layers() const { return layers_; }

 private:
  KvPools() = default;

  std::vector<std::unique_ptr<MappedPool>> pools_;
  std::vector<kernels::KvLayer> layers_;  // Into pools_.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_KV_POOLS_H_
