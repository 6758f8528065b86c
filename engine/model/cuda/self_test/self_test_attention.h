#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ATTENTION_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ATTENTION_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// The families of attention's two parts.
std::vector<SelfTestItem> AttentionItems(const GpuSelfTestRequest& request,
                                         const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ATTENTION_H_
