#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_LAYERS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_LAYERS_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// ProductItems tests `products`, which outlives the items. LayerItems tests the small layers.
std::vector<SelfTestItem> ProductItems(const GpuSelfTestRequest& request, DeviceProducts& products);
std::vector<SelfTestItem> LayerItems(const GpuSelfTestRequest& request,
                                     const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_LAYERS_H_
