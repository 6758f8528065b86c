#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_PRODUCTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_PRODUCTS_H_

#include <vector>

#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

// Products of few rows, with the norm before them and the addition or gate behind them: by one
// kernel, and by the library and the small layers. Both are timed with a layer of the model. An
// engine that multiplies in fp32 has no such products.
std::vector<SelfTestItem> FusedProductItems(const GpuSelfTestRequest& request,
                                            DeviceProducts& products, const TestedKernels& kernels);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_PRODUCTS_H_
