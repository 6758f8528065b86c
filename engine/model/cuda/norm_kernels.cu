// The kernels that need a whole row. A block of threads norms a row; a warp norms and rotates a
// head.
#include "engine/model/cuda/row_access.h"
#include "engine/model/cuda/row_kernels.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::LoadShared;
using kernels::cuda::SharedBase;
using kernels::cuda::StoreShared;
using kernels::cuda::SumOfWarp;
using kernels::cuda::SyncThreads;

PAGODA_DEVICE float NormFactor(float sum_of_squares, uint64_t count, float eps) {
  const float mean = sum_of_squares / static_cast<float>(count);
  return 1.0f / kernels::cuda::SquareRoot(mean + eps);
}

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
      Norm(args, args.input.data + row * args.input.stride,
           args.output.data + row * args.output.stride);
    }
  }

  // Each thread writes only elements that it alone has read, so that `output` can be `input`.
  static PAGODA_DEVICE void Norm(const Args& args, const float* input, float* output) {
    const uint64_t cols = args.input.cols;
    float sum = 0;
    for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
      const Piece<kWidth> piece = LoadPiece<kWidth>(input + i);
#pragma unroll
      for (const float value : piece.values) sum += value * value;
    }
    const float factor = NormFactor(SumOfBlock(sum), cols, args.eps);
    for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
      Piece<kWidth> piece = LoadPiece<kWidth>(input + i);
      const Piece<kWidth> weights = LoadPiece<kWidth>(args.weights + i);
#pragma unroll
      for (uint32_t k = 0; k < kWidth; ++k) piece.values[k] *= factor * weights.values[k];
      StorePiece<kWidth>(output + i, piece);
    }
  }

  // All threads get the same bits.
  static PAGODA_DEVICE float SumOfBlock(float value) {
    const float of_warp = SumOfWarp(value);
    SyncThreads();  // The sum of the previous row has been read.
    if (LaneIndex() == 0) StoreShared(SharedBase() + WarpIndex() * sizeof(float), of_warp);
    SyncThreads();
    float sum = 0;
#pragma unroll
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      sum += LoadShared<float>(SharedBase() + warp * sizeof(float));
    }
    return sum;
  }
};

template <uint32_t kWidth>
int LaunchRmsNormBy(const float* weights, float eps, const RowsView& input, const RowsView& output,
                    Stream stream) {
  using Kernel = RmsNormKernel<kWidth>;
  return kernels::cuda::Launch<Kernel>({.blocks = input.rows, .shared_bytes = Kernel::kSharedBytes},
                                       stream, {weights, eps, input, output});
}

// A lane has the same pairs of elements in both halves; only this lane reads and writes them. Heads
// of up to 256 elements are read twice, the second time from the caches.
struct RotateKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  struct Args {
    AnglesView angles;
    const float* norm;
    float eps;
    RowsView heads;
  };

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t head_dim = uint64_t{2} * args.angles.half_dim;
    const uint64_t num_heads = args.heads.cols / head_dim;
    const uint64_t step = uint64_t{GridBlocks()} * kWarps;
    for (uint64_t i = uint64_t{BlockIndex()} * kWarps + WarpIndex();
         i < args.heads.rows * num_heads; i += step) {
      const uint64_t row = i / num_heads;
      Rotate(args, row, args.heads.data + row * args.heads.stride + i % num_heads * head_dim);
    }
  }

  static PAGODA_DEVICE void Rotate(const Args& args, uint64_t row, float* head) {
    const uint32_t half = args.angles.half_dim;
    const float factor = args.norm == nullptr ? 1.0f : HeadFactor(args, head);
    for (uint32_t i = LaneIndex(); i < half; i += kWarpThreads) {
      float first = head[i];
      float second = head[half + i];
      if (args.norm != nullptr) {
        first *= factor * args.norm[i];
        second *= factor * args.norm[half + i];
      }
      const float cosine = args.angles.cosines[row * half + i];
      const float sine = args.angles.sines[row * half + i];
      head[i] = first * cosine - second * sine;
      head[half + i] = second * cosine + first * sine;
    }
  }

  static PAGODA_DEVICE float HeadFactor(const Args& args, const float* head) {
    const uint32_t half = args.angles.half_dim;
    float sum = 0;
    for (uint32_t i = LaneIndex(); i < half; i += kWarpThreads) {
      sum += head[i] * head[i] + head[half + i] * head[half + i];
    }
    return NormFactor(SumOfWarp(sum), uint64_t{2} * half, args.eps);
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

int LaunchRotate(const AnglesView& angles, const float* norm, float eps, const RowsView& heads,
                 Stream stream) {
  const uint64_t warps = heads.rows * (heads.cols / (uint64_t{2} * angles.half_dim));
  return kernels::cuda::Launch<RotateKernel>(
      {.blocks = (warps + RotateKernel::kWarps - 1) / RotateKernel::kWarps}, stream,
      {angles, norm, eps, heads});
}

}  // namespace pagoda::cuda
