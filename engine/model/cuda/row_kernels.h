// The kernels of the small layers on a GPU, over rows of fp32 in device memory. All launches are
// asynchronous on a stream and allocate nothing; each returns 0, or CUDA's error. A result's bits
// depend on its own row alone: sums have a fixed order, whatever the grid.
//
// Rows whose pointers and strides are multiples of 16 bytes, and whose columns are a multiple of 4,
// are read and written by 16 bytes a thread; others by 4.
#ifndef PAGODA_ENGINE_MODEL_CUDA_ROW_KERNELS_H_
#define PAGODA_ENGINE_MODEL_CUDA_ROW_KERNELS_H_

#include <cstdint>

#include "engine/model/rows_view.h"
#include "kernels/cuda/stream.h"
#include "kernels/types.h"

namespace pagoda::cuda {

using kernels::cuda::Stream;

// output[n] = scale * the row tokens[n] of the table [vocabulary][output.cols], of fp32, fp16 or
// bf16. REQUIRES: `table` is aligned to 16 bytes.
int LaunchEmbed(kernels::ElementType type, const void* table, const uint32_t* tokens, float scale,
                const RowsView& output, Stream stream);

// Each row divided by the root of its mean square (and eps), times the weights [cols]; `output` may
// be `input`.
int LaunchRmsNorm(const float* weights, float eps, const RowsView& input, const RowsView& output,
                  Stream stream);

// cosines and sines [num_positions][half_dim] of position * frequency.
struct AnglesView {
  float* cosines = nullptr;
  float* sines = nullptr;
  uint32_t half_dim = 0;
};
int LaunchAngles(const int32_t* positions, uint64_t num_positions, const float* frequencies,
                 const AnglesView& angles, Stream stream);

// Turns each head of 2 * half_dim elements by the angles of its row: element i of its first half
// with element i of its second. With `norm` ([2 * half_dim], or null), the head is normed first.
// REQUIRES: heads.cols is a multiple of 2 * half_dim.
int LaunchRotate(const AnglesView& angles, const float* norm, float eps, const RowsView& heads,
                 Stream stream);

// output = activation(gate) * up, where gate_up's rows are the gate's output.cols columns, then
// up's.
enum class GateKind : uint8_t { kSilu, kGeluTanh };
int LaunchGate(GateKind kind, const RowsView& gate_up, const RowsView& output, Stream stream);

// sum += addend.
int LaunchAdd(const RowsView& addend, const RowsView& sum, Stream stream);

// rows += bias [cols], each.
int LaunchAddBias(const float* bias, const RowsView& rows, Stream stream);

// output[i] = the row indices[i] of `input`. The indices are in host memory, of which they are read
// before it returns; kMostTakenRows of them go with a launch.
inline constexpr uint32_t kMostTakenRows = 512;
int LaunchTakeRows(const uint32_t* indices, const RowsView& input, const RowsView& output,
                   Stream stream);

// Each element as cap * tanh(element / cap), in place.
int LaunchSoftCap(float cap, const RowsView& rows, Stream stream);

// To fp16 or bf16, [rows][cols] contiguous, to nearest, ties to even; and back.
int LaunchRound(kernels::ElementType type, const RowsView& rows, void* rounded, Stream stream);
int LaunchWiden(kernels::ElementType type, const void* rounded, const RowsView& rows,
                Stream stream);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_ROW_KERNELS_H_
