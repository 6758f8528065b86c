// The kernels that need a whole row. A block of threads norms a row; a warp norms and rotates a
// head.
#include "engine/model/cuda/kernels/row_access.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/kernels/row_sums.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::SumOfWarp;

template <uint32_t kWidth>
struct RmsNormKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = kWarps * sizeof(float);
  struct Args {
    const float* weights;
    float eps;
    RowsView input;
    RowsView output;
  };

  static PAGODA_DEVICE void Run(const Args& args) {
    for (uint64_t row = BlockIndex(); row < args.input.rows; row += GridBlocks()) {
      Norm(args, args.input.data + row * args.input.stride, row);
    }
  }

  // Each thread writes only elements that it alone has read, so that `output` can be `input`.
  static PAGODA_DEVICE void Norm(const Args& args, const float* input, uint64_t row) {
    const uint64_t cols = args.input.cols;
    float sum = 0;
    for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
      const Piece<kWidth> piece = LoadPiece<kWidth>(input + i);
#pragma unroll
      for (const float value : piece.values) sum += value * value;
    }
    const float factor = NormFactor(SumOfBlock<kWarps>(sum), cols, args.eps);
    for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
      Piece<kWidth> piece = LoadPiece<kWidth>(input + i);
      const Piece<kWidth> weights = LoadPiece<kWidth>(args.weights + i);
#pragma unroll
      for (uint32_t k = 0; k < kWidth; ++k) piece.values[k] *= factor * weights.values[k];
      StoreInRow<kWidth>(args.output, row, i, piece);
    }
  }
};

template <uint32_t kWidth>
int LaunchRmsNormBy(const float* weights, float eps, const RowsView& input, const RowsView& output,
                    Stream stream) {
  using Kernel = RmsNormKernel<kWidth>;
  return kernels::cuda::Launch<Kernel>({.blocks = input.rows, .shared_bytes = Kernel::kSharedBytes},
                                       stream, {weights, eps, input, output});
}

// One thread block norms a row, each thread with the same elements in all passes.
struct LayerNormKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = kWarps * sizeof(float);
  struct Args {
    const float* weights;
    const float* bias;
    float eps;
    RowsView input;
    RowsView output;
  };

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t cols = args.input.cols;
    for (uint64_t row = BlockIndex(); row < args.input.rows; row += GridBlocks()) {
      const float* const input = args.input.data + row * args.input.stride;
      float sum = 0;
      for (uint64_t i = ThreadIndex(); i < cols; i += kThreads) sum += input[i];
      const float mean = SumOfBlock<kWarps>(sum) / static_cast<float>(cols);
      float squares = 0;
      for (uint64_t i = ThreadIndex(); i < cols; i += kThreads) {
        squares += (input[i] - mean) * (input[i] - mean);
      }
      const float factor = NormFactor(SumOfBlock<kWarps>(squares), cols, args.eps);
      for (uint64_t i = ThreadIndex(); i < cols; i += kThreads) {
        StoreInRow<1>(args.output, row, i,
                      {{(input[i] - mean) * factor * args.weights[i] + args.bias[i]}});
      }
    }
  }
};

// A lane has the same pairs of elements in both passes. Heads are read twice, the second time from
// the caches.
struct RotateKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  struct Args {
    HeadRotation rotation;
    AnglesView angles;
    const float* norm;
    float eps;
    RowsView heads;
  };

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t head_dim = args.rotation.head_dim;
    const uint64_t num_heads = args.heads.cols / head_dim;
    const uint64_t step = uint64_t{GridBlocks()} * kWarps;
    for (uint64_t i = uint64_t{BlockIndex()} * kWarps + WarpIndex();
         i < args.heads.rows * num_heads; i += step) {
      const uint64_t row = i / num_heads;
      float* const head = args.heads.data + row * args.heads.stride + i % num_heads * head_dim;
      if (args.norm != nullptr) Norm(args, head);
      Rotate(args, row, head + args.rotation.first_element);
    }
  }

  static PAGODA_DEVICE void Rotate(const Args& args, uint64_t row, float* rotated) {
    const uint32_t half = args.angles.half_dim;
    const uint32_t apart = args.rotation.neighbours ? 1 : half;
    for (uint32_t i = LaneIndex(); i < half; i += kWarpThreads) {
      const uint32_t at = args.rotation.neighbours ? 2 * i : i;
      const float first = rotated[at];
      const float second = rotated[at + apart];
      const float cosine = args.angles.cosines[row * half + i];
      const float sine = args.angles.sines[row * half + i];
      rotated[at] = first * cosine - second * sine;
      rotated[at + apart] = second * cosine + first * sine;
    }
  }

  // The lanes of a warp see each other's elements after the barrier.
  static PAGODA_DEVICE void Norm(const Args& args, float* head) {
    float sum = 0;
    for (uint32_t i = LaneIndex(); i < args.rotation.head_dim; i += kWarpThreads) {
      sum += head[i] * head[i];
    }
    const float factor = NormFactor(SumOfWarp(sum), args.rotation.head_dim, args.eps);
    for (uint32_t i = LaneIndex(); i < args.rotation.head_dim; i += kWarpThreads) {
      head[i] *= factor * args.norm[i];
    }
    kernels::cuda::SyncWarp();
  }
};

}  // namespace

int LaunchRmsNorm(const float* weights, float eps, const RowsView& input, const RowsView& output,
                  Stream stream) {
  const bool wide =
      IsWide({input, output}) && reinterpret_cast<uintptr_t>(weights) % sizeof(Vector16) == 0;
  return wide ? LaunchRmsNormBy<4>(weights, eps, input, output, stream)
              : LaunchRmsNormBy<1>(weights, eps, input, output, stream);
}

int LaunchLayerNorm(const float* weights, const float* bias, float eps, const RowsView& input,
                    const RowsView& output, Stream stream) {
  return kernels::cuda::Launch<LayerNormKernel>(
      {.blocks = input.rows, .shared_bytes = LayerNormKernel::kSharedBytes}, stream,
      {weights, bias, eps, input, output});
}

int LaunchRotate(const HeadRotation& rotation, const AnglesView& angles, const float* norm,
                 float eps, const RowsView& heads, Stream stream) {
  const uint64_t warps = heads.rows * (heads.cols / rotation.head_dim);
  return kernels::cuda::Launch<RotateKernel>(
      {.blocks = (warps + RotateKernel::kWarps - 1) / RotateKernel::kWarps}, stream,
      {rotation, angles, norm, eps, heads});
}

}  // namespace pagoda::cuda
