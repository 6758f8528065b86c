// The kernels that handle each element independently.
#include <cstring>

#include "engine/model/cuda/kernels/activations.h"
#include "engine/model/cuda/kernels/row_access.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::Half;

template <class T>
struct EmbedOp {
  struct Args {
    uint64_t rows, cols;
    const T* table;
    const uint32_t* tokens;
    float scale;
    RowsView output;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    Piece<kWidth> piece =
        LoadPieceOf<T, kWidth>(args.table + uint64_t{args.tokens[row]} * args.cols + col);
#pragma unroll
    for (float& value : piece.values) value *= args.scale;
    StorePiece<kWidth>(args.output.data + row * args.output.stride + col, piece);
  }
};

template <class T>
int LaunchEmbedOf(const void* table, const uint32_t* tokens, float scale, const RowsView& output,
                  Stream stream) {
  return LaunchElements<EmbedOp<T>>({.rows = output.rows,
                                     .cols = output.cols,
                                     .table = static_cast<const T*>(table),
                                     .tokens = tokens,
                                     .scale = scale,
                                     .output = output},
                                    IsWide({output}), stream);
}

template <GateKind kKind>
struct GateOp {
  struct Args {
    uint64_t rows, cols;
    RowsView gate_up;
    RowsView output;
    float alpha;
    float limit;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    const float* const gates = args.gate_up.data + row * args.gate_up.stride;
    Piece<kWidth> piece = LoadPiece<kWidth>(gates + col);
    const Piece<kWidth> up = LoadPiece<kWidth>(gates + args.cols + col);
#pragma unroll
    for (uint32_t i = 0; i < kWidth; ++i) {
      piece.values[i] = Gated<kKind>(args.alpha, args.limit, piece.values[i], up.values[i]);
    }
    StoreInRow<kWidth>(args.output, row, col, piece);
  }
};

struct GeluOp {
  struct Args {
    uint64_t rows, cols;
    RowsView all;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    float* const target = args.all.data + row * args.all.stride + col;
    Piece<kWidth> piece = LoadPiece<kWidth>(target);
#pragma unroll
    for (float& value : piece.values) value = GeluTanh(value);
    StorePiece<kWidth>(target, piece);
  }
};

struct AddRowsOp {
  struct Args {
    uint64_t rows, cols;
    AddendLists lists;
    RowsView addend;
    RowsView sum;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    float* const target = args.sum.data + row * args.sum.stride + col;
    Piece<kWidth> piece = LoadPiece<kWidth>(target);
    for (uint32_t i = args.lists.first_of_row[row]; i != kNoAddend; i = args.lists.next[i]) {
      const float factor = args.lists.factors[i];
      const Piece<kWidth> addend =
          LoadPiece<kWidth>(args.addend.data + i * args.addend.stride + col);
#pragma unroll
      for (uint32_t k = 0; k < kWidth; ++k) piece.values[k] += factor * addend.values[k];
    }
    StorePiece<kWidth>(target, piece);
  }
};

struct ClearOp {
  struct Args {
    uint64_t rows, cols;
    RowsView output;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    StorePiece<kWidth>(args.output.data + row * args.output.stride + col, Piece<kWidth>{});
  }
};

// A row of the grid is a head of a row.
struct CopyHeadsOp {
  struct Args {
    uint64_t rows, cols;
    uint32_t num_heads;
    HeadsView input;
    HeadsView output;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    static_assert(kWidth == 1);
    const uint64_t n = row / args.num_heads;
    const uint64_t head = row % args.num_heads;
    args.output.rows.data[n * args.output.rows.stride + head * args.output.head_dim + col] =
        args.input.rows.data[n * args.input.rows.stride + head * args.input.head_dim + col];
  }
};

// `addend` with a stride of 0 is one row for all rows.
struct AddOp {
  struct Args {
    uint64_t rows, cols;
    RowsView addend;
    RowsView sum;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    float* const target = args.sum.data + row * args.sum.stride + col;
    Piece<kWidth> piece = LoadPiece<kWidth>(target);
    const Piece<kWidth> addend =
        LoadPiece<kWidth>(args.addend.data + row * args.addend.stride + col);
#pragma unroll
    for (uint32_t i = 0; i < kWidth; ++i) piece.values[i] += addend.values[i];
    StorePiece<kWidth>(target, piece);
  }
};

struct TakeRowsOp {
  struct Args {
    uint64_t rows, cols;
    RowsView input;
    RowsView output;
    uint32_t indices[kMostTakenRows];
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    StorePiece<kWidth>(
        args.output.data + row * args.output.stride + col,
        LoadPiece<kWidth>(args.input.data + args.indices[row] * args.input.stride + col));
  }
};

// The same for single elements of 16 bits.
struct TakeHalvesOp {
  using Args = TakeRowsOp::Args;
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    static_assert(kWidth == 1);
    const auto* const from = reinterpret_cast<const uint16_t*>(args.input.data);
    auto* const to = reinterpret_cast<uint16_t*>(args.output.data);
    to[row * args.output.stride + col] = from[args.indices[row] * args.input.stride + col];
  }
};

struct SoftCapOp {
  struct Args {
    uint64_t rows, cols;
    RowsView all;
    float cap;
    float reciprocal;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    float* const target = args.all.data + row * args.all.stride + col;
    Piece<kWidth> piece = LoadPiece<kWidth>(target);
#pragma unroll
    for (float& value : piece.values) {
      value = args.cap * kernels::cuda::ExactTanh(value * args.reciprocal);
    }
    StorePiece<kWidth>(target, piece);
  }
};

template <class T>
struct RoundOp {
  struct Args {
    uint64_t rows, cols;
    RowsView from;
    T* to;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    StorePieceOf<T, kWidth>(args.to + row * args.cols + col,
                            LoadPiece<kWidth>(args.from.data + row * args.from.stride + col));
  }
};

template <class T>
struct WidenOp {
  struct Args {
    uint64_t rows, cols;
    const T* from;
    uint64_t from_stride;
    RowsView to;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    StoreInRow<kWidth>(args.to, row, col,
                       LoadPieceOf<T, kWidth>(args.from + row * args.from_stride + col));
  }
};

// Computes one row of positions at a time, each element independently. Runs once a step.
struct AnglesOp {
  struct Args {
    uint64_t rows, cols;
    const int32_t* positions;
    const float* frequencies;
    float factor;
    AnglesView angles;
  };
  template <uint32_t kWidth>
  static PAGODA_DEVICE void Apply(const Args& args, uint64_t row, uint64_t col) {
    static_assert(kWidth == 1);
    const float angle = static_cast<float>(args.positions[row]) * args.frequencies[col];
    args.angles.cosines[row * args.cols + col] = kernels::cuda::Cosine(angle) * args.factor;
    args.angles.sines[row * args.cols + col] = kernels::cuda::Sine(angle) * args.factor;
  }
};

}  // namespace

int LaunchEmbed(ElementType type, const void* table, const uint32_t* tokens, float scale,
                const RowsView& output, Stream stream) {
  switch (type) {
    case ElementType::kFloat16:
      return LaunchEmbedOf<Half>(table, tokens, scale, output, stream);
    case ElementType::kBFloat16:
      return LaunchEmbedOf<BFloat16>(table, tokens, scale, output, stream);
    default:
      return LaunchEmbedOf<float>(table, tokens, scale, output, stream);
  }
}

int LaunchAngles(const int32_t* positions, uint64_t num_positions, const float* frequencies,
                 float factor, const AnglesView& angles, Stream stream) {
  return ElementKernel<AnglesOp, 1>::Start({.rows = num_positions,
                                            .cols = angles.half_dim,
                                            .positions = positions,
                                            .frequencies = frequencies,
                                            .factor = factor,
                                            .angles = angles},
                                           stream);
}

namespace {

template <GateKind kKind>
int LaunchGateOf(const GateArgs& gate, const RowsView& gate_up, const RowsView& output,
                 Stream stream) {
  // The columns of `up` begin at output.cols.
  return LaunchElements<GateOp<kKind>>({.rows = output.rows,
                                        .cols = output.cols,
                                        .gate_up = gate_up,
                                        .output = output,
                                        .alpha = gate.alpha,
                                        .limit = gate.limit},
                                       IsWide({gate_up, output}), stream);
}

}  // namespace

int LaunchGate(const GateArgs& gate, const RowsView& gate_up, const RowsView& output,
               Stream stream) {
  switch (gate.kind) {
    case GateKind::kSilu:
      return LaunchGateOf<GateKind::kSilu>(gate, gate_up, output, stream);
    case GateKind::kGeluTanh:
      return LaunchGateOf<GateKind::kGeluTanh>(gate, gate_up, output, stream);
    case GateKind::kClampedSilu:
      break;
  }
  return LaunchGateOf<GateKind::kClampedSilu>(gate, gate_up, output, stream);
}

int LaunchGeluTanh(const RowsView& rows, Stream stream) {
  return LaunchElements<GeluOp>({.rows = rows.rows, .cols = rows.cols, .all = rows}, IsWide({rows}),
                                stream);
}

int LaunchAddRows(const AddendLists& lists, const RowsView& addend, const RowsView& sum,
                  Stream stream) {
  return LaunchElements<AddRowsOp>(
      {.rows = sum.rows, .cols = sum.cols, .lists = lists, .addend = addend, .sum = sum},
      IsWide({addend, sum}), stream);
}

int LaunchClear(const RowsView& output, Stream stream) {
  return LaunchElements<ClearOp>({.rows = output.rows, .cols = output.cols, .output = output},
                                 IsWide({output}), stream);
}

int LaunchCopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                    const HeadsView& output, Stream stream) {
  return ElementKernel<CopyHeadsOp, 1>::Start({.rows = output.rows.rows * num_heads,
                                               .cols = count,
                                               .num_heads = num_heads,
                                               .input = input,
                                               .output = output},
                                              stream);
}

int LaunchAdd(const RowsView& addend, const RowsView& sum, Stream stream) {
  return LaunchElements<AddOp>({.rows = sum.rows, .cols = sum.cols, .addend = addend, .sum = sum},
                               IsWide({addend, sum}), stream);
}

int LaunchAddBias(const float* bias, const RowsView& rows, Stream stream) {
  return LaunchAdd({.data = const_cast<float*>(bias), .rows = rows.rows, .cols = rows.cols}, rows,
                   stream);
}

namespace {

bool IsOfPairs(const RowsView& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % sizeof(float) == 0 &&
         (rows.stride | rows.cols) % 2 == 0;
}

// Rows of 16 bits as half as many numbers of 32.
RowsView PairsOf(const RowsView& rows) {
  return {.data = rows.data, .stride = rows.stride / 2, .rows = rows.rows, .cols = rows.cols / 2};
}

}  // namespace

int LaunchTakeRows(const uint32_t* indices, const RowsView& input, const RowsView& output,
                   Stream stream) {
  const bool halves = output.type != ElementType::kFloat32;
  if (halves && IsOfPairs(input) && IsOfPairs(output)) {
    return LaunchTakeRows(indices, PairsOf(input), PairsOf(output), stream);
  }
  for (uint64_t first = 0; first < output.rows; first += kMostTakenRows) {
    const uint64_t left = output.rows - first;
    TakeRowsOp::Args args = {.rows = left < kMostTakenRows ? left : kMostTakenRows,
                             .cols = output.cols,
                             .input = input,
                             .output = output.Rows(first, left),
                             .indices = {}};
    std::memcpy(args.indices, indices + first, args.rows * sizeof(uint32_t));
    const int error = halves ? ElementKernel<TakeHalvesOp, 1>::Start(args, stream)
                             : LaunchElements<TakeRowsOp>(args, IsWide({input, output}), stream);
    if (error != 0) return error;
  }
  return 0;
}

int LaunchSoftCap(float cap, const RowsView& rows, Stream stream) {
  return LaunchElements<SoftCapOp>(
      {.rows = rows.rows, .cols = rows.cols, .all = rows, .cap = cap, .reciprocal = 1.0f / cap},
      IsWide({rows}), stream);
}

int LaunchRound(ElementType type, const RowsView& rows, void* rounded, Stream stream) {
  const bool wide = IsWide({rows});
  if (type == ElementType::kFloat16) {
    return LaunchElements<RoundOp<Half>>({rows.rows, rows.cols, rows, static_cast<Half*>(rounded)},
                                         wide, stream);
  }
  return LaunchElements<RoundOp<BFloat16>>(
      {rows.rows, rows.cols, rows, static_cast<BFloat16*>(rounded)}, wide, stream);
}

int LaunchWiden(const RowsView& rounded, const RowsView& rows, Stream stream) {
  const bool wide = IsWide({rounded, rows});
  if (rounded.type == ElementType::kFloat16) {
    return LaunchElements<WidenOp<Half>>(
        {rows.rows, rows.cols, reinterpret_cast<const Half*>(rounded.data), rounded.stride, rows},
        wide, stream);
  }
  return LaunchElements<WidenOp<BFloat16>>(
      {rows.rows, rows.cols, reinterpret_cast<const BFloat16*>(rounded.data), rounded.stride, rows},
      wide, stream);
}

}  // namespace pagoda::cuda
