// Products of few rows, as steps of decode have them, with the operations before and behind them:
// the norm of the input, and the addition to the residual stream, the gate or the activation. Such
// a product takes as long as its weights come from memory.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_PRODUCTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_PRODUCTS_H_

#include <cstdint>

#include "engine/model/backend/product_end.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// Up to so many rows, a further one costs no load of weights and no product: a product of tensor
// cores has 16 rows, and each lane has elements of two of them. Here a lane has one row, which
// leaves its registers for more weights in flight. More rows are bound by arithmetic sooner, and
// cuBLASLt is better at that.
inline constexpr uint64_t kMostFusedRows = 8;

struct FusedProductArgs {
  kernels::ElementType type = kernels::ElementType::kBFloat16;  // The factors' type: fp16 or bf16.
  const void* weights = nullptr;                                // [outputs][inputs]
  const float* bias = nullptr;                                  // [outputs], or null.
  uint64_t inputs = 0;
  uint64_t outputs = 0;
  // The type is fp32, and the numbers are rounded to `type` after the norm. Without a norm the type
  // can also be `type`.
  RowsView input;
  const float* norm = nullptr;       // [inputs]; null: none.
  const float* norm_bias = nullptr;  // [inputs]: LayerNorm; null: RMSNorm.
  float eps = 0.0f;
  ProductEnd end = ProductEnd::kStore;
  GateArgs gate;    // Only for kGate. kActivate is kGeluTanh.
  RowsView output;  // The type is fp32; with kGate and kActivate any. Overlaps nothing else.
};

// Whether LaunchFusedProduct takes it: its number of rows, types, alignments of 16 bytes, a number
// of inputs that is a multiple of 8, and shared memory for the rounded input.
bool CanLaunchFusedProduct(const FusedProductArgs& args);

// Sums are fp32. Their order, and so a row's bits, depend on the product's shape only.
// REQUIRES: CanLaunchFusedProduct.
int LaunchFusedProduct(const FusedProductArgs& args, uint32_t num_multiprocessors, Stream stream);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_PRODUCTS_H_
