// The kernels of the small layers on a GPU, over rows of fp32 in device memory. All launches are
// asynchronous on a stream and allocate nothing. Each returns 0 or CUDA's error. A result's bits
// depend only on its own row: sums have a fixed order, whatever the grid.
//
// Rows are of fp32, except where a function says that they can be of any type: then also of fp16 or
// bf16, to which it rounds to nearest, ties to even. Each thread accesses 4 elements at a time in
// rows whose pointers and strides are multiples of 4 elements and whose number of columns is one.
// In other rows it accesses single elements.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_KERNELS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_KERNELS_H_

#include <cstdint>

#include "engine/model/backend/rows_view.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/types.h"

namespace pagoda::cuda {

using kernels::cuda::Stream;

// output[n] = scale * the row tokens[n] of the table [vocabulary][output.cols], of fp32, fp16 or
// bf16. REQUIRES: `table` is aligned to 16 bytes.
int LaunchEmbed(kernels::ElementType type, const void* table, const uint32_t* tokens, float scale,
                const RowsView& output, Stream stream);

// Divides each row by the root of its mean square (plus eps) and multiplies it by the weights
// [cols]. `output` is of any type, and can be `input` if it is fp32.
int LaunchRmsNorm(const float* weights, float eps, const RowsView& input, const RowsView& output,
                  Stream stream);

// Subtracts each row's mean, divides by the root of its variance (plus eps), multiplies by the
// weights [cols] and adds the bias [cols]. `output` is of any type, and can be `input` if it is
// fp32.
int LaunchLayerNorm(const float* weights, const float* bias, float eps, const RowsView& input,
                    const RowsView& output, Stream stream);

// cosines and sines [num_positions][half_dim] of position * frequency, times `factor`.
struct AnglesView {
  float* cosines = nullptr;
  float* sines = nullptr;
  uint32_t half_dim = 0;
};
int LaunchAngles(const int32_t* positions, uint64_t num_positions, const float* frequencies,
                 float factor, const AnglesView& angles, Stream stream);

// The heads of a row, and their elements that are rotated.
struct HeadRotation {
  uint32_t head_dim = 0;
  uint32_t first_element = 0;  // The first of each head's 2 * half_dim rotated elements.
  bool neighbours = false;     // Elements 2i and 2i + 1 are a pair; else i and i + half_dim.
};
// Rotates each head by the angles of its row. With `norm` ([head_dim], or null), the head is normed
// first. REQUIRES: heads.cols is a multiple of head_dim, which has the rotated elements.
int LaunchRotate(const HeadRotation& rotation, const AnglesView& angles, const float* norm,
                 float eps, const RowsView& heads, Stream stream);

// output = activation(gate) * up. The rows of gate_up have output.cols columns of gate, then those
// of up. kClampedSilu has `alpha` and `limit` (Backend::Gate). `output` is of any type.
enum class GateKind : uint8_t { kSilu, kGeluTanh, kClampedSilu };
struct GateArgs {
  GateKind kind = GateKind::kSilu;
  float alpha = 0.0f;
  float limit = 0.0f;
};
int LaunchGate(const GateArgs& gate, const RowsView& gate_up, const RowsView& output,
               Stream stream);

// rows = gelu's approximation by tanh, in place.
int LaunchGeluTanh(const RowsView& rows, Stream stream);

// sum[rows[i]] += factors[i] * addend[i] in the order of i. `first_of_row` and `next` make lists:
// the addends of row r of the sum are first_of_row[r], next[that], and so on, up to kNoAddend. All
// arrays are in device memory.
inline constexpr uint32_t kNoAddend = ~uint32_t{0};
struct AddendLists {
  const uint32_t* first_of_row = nullptr;  // [sum.rows]
  const uint32_t* next = nullptr;          // [addend.rows]
  const float* factors = nullptr;          // [addend.rows]
};
int LaunchAddRows(const AddendLists& lists, const RowsView& addend, const RowsView& sum,
                  Stream stream);

// output = 0.
int LaunchClear(const RowsView& output, Stream stream);

// Copies the first `count` elements of each of num_heads heads.
int LaunchCopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                    const HeadsView& output, Stream stream);

// sum += addend.
int LaunchAdd(const RowsView& addend, const RowsView& sum, Stream stream);

// Adds bias [cols] to each row.
int LaunchAddBias(const float* bias, const RowsView& rows, Stream stream);

// output[i] = the row indices[i] of `input`. The indices, in host memory, are read before the call
// returns. A launch takes kMostTakenRows of them. Both are of any type, but the same.
inline constexpr uint32_t kMostTakenRows = 512;
int LaunchTakeRows(const uint32_t* indices, const RowsView& input, const RowsView& output,
                   Stream stream);

// Replaces each element by cap * tanh(element / cap).
int LaunchSoftCap(float cap, const RowsView& rows, Stream stream);

// LaunchRound rounds to fp16 or bf16, [rows][cols] contiguous, to nearest, ties to even.
// LaunchWiden is the inverse, from rows of 16 bits; into rows of 16 bits it converts.
int LaunchRound(kernels::ElementType type, const RowsView& rows, void* rounded, Stream stream);
int LaunchWiden(const RowsView& rounded, const RowsView& rows, Stream stream);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_KERNELS_H_
