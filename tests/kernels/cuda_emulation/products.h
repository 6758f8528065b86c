// Products of warpgroups (wgmma), which run in the background. Each warp has 16 rows of a product,
// and starts and ends it independently. It is checked that the four warps of a warpgroup start the
// same products.
//
// While a product is in flight, its sums are NaN and its matrices in shared memory must not be
// written. It reads and adds when a thread waits for it, which is the last moment that hardware
// allows.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_PRODUCTS_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_PRODUCTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/kernels/cuda_emulation/ordering.h"
#include "tests/kernels/cuda_emulation/shared_memory.h"

namespace pagoda::kernels::cuda::emulation {

// A product that a warp starts.
struct Product {
  float (*to_float)(uint16_t bits);  // Converts an element of either matrix.
  uint32_t columns;                  // Columns of the result: 8 to 256.
  bool add;
  bool left_in_registers;
  uint64_t left;
  uint64_t right;
  bool right_transposed;                  // Its columns are contiguous, not its rows along the sum.
  float* sums[kWarpLanes];                // By lane: [columns / 8][4].
  const uint32_t* registers[kWarpLanes];  // The left matrix, by lane: [4].
};

class Products {
 public:
  using Reporter = SharedMemory::Reporter;
  Products(uint32_t warps, SharedMemory& shared, const Ordering& ordering, Reporter report)
      : warps_(warps),
        started_((warps + 3) / 4),
        shared_(shared),
        ordering_(ordering),
        report_(std::move(report)) {}

  void Fence(uint32_t warp) { warps_[warp].fenced = true; }
  void Start(uint32_t warp, const Product& product);
  void Commit(uint32_t warp);
  void Wait(uint32_t warp, uint32_t pending);
  // At a block's end.
  void CheckNoneLeft();

  // The number of products that all warps of this thread's blocks have started.
  static uint64_t& count();

 private:
  struct Started {
    Product product;
    uint32_t registers[kWarpLanes][4];  // Their values at the start.
    std::vector<uint32_t> left_chunks;  // The addresses of the 16-byte chunks that it reads.
    std::vector<uint32_t> right_chunks;
  };
  // The sums while products add to them, by the first lane's address.
  struct Sums {
    uint32_t under_way = 0;
    std::vector<float> values[kWarpLanes];
  };
  struct Warp {
    bool fenced = false;
    uint64_t count = 0;
    std::vector<Started> open;
    std::deque<std::vector<Started>> groups;
    std::map<float*, Sums> sums;
  };

  void Finish(uint32_t warp, Started& started);

  std::vector<Warp> warps_;
  std::vector<std::vector<Product>> started_;  // By warpgroup, so that its warps can be compared.
  SharedMemory& shared_;
  const Ordering& ordering_;
  Reporter report_;
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_PRODUCTS_H_
