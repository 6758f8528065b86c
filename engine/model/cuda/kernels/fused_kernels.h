// The kernels that do the work of several (fused kernels). Each computes what the kernels of
// row_kernels.h compute one after the other, with sums in another order. Their launches are like
// those of row_kernels.h.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_KERNELS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_KERNELS_H_

#include <cstdint>

#include "engine/model/backend/rows_view.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// sum += addend, which is first normed by RMSNorm if addend_norm is set. Then output = RMSNorm of
// the sum. All have the same rows and columns. `output` overlaps nothing and has any type of rows.
struct AddNormArgs {
  const float* addend_norm = nullptr;  // [cols], or null.
  float addend_eps = 0.0f;
  const float* norm = nullptr;  // [cols]
  float eps = 0.0f;
  RowsView addend;
  RowsView sum;
  RowsView output;
};
int LaunchAddNorm(const AddNormArgs& args, Stream stream);

// The heads of a layer on their way to attention: queries and keys are normed and rotated. Then the
// queries are written to `placed`, and keys and values into the pool, all in the pool's type. Rows
// whose token slot is negative or outside the pool are left out of it. REQUIRES: a pool of fp32,
// fp16 or bf16 with K and V of head_dim elements; `placed` has its type, and can be `queries` if
// that is fp32. Without a pool (kv.keys is null) the keys stay in their rows, and the values are
// not touched; `placed` is then of any type.
struct PlaceHeadsArgs {
  HeadRotation rotation;              // The rotation of all heads.
  AnglesView angles;                  // half_dim 0: nothing is rotated.
  const float* query_norm = nullptr;  // [head_dim], or null.
  const float* key_norm = nullptr;    // [head_dim], or null.
  float eps = 0.0f;
  RowsView queries;                      // [N][num_heads][head_dim]
  RowsView keys;                         // [N][num_kv_heads][head_dim]
  RowsView values;                       // [N][num_kv_heads][head_dim]
  RowsView placed;                       // [N][num_heads][head_dim]
  const int64_t* token_slots = nullptr;  // [N], as in CacheWriteParams.
  kernels::KvLayer kv;
};
int LaunchPlaceHeads(const PlaceHeadsArgs& args, Stream stream);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_FUSED_KERNELS_H_
