#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_GRAPHS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_GRAPHS_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// Captured launches, with a product among them. An engine does not need them.
std::vector<SelfTestItem> GraphItems(const GpuSelfTestRequest& request, DeviceProducts& products);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_GRAPHS_H_
