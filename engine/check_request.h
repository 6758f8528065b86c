#ifndef PAGODA_ENGINE_CHECK_REQUEST_H_
#define PAGODA_ENGINE_CHECK_REQUEST_H_

#include "absl/status/status.h"
#include "engine/checkpoint/model_config.h"
#include "engine/generate.h"
#include "manager/cache_client.h"

namespace pagoda {

// Checks that the model and the cache can answer the request; errors as for Engine::Check.
absl::Status CheckRequest(const GenerateRequest& request, const ModelConfig& model,
                          const CacheInfo& cache);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECK_REQUEST_H_
