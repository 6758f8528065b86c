#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_DRAWS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_DRAWS_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// The choice of tokens. An engine does not need it.
std::vector<SelfTestItem> DrawItems(const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_DRAWS_H_
