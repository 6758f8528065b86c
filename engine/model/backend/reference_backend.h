// The yardstick of the other backends: every operation as one plain loop.
#ifndef PAGODA_ENGINE_MODEL_BACKEND_REFERENCE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_BACKEND_REFERENCE_BACKEND_H_

#include <memory>

#include "engine/model/backend/backend.h"

namespace pagoda {

// Computes on the caller's thread, without vector instructions, oneDNN or the kernels of
// kernels/cpu. Sums, norms, angles and attention are fp64; each operation rounds its result to
// fp32. Attention is kernels::reference::PagedAttention. Weights are expanded to fp32: 4 bytes per
// number. Over pools in host memory only. Slow: about a second per token and billion weights.
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_REFERENCE_BACKEND_H_
