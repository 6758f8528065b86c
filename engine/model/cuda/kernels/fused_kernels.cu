// The kernels that do the work of several: they follow a product of a layer, and prepare the next
// product's input or attention.
#include "engine/model/cuda/kernels/fused_kernels.h"

#include "engine/model/cuda/kernels/row_access.h"
#include "engine/model/cuda/kernels/row_sums.h"

namespace pagoda::cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::Half;

// A block of threads handles a row, each thread with the same elements in all passes.
template <uint32_t kWidth>
struct AddNormKernel {
  static constexpr uint32_t kWarps = 8;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = kWarps * sizeof(float);
  using Args = AddNormArgs;

  static PAGODA_DEVICE void Run(const Args& args) {
    for (uint64_t row = BlockIndex(); row < args.sum.rows; row += GridBlocks()) {
      const float* const addend = args.addend.data + row * args.addend.stride;
      float* const sum = args.sum.data + row * args.sum.stride;
      const float factor = Add(args, addend, sum);
      for (uint64_t i = ThreadIndex() * kWidth; i < args.sum.cols; i += kThreads * kWidth) {
        Piece<kWidth> piece = LoadPiece<kWidth>(sum + i);
        Scale(piece, factor, args.norm + i);
        StoreInRow<kWidth>(args.output, row, i, piece);
      }
    }
  }

  // Returns the norm's factor of the sum.
  static PAGODA_DEVICE float Add(const Args& args, const float* addend, float* sum) {
    const uint64_t cols = args.sum.cols;
    float addend_factor = 0;
    if (args.addend_norm != nullptr) {
      float squares = 0;
      for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
        squares += Squares(LoadPiece<kWidth>(addend + i));
      }
      addend_factor = NormFactor(SumOfBlock<kWarps>(squares), cols, args.addend_eps);
    }
    float squares = 0;
    for (uint64_t i = ThreadIndex() * kWidth; i < cols; i += kThreads * kWidth) {
      Piece<kWidth> piece = LoadPiece<kWidth>(addend + i);
      if (args.addend_norm != nullptr) Scale(piece, addend_factor, args.addend_norm + i);
      const Piece<kWidth> before = LoadPiece<kWidth>(sum + i);
#pragma unroll
      for (uint32_t k = 0; k < kWidth; ++k) piece.values[k] += before.values[k];
      squares += Squares(piece);
      StorePiece<kWidth>(sum + i, piece);
    }
    return NormFactor(SumOfBlock<kWarps>(squares), cols, args.eps);
  }

  static PAGODA_DEVICE float Squares(const Piece<kWidth>& piece) {
    float squares = 0;
#pragma unroll
    for (const float value : piece.values) squares += value * value;
    return squares;
  }
  static PAGODA_DEVICE void Scale(Piece<kWidth>& piece, float factor, const float* from) {
    const Piece<kWidth> weights = LoadPiece<kWidth>(from);
#pragma unroll
    for (uint32_t k = 0; k < kWidth; ++k) piece.values[k] *= factor * weights.values[k];
  }
};

template <uint32_t kWidth>
int LaunchAddNormBy(const AddNormArgs& args, Stream stream) {
  using Kernel = AddNormKernel<kWidth>;
  return kernels::cuda::Launch<Kernel>(
      {.blocks = args.sum.rows, .shared_bytes = Kernel::kSharedBytes}, stream, args);
}

template <class T>
PAGODA_DEVICE T RoundedTo(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return T{static_cast<uint16_t>(kernels::cuda::PackPair<T>(value, 0.0f))};
  }
}

// A warp handles a head of a row's queries, keys or values. T: the type of the placed queries, and
// of the pool if there is one.
template <class T>
struct PlaceHeadsKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = PlaceHeadsArgs;

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t dim = args.rotation.head_dim;
    const uint64_t num_queries = args.queries.cols / dim;
    const uint64_t num_keys = args.keys.cols / dim;
    const bool has_pool = args.kv.keys != nullptr;
    const uint64_t num_heads = num_queries + (has_pool ? 2 : 1) * num_keys;
    const uint64_t step = uint64_t{GridBlocks()} * kWarps;
    for (uint64_t i = uint64_t{BlockIndex()} * kWarps + WarpIndex();
         i < args.queries.rows * num_heads; i += step) {
      const uint64_t row = i / num_heads;
      const uint64_t head = i % num_heads;
      if (head < num_queries) {
        T* const placed = reinterpret_cast<T*>(args.placed.data);
        Place(args, row, args.queries.data + row * args.queries.stride + head * dim,
              args.query_norm, placed + row * args.placed.stride + head * dim);
      } else if (head < num_queries + num_keys) {
        const uint64_t key = head - num_queries;
        float* const from = args.keys.data + row * args.keys.stride + key * dim;
        if (!has_pool) {
          Place(args, row, from, args.key_norm, from);
          continue;
        }
        T* const target = InPool(args, row, args.kv.keys, key);
        if (target == nullptr) continue;
        Place(args, row, from, args.key_norm, target);
      } else {
        const uint64_t value = head - num_queries - num_keys;
        T* const target = InPool(args, row, args.kv.values, value);
        if (target == nullptr) continue;
        const float* const from = args.values.data + row * args.values.stride + value * dim;
        for (uint64_t k = LaneIndex(); k < dim; k += kWarpThreads)
          target[k] = RoundedTo<T>(from[k]);
      }
    }
  }

  // The head of the row's token in a part of the pool; null for padding and places outside.
  static PAGODA_DEVICE T* InPool(const Args& args, uint64_t row, std::byte* part, uint64_t head) {
    const kernels::KvLayer& kv = args.kv;
    const int64_t place = args.token_slots[row];
    const int64_t block_tokens = kv.tokens_per_block;
    if (place < 0 || place >= kv.num_slots * block_tokens) return nullptr;
    return reinterpret_cast<T*>(part + place / block_tokens * kv.slot_stride_bytes +
                                head * kv.head_stride_bytes +
                                place % block_tokens * kv.token_stride_bytes);
  }

  // Norms and rotates a head. `target` can be `head`: a lane writes what it alone still reads.
  template <class To>
  static PAGODA_DEVICE void Place(const Args& args, uint64_t row, const float* head,
                                  const float* norm, To* target) {
    const uint32_t dim = args.rotation.head_dim;
    float factor = 1;
    if (norm != nullptr) {
      float squares = 0;
      for (uint32_t i = LaneIndex(); i < dim; i += kWarpThreads) squares += head[i] * head[i];
      factor = NormFactor(kernels::cuda::SumOfWarp(squares), dim, args.eps);
    }
    const auto normed = [&](uint32_t i) {
      return norm == nullptr ? head[i] : head[i] * (factor * norm[i]);
    };
    const uint32_t first = args.rotation.first_element;
    const uint32_t half = args.angles.half_dim;
    const bool neighbours = args.rotation.neighbours;
    for (uint32_t i = LaneIndex(); i < half; i += kWarpThreads) {
      const uint32_t at = first + (neighbours ? 2 * i : i);
      const uint32_t other = at + (neighbours ? 1 : half);
      const float x = normed(at);
      const float y = normed(other);
      const float cosine = args.angles.cosines[row * half + i];
      const float sine = args.angles.sines[row * half + i];
      target[at] = RoundedTo<To>(x * cosine - y * sine);
      target[other] = RoundedTo<To>(y * cosine + x * sine);
    }
    for (uint32_t i = LaneIndex(); i < dim; i += kWarpThreads) {
      if (i >= first && i < first + 2 * half) continue;
      target[i] = RoundedTo<To>(normed(i));
    }
  }
};

template <class T>
int LaunchPlaceHeadsOf(const PlaceHeadsArgs& args, Stream stream) {
  using Kernel = PlaceHeadsKernel<T>;
  const uint64_t heads = (args.queries.cols + 2 * args.keys.cols) / args.rotation.head_dim;
  return kernels::cuda::Launch<Kernel>(
      {.blocks = (args.queries.rows * heads + Kernel::kWarps - 1) / Kernel::kWarps}, stream, args);
}

}  // namespace

int LaunchAddNorm(const AddNormArgs& args, Stream stream) {
  const auto is_wide = [](const float* weights) {
    return reinterpret_cast<uintptr_t>(weights) % sizeof(Vector16) == 0;
  };
  const bool wide = IsWide({args.addend, args.sum, args.output}) && is_wide(args.norm) &&
                    is_wide(args.addend_norm);
  return wide ? LaunchAddNormBy<4>(args, stream) : LaunchAddNormBy<1>(args, stream);
}

int LaunchPlaceHeads(const PlaceHeadsArgs& args, Stream stream) {
  switch (args.placed.type) {
    case ElementType::kFloat16:
      return LaunchPlaceHeadsOf<Half>(args, stream);
    case ElementType::kBFloat16:
      return LaunchPlaceHeadsOf<BFloat16>(args, stream);
    default:
      return LaunchPlaceHeadsOf<float>(args, stream);
  }
}

}  // namespace pagoda::cuda
