// A block of threads has 8 outputs at a time, and its warps share the inputs. A lane's load of 16
// bytes has 8 neighbouring weights of an output. So 4 lanes have 32 inputs of it, and a warp has
// those of all 8 outputs. They are the right matrices of two products m16n8k16, in which the lane's
// elements are in another order than in memory. The rows of the input, in the same order, are the
// left matrices, half of whose 16 rows stay zero.
#include "engine/model/cuda/kernels/fused_products.h"

#include <algorithm>

#include "engine/model/cuda/kernels/activations.h"
#include "engine/model/cuda/kernels/row_access.h"
#include "engine/model/cuda/kernels/row_sums.h"
#include "engine/model/cuda/kernels/streamed_load.h"

namespace pagoda::cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::Half;
using kernels::cuda::LoadShared;
using kernels::cuda::StoreShared;
using kernels::cuda::SyncThreads;

constexpr uint32_t kTileOutputs = 8;
constexpr uint32_t kLaneInputs = 8;
constexpr uint32_t kRunInputs = 4 * kLaneInputs;  // The inputs of one load of a warp.

// The shared memory: the warps' sums of two tiles in turn, the warps' sums for the norm (first of
// the numbers, then of the squares), and the rows of the input.
constexpr uint32_t kTileBytes = kMostFusedRows * kTileOutputs * sizeof(float);
constexpr uint32_t SumsBytes(uint32_t warps, uint32_t tiles) { return warps * tiles * kTileBytes; }
constexpr uint32_t NormBytes(uint32_t warps) {
  return kMostFusedRows * warps * static_cast<uint32_t>(sizeof(float));
}
// Each row begins half a line of 128 bytes further, so that the lanes of two rows read different
// banks.
constexpr uint64_t StagedRowBytes(uint64_t inputs) { return (2 * inputs + 127) / 128 * 128 + 64; }

// T: of the factors. kTiles: 2 for kGate, whose second tile is that of `up`. kStaged: the input is
// fp32, and is rounded into shared memory first.
template <class T, uint32_t kTiles, bool kStaged>
struct FusedProductKernel {
  // 16 warps for a multiprocessor. Products with the residual stream have few outputs, so that only
  // one block comes to each multiprocessor.
  static constexpr uint32_t kWarps = kStaged ? 8 : 16;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = kStaged ? 2 : 1;
  using Args = FusedProductArgs;

  static constexpr uint32_t kSumsBytes = SumsBytes(kWarps, kTiles);
  static constexpr uint32_t kNormBytes = kStaged ? NormBytes(kWarps) : 0;
  static constexpr uint32_t kRowsBegin = 2 * kSumsBytes + 2 * kNormBytes;

  // Loads of a lane that are in flight together, while it multiplies as many earlier ones. More of
  // them would spill registers.
  static constexpr uint32_t kLoads = kStaged ? 8 / kTiles : 5 - kTiles;
  static constexpr uint32_t kGroupInputs = kLoads * kWarps * kRunInputs;
  struct Group {
    Vector16 weights[kTiles][kLoads];
    Vector16 rows[kStaged ? 1 : kLoads];
  };

  static PAGODA_DEVICE uint64_t TileOutputsOf(const Args& args) { return args.outputs / kTiles; }

  // The first of the lane's inputs.
  static PAGODA_DEVICE uint64_t InputOf(uint32_t group, uint32_t load) {
    return uint64_t{group} * kGroupInputs + (load * kWarps + WarpIndex()) * kRunInputs +
           LaneIndex() % 4 * kLaneInputs;
  }

  static PAGODA_DEVICE void Run(const Args& args) {
    const uint64_t tiles = (TileOutputsOf(args) + kTileOutputs - 1) / kTileOutputs;
    const auto groups = static_cast<uint32_t>((args.inputs + kGroupInputs - 1) / kGroupInputs);
    uint64_t tile = BlockIndex();
    // Weights come from memory while the input is normed, and while a tile is ended.
    Group next;
    Load(args, tile, 0, next);
    if constexpr (kStaged) Stage(args);
    uint32_t buffer = 0;
    for (; tile < tiles; tile += GridBlocks()) {
      float sums[kTiles][4] = {};
      for (uint32_t group = 0; group < groups; ++group) {
        const Group current = next;
        const bool last = group + 1 == groups;
        Load(args, last ? tile + GridBlocks() : tile, last ? 0 : group + 1, next);
        Multiply(args, group, current, sums);
      }
      End(args, tile, buffer, sums);
      buffer ^= 1;
    }
  }

  // Zeros behind the inputs and outputs.
  static PAGODA_DEVICE void Load(const Args& args, uint64_t tile, uint32_t group, Group& loaded) {
    const uint64_t output = tile * kTileOutputs + LaneIndex() / 4;
    const bool has_output = output < TileOutputsOf(args);
    const T* const weights = static_cast<const T*>(args.weights) + output * args.inputs;
    const uint64_t up = TileOutputsOf(args) * args.inputs;
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint64_t input = InputOf(group, i);
      const bool has_input = input < args.inputs;
#pragma unroll
      for (uint32_t t = 0; t < kTiles; ++t) {
        loaded.weights[t][i] =
            has_output && has_input ? LoadStreamed16(weights + t * up + input) : Vector16{};
      }
      if constexpr (!kStaged) {
        const uint64_t row = LaneIndex() / 4;
        const T* const rows = reinterpret_cast<const T*>(args.input.data);
        loaded.rows[i] = row < args.input.rows && has_input
                             ? kernels::cuda::LoadGlobal16(rows + row * args.input.stride + input)
                             : Vector16{};
      }
    }
  }

  static PAGODA_DEVICE void Multiply(const Args& args, uint32_t group, const Group& loaded,
                                     float (&sums)[kTiles][4]) {
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint64_t input = InputOf(group, i);
      // The same for all lanes.
      if (input - LaneIndex() % 4 * kLaneInputs >= args.inputs) break;
      Vector16 rows;
      if constexpr (kStaged) {
        const uint64_t row = LaneIndex() / 4;
        const uint32_t at = kernels::cuda::SharedBase() + kRowsBegin +
                            static_cast<uint32_t>(row * StagedRowBytes(args.inputs) + 2 * input);
        rows = row < args.input.rows && input < args.inputs ? LoadShared<Vector16>(at) : Vector16{};
      } else {
        rows = loaded.rows[i];
      }
      const uint32_t first[4] = {rows.words[0], 0, rows.words[1], 0};
      const uint32_t second[4] = {rows.words[2], 0, rows.words[3], 0};
#pragma unroll
      for (uint32_t t = 0; t < kTiles; ++t) {
        const Vector16& weights = loaded.weights[t][i];
        kernels::cuda::MultiplyMatrices<T>(sums[t], first, weights.words[0], weights.words[1]);
        kernels::cuda::MultiplyMatrices<T>(sums[t], second, weights.words[2], weights.words[3]);
      }
    }
  }

  // Adds the warps' sums in their order. The next tile's sums go to the other buffer. So a warp can
  // write a buffer again only behind a barrier that its readers have reached.
  static PAGODA_DEVICE void End(const Args& args, uint64_t tile, uint32_t buffer,
                                const float (&sums)[kTiles][4]) {
    const uint32_t base = kernels::cuda::SharedBase() + buffer * kSumsBytes;
    // The lane's sums are two neighbouring outputs of a row.
    const uint32_t at = LaneIndex() * 2 * static_cast<uint32_t>(sizeof(float));
#pragma unroll
    for (uint32_t t = 0; t < kTiles; ++t) {
      StoreShared(
          base + (WarpIndex() * kTiles + t) * kTileBytes + at,
          Vector8{{std::bit_cast<uint32_t>(sums[t][0]), std::bit_cast<uint32_t>(sums[t][1])}});
    }
    SyncThreads();
    const uint32_t row = ThreadIndex() / kTileOutputs;
    const uint64_t output = tile * kTileOutputs + ThreadIndex() % kTileOutputs;
    if (row >= args.output.rows || output >= TileOutputsOf(args)) return;
    float values[kTiles];
#pragma unroll
    for (uint32_t t = 0; t < kTiles; ++t) {
      float sum = 0;
#pragma unroll
      for (uint32_t warp = 0; warp < kWarps; ++warp) {
        sum += LoadShared<float>(base + (warp * kTiles + t) * kTileBytes +
                                 ThreadIndex() * static_cast<uint32_t>(sizeof(float)));
      }
      if (args.bias != nullptr) sum += args.bias[t * TileOutputsOf(args) + output];
      values[t] = sum;
    }
    Put(args, row, output, values);
  }

  static PAGODA_DEVICE void Put(const Args& args, uint64_t row, uint64_t output,
                                const float (&values)[kTiles]) {
    if constexpr (kTiles == 2) {
      StoreInRow<1>(args.output, row, output, {{GatedBy(args.gate, values[0], values[1])}});
    } else if (args.end == ProductEnd::kActivate) {
      StoreInRow<1>(args.output, row, output, {{GeluTanh(values[0])}});
    } else {
      float* const target = args.output.data + row * args.output.stride + output;
      *target = args.end == ProductEnd::kAdd ? *target + values[0] : values[0];
    }
  }

  static PAGODA_DEVICE float GatedBy(const GateArgs& args, float gate, float up) {
    switch (args.kind) {
      case GateKind::kSilu:
        return Gated<GateKind::kSilu>(args.alpha, args.limit, gate, up);
      case GateKind::kGeluTanh:
        return Gated<GateKind::kGeluTanh>(args.alpha, args.limit, gate, up);
      case GateKind::kClampedSilu:
        break;
    }
    return Gated<GateKind::kClampedSilu>(args.alpha, args.limit, gate, up);
  }

  // Norms and rounds the input's rows into shared memory. Each block does it for itself: the rows
  // are short compared with the weights. A thread has the same elements of a row in all passes, and
  // loads those of all rows together.
  static PAGODA_DEVICE void Stage(const Args& args) {
    const uint32_t base = kernels::cuda::SharedBase() + 2 * kSumsBytes;
    const bool is_normed = args.norm != nullptr;
    const bool is_centred = args.norm_bias != nullptr;
    const auto inputs = static_cast<float>(args.inputs);
    float centres[kMostFusedRows] = {};
    float factors[kMostFusedRows] = {};
    if (is_centred) {
      SumRows(
          args, base, centres, [](float value) { return value; },
          [&](float sum) { return sum / inputs; }, centres);
    }
    if (is_normed) {
      SumRows(
          args, base + kNormBytes, centres, [](float value) { return value * value; },
          [&](float sum) { return NormFactor(sum, args.inputs, args.eps); }, factors);
    }
    for (uint64_t i = ThreadIndex() * 4; i < args.inputs; i += kThreads * 4) {
      Piece<4> pieces[kMostFusedRows];
      LoadRows(args, i, pieces);
      const Piece<4> weights = is_normed ? LoadPiece<4>(args.norm + i) : Piece<4>{};
      const Piece<4> bias = is_centred ? LoadPiece<4>(args.norm_bias + i) : Piece<4>{};
#pragma unroll
      for (uint32_t row = 0; row < kMostFusedRows; ++row) {
        if (row >= args.input.rows) break;
        Piece<4>& piece = pieces[row];
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
          if (!is_normed) break;
          piece.values[k] = (piece.values[k] - centres[row]) * (factors[row] * weights.values[k]) +
                            bias.values[k];
        }
        StoreShared(kernels::cuda::SharedBase() + kRowsBegin +
                        static_cast<uint32_t>(row * StagedRowBytes(args.inputs) + 2 * i),
                    Vector8{{kernels::cuda::PackPair<T>(piece.values[0], piece.values[1]),
                             kernels::cuda::PackPair<T>(piece.values[2], piece.values[3])}});
      }
    }
    SyncThreads();
  }

  static PAGODA_DEVICE void LoadRows(const Args& args, uint64_t i,
                                     Piece<4> (&pieces)[kMostFusedRows]) {
#pragma unroll
    for (uint32_t row = 0; row < kMostFusedRows; ++row) {
      if (row < args.input.rows) {
        pieces[row] = LoadPiece<4>(args.input.data + row * args.input.stride + i);
      }
    }
  }

  // For each row, end(the sum over its numbers of of(number - centre)). One thread computes the end
  // of a row for all, in memory from `base` on.
  template <class Of, class End>
  static PAGODA_DEVICE void SumRows(const Args& args, uint32_t base,
                                    const float (&centres)[kMostFusedRows], const Of& of,
                                    const End& end, float (&results)[kMostFusedRows]) {
    float sums[kMostFusedRows] = {};
    for (uint64_t i = ThreadIndex() * 4; i < args.inputs; i += kThreads * 4) {
      Piece<4> pieces[kMostFusedRows];
      LoadRows(args, i, pieces);
#pragma unroll
      for (uint32_t row = 0; row < kMostFusedRows; ++row) {
        if (row >= args.input.rows) break;
#pragma unroll
        for (const float value : pieces[row].values) sums[row] += of(value - centres[row]);
      }
    }
    // The exchanges of four rows run side by side.
#pragma unroll
    for (uint32_t first = 0; first < kMostFusedRows; first += 4) {
      if (first >= args.input.rows) break;
#pragma unroll
      for (uint32_t row = first; row < first + 4; ++row) {
        sums[row] = kernels::cuda::SumOfWarp(sums[row]);
      }
#pragma unroll
      for (uint32_t row = first; row < first + 4; ++row) {
        if (LaneIndex() == 0) StoreShared(PartAt(base, row, WarpIndex()), sums[row]);
      }
    }
    SyncThreads();
    static_assert(kWarps >= kMostFusedRows || !kStaged);
    if (WarpIndex() < args.input.rows && LaneIndex() == 0) {
      float sum = 0;
#pragma unroll
      for (uint32_t warp = 0; warp < kWarps; ++warp) {
        sum += LoadShared<float>(PartAt(base, WarpIndex(), warp));
      }
      StoreShared(PartAt(base, WarpIndex(), 0), end(sum));
    }
    SyncThreads();
#pragma unroll
    for (uint32_t row = 0; row < kMostFusedRows; ++row) {
      if (row < args.input.rows) results[row] = LoadShared<float>(PartAt(base, row, 0));
    }
  }

  static PAGODA_DEVICE uint32_t PartAt(uint32_t base, uint32_t row, uint32_t warp) {
    return base + (row * kWarps + warp) * static_cast<uint32_t>(sizeof(float));
  }
};

uint32_t TilesOf(const FusedProductArgs& args) { return args.end == ProductEnd::kGate ? 2 : 1; }

bool IsStaged(const FusedProductArgs& args) { return args.input.type == ElementType::kFloat32; }

template <class Kernel>
uint64_t SharedBytesOf(const FusedProductArgs& args) {
  return Kernel::kRowsBegin + (IsStaged(args) ? args.input.rows * StagedRowBytes(args.inputs) : 0);
}

// Calls the function with the kernel of these arguments as its type.
template <class T, class Visit>
auto VisitKernelOf(const FusedProductArgs& args, const Visit& visit) {
  if (TilesOf(args) == 2) {
    return IsStaged(args) ? visit.template operator()<FusedProductKernel<T, 2, true>>()
                          : visit.template operator()<FusedProductKernel<T, 2, false>>();
  }
  return IsStaged(args) ? visit.template operator()<FusedProductKernel<T, 1, true>>()
                        : visit.template operator()<FusedProductKernel<T, 1, false>>();
}

template <class T>
int LaunchWith(const FusedProductArgs& args, uint32_t num_multiprocessors, Stream stream) {
  const uint64_t tiles = (args.outputs / TilesOf(args) + kTileOutputs - 1) / kTileOutputs;
  return VisitKernelOf<T>(args, [&]<class Kernel>() {
    const uint64_t most = uint64_t{num_multiprocessors} * Kernel::kMinBlocks;
    return kernels::cuda::Launch<Kernel>(
        {.blocks = std::min(tiles, most),
         .shared_bytes = static_cast<uint32_t>(SharedBytesOf<Kernel>(args))},
        stream, args);
  });
}

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(Vector16) == 0;
}

}  // namespace

bool CanLaunchFusedProduct(const FusedProductArgs& args) {
  const uint64_t rows = args.input.rows;
  if (args.type != ElementType::kFloat16 && args.type != ElementType::kBFloat16) return false;
  if (rows == 0 || rows > kMostFusedRows || args.output.rows != rows) return false;
  if (args.inputs == 0 || args.inputs % kLaneInputs != 0 || args.input.cols != args.inputs ||
      args.outputs == 0 || args.outputs % TilesOf(args) != 0) {
    return false;
  }
  for (const void* address :
       {args.weights, static_cast<const void*>(args.input.data),
        static_cast<const void*>(args.norm), static_cast<const void*>(args.norm_bias)}) {
    if (!IsAligned(address)) return false;
  }
  const uint64_t access = sizeof(Vector16) / kernels::ElementBytes(args.input.type);
  if (args.input.stride % access != 0) return false;
  if (!IsStaged(args) && (args.input.type != args.type || args.norm != nullptr)) return false;
  const bool stores_floats = args.end == ProductEnd::kStore || args.end == ProductEnd::kAdd;
  if (stores_floats && args.output.type != ElementType::kFloat32) return false;
  const uint64_t bytes =
      VisitKernelOf<BFloat16>(args, [&]<class Kernel>() { return SharedBytesOf<Kernel>(args); });
  return bytes <= UINT32_MAX && kernels::cuda::HasSharedBytes(static_cast<uint32_t>(bytes));
}

int LaunchFusedProduct(const FusedProductArgs& args, uint32_t num_multiprocessors, Stream stream) {
  return args.type == ElementType::kFloat16
             ? LaunchWith<Half>(args, num_multiprocessors, stream)
             : LaunchWith<BFloat16>(args, num_multiprocessors, stream);
}

}  // namespace pagoda::cuda
