#ifndef PAGODA_ENGINE_CHECK_REQUEST_H_
#define PAGODA_ENGINE_CHECK_REQUEST_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/request/generate.h"
#include "engine/request/named_adapters.h"
#include "manager/api/cache_client.h"

namespace pagoda {

// The most stop tokens of a request, those that a caller adds for the model included.
inline constexpr size_t kMaxStopTokens = 1 << 18;

// Checks that the model and the cache can answer the request, with `max_running_sequences` at once;
// errors as for Engine::Check.
absl::Status CheckRequest(const GenerateRequest& request, const ModelConfig& model,
                          const NamedAdapters& adapters, const CacheInfo& cache,
                          uint32_t max_running_sequences);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECK_REQUEST_H_
