// Access to the elements of rows in device memory, for the kernels of this folder.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_ACCESS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_ACCESS_H_

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "engine/model/backend/rows_view.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/numeric.h"

namespace pagoda::cuda {

using kernels::cuda::BlockIndex;
using kernels::cuda::GridBlocks;
using kernels::cuda::kWarpThreads;
using kernels::cuda::LaneIndex;
using kernels::cuda::ThreadIndex;
using kernels::cuda::Vector16;
using kernels::cuda::Vector8;
using kernels::cuda::WarpIndex;

// Neighbouring elements of a row that a thread handles at a time: 4 by one access, or 1.
template <uint32_t kWidth>
struct Piece {
  static_assert(kWidth == 1 || kWidth == 4);
  float values[kWidth];
};

template <uint32_t kWidth>
PAGODA_DEVICE Piece<kWidth> LoadPiece(const float* from) {
  if constexpr (kWidth == 4) {
    return std::bit_cast<Piece<4>>(kernels::cuda::LoadGlobal16(from));
  } else {
    return {{*from}};
  }
}

template <uint32_t kWidth>
PAGODA_DEVICE void StorePiece(float* to, const Piece<kWidth>& piece) {
  if constexpr (kWidth == 4) {
    kernels::cuda::StoreGlobal16(to, std::bit_cast<Vector16>(piece));
  } else {
    *to = piece.values[0];
  }
}

// T is float, Half or BFloat16.
template <class T, uint32_t kWidth>
PAGODA_DEVICE Piece<kWidth> LoadPieceOf(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return LoadPiece<kWidth>(from);
  } else if constexpr (kWidth == 4) {
    const Vector8 pairs = kernels::cuda::LoadGlobal8(from);
    Piece<4> piece;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      piece.values[i] =
          kernels::ToFloat(T{static_cast<uint16_t>(pairs.words[i / 2] >> (i % 2 * 16))});
    }
    return piece;
  } else {
    return {{kernels::ToFloat(*from)}};
  }
}

// T is Half or BFloat16. Rounds to nearest, ties to even.
template <class T, uint32_t kWidth>
PAGODA_DEVICE void StorePieceOf(T* to, const Piece<kWidth>& piece) {
  if constexpr (kWidth == 4) {
    kernels::cuda::StoreGlobal8(
        to, Vector8{{kernels::cuda::PackPair<T>(piece.values[0], piece.values[1]),
                     kernels::cuda::PackPair<T>(piece.values[2], piece.values[3])}});
  } else {
    *to = T{static_cast<uint16_t>(kernels::cuda::PackPair<T>(piece.values[0], 0.0f))};
  }
}

// Rounds to the rows' type: fp32, fp16 or bf16.
template <uint32_t kWidth>
PAGODA_DEVICE void StoreInRow(const RowsView& rows, uint64_t row, uint64_t col,
                              const Piece<kWidth>& piece) {
  const uint64_t at = row * rows.stride + col;
  switch (rows.type) {
    case kernels::ElementType::kFloat16:
      return StorePieceOf<kernels::Half, kWidth>(reinterpret_cast<kernels::Half*>(rows.data) + at,
                                                 piece);
    case kernels::ElementType::kBFloat16:
      return StorePieceOf<kernels::BFloat16, kWidth>(
          reinterpret_cast<kernels::BFloat16*>(rows.data) + at, piece);
    default:
      StorePiece<kWidth>(rows.data + at, piece);
  }
}

// Whether each of the rows can be accessed four elements at a time, aligned and without a rest.
inline bool IsWide(std::initializer_list<RowsView> all) {
  constexpr uint64_t kWidth = 4;
  bool wide = true;
  for (const RowsView& rows : all) {
    const uint64_t access = kWidth * kernels::ElementBytes(rows.type);
    wide = wide && reinterpret_cast<uintptr_t>(rows.data) % access == 0 &&
           (rows.stride | rows.cols) % kWidth == 0;
  }
  return wide;
}

// A kernel that handles each element independently. `Op` is a type with
//   struct Args { uint64_t rows, cols; ... };
//   template <uint32_t kWidth> static void Apply(const Args& args, uint64_t row, uint64_t col);
// A block handles a run of one row's elements at a time.
template <class Op, uint32_t kWidth>
struct ElementKernel {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint64_t kRun = kThreads * kWidth;
  using Args = typename Op::Args;

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t runs = (args.cols + kRun - 1) / kRun;
    for (uint64_t i = BlockIndex(); i < args.rows * runs; i += GridBlocks()) {
      const uint64_t col = i % runs * kRun + ThreadIndex() * kWidth;
      if (col < args.cols) Op::template Apply<kWidth>(args, i / runs, col);
    }
  }

  static int Start(const Args& args, kernels::cuda::Stream stream) {
    return kernels::cuda::Launch<ElementKernel>(
        {.blocks = args.rows * ((args.cols + kRun - 1) / kRun)}, stream, args);
  }
};

// `wide`: whether to use Apply<4>.
template <class Op>
int LaunchElements(const typename Op::Args& args, bool wide, kernels::cuda::Stream stream) {
  return wide ? ElementKernel<Op, 4>::Start(args, stream)
              : ElementKernel<Op, 1>::Start(args, stream);
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_ACCESS_H_
