#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_FUSED_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_FUSED_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// Fused kernels, and small layers that leave rows of 16 bits. An engine does not need them.
std::vector<SelfTestItem> FusedItems(const GpuSelfTestRequest& request,
                                     const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_FUSED_H_
