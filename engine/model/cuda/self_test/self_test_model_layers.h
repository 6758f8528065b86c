#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_MODEL_LAYERS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_MODEL_LAYERS_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// The small layers that depend on the model: its rotations, and layers of some architectures only.
// A part that the model does not need is left out.
std::vector<SelfTestItem> ModelLayerItems(const GpuSelfTestRequest& request,
                                          const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_MODEL_LAYERS_H_
