#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ITEM_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ITEM_H_

#include <functional>
#include <string>

#include "engine/model/cuda/self_test/self_test.h"
#include "engine/model/cuda/self_test/self_test_bed.h"

namespace pagoda::cuda {

struct Measured {
  double error = 0;
  double seconds = 0;  // 0: not timed.
};

// One family of one part. `test` leaves a failure in the bed, and its result is then ignored. It is
// called once, while the request and the kernels exist.
struct SelfTestItem {
  std::string part;
  std::string family;
  bool needed = true;
  double tolerance = 0;
  std::function<Measured(TestBed& bed)> test;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ITEM_H_
