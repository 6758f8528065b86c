// Attention of many rows on tensor cores: prefill, and long chunks.
//
// FlashAttention-2's method (Dao, 2023). A block has a tile of the unit's rows: all query heads of
// a KV head for some query tokens, row = token * group + head. It walks the keys 32 or 64 at a
// time. A warp has 16 rows, or twice 16, against all keys of the tile: S = Q K^T, O = P V; the
// weights stay in registers. While a tile of V is multiplied, the next tile of K is copied, and
// vice versa. Tiles that no row sees are skipped; only tiles at the mask's edge evaluate the mask.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_PREFILL_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_PREFILL_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_scores.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/float8.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, the type of the products. kFloat8: K and V have 8 bits, else they are T.
// kDim: at least head_dim. A warp has kRowTiles x 16 rows.
template <class T, bool kFloat8, uint32_t kDim, uint32_t kRowTiles>
class PrefillKernel {
 public:
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  // Keys at a time: the most that leave enough registers for the sums.
  static constexpr uint32_t kTokens = kDim >= 128 ? 32 : 64;
  static constexpr uint32_t kCopiedRows = kTokens / kWarps;  // Per tile and warp.
  static constexpr uint32_t kWarpsRows = kRowTiles * 16;
  static constexpr uint32_t kRows = kWarps * kWarpsRows;
  static constexpr uint32_t kRowBytes = kDim * (kFloat8 ? 1 : 2);
  static constexpr uint32_t kTileBytes = kTokens * kRowBytes;
  static constexpr uint32_t kQueryBytes = kRows * kDim * 2;
  // The scales of the keys and values of two tiles.
  static constexpr uint32_t kScaleBytes = kFloat8 ? 2 * kTokens * 8 : 0;
  static constexpr uint32_t kSharedBytes = kQueryBytes + 4 * kTileBytes + kScaleBytes;
  static constexpr uint32_t kMinBlocks = kSharedBytes <= 110 * 1024 ? 2 : 1;
  using Args = AttentionLaunch;

  static PAGODA_DEVICE void Run(const AttentionLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const uint64_t num_units = NumUnits(args, launch.kind);
    for (uint64_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) Attend(args, unit, row);
    }
  }

 private:
  static constexpr uint32_t kSteps = kDim / 16;
  static constexpr uint32_t kTokenTiles = kTokens / 8;
  static constexpr uint32_t kValueTiles = kDim / 8;

  // Element r of a product's result belongs to row lane / 4 + r / 2 * 8 of its 16 rows.
  struct WarpState {
    float sums[kRowTiles][kValueTiles][4];
    float largest[kRowTiles][2];
    float weights[kRowTiles][2];  // The sums of weights, of the lane's columns.
  };
  using Scores = float[kRowTiles][kTokenTiles][4];

  static PAGODA_DEVICE uint32_t KeyTile(uint32_t i) {
    return SharedBase() + kQueryBytes + i % 2 * kTileBytes;
  }
  static PAGODA_DEVICE uint32_t ValueTile(uint32_t i) {
    return SharedBase() + kQueryBytes + (2 + i % 2) * kTileBytes;
  }

  static PAGODA_DEVICE uint32_t ScalesOfTile(uint32_t i) {
    return SharedBase() + kQueryBytes + 4 * kTileBytes + i % 2 * kTokens * 8;
  }

  // The unit's row of element r of the warp's tile m.
  static PAGODA_DEVICE uint32_t RowOf(uint32_t first_row, uint32_t m, uint32_t r) {
    return first_row + WarpIndex() * kWarpsRows + m * 16 + LaneIndex() / 4 + r / 2 * 8;
  }

  // Each warp copies some tokens of a tile; this is the offset of the lane's token.
  static PAGODA_DEVICE uint64_t FindLanesRow(const AttentionArgs& args, const Unit& unit,
                                             const Sight& sight, uint32_t first) {
    return FindRow(args, unit, sight,
                   first + WarpIndex() * kCopiedRows + LaneIndex() % kCopiedRows);
  }

  // Each warp writes the scales of the tokens that it copies, if slots have their own.
  static PAGODA_DEVICE void WriteScales(const AttentionArgs& args, const Unit& unit,
                                        const Sight& sight, uint32_t first, uint32_t tile) {
    if constexpr (kFloat8) {
      if (!HasSlotScales(args) || LaneIndex() >= kCopiedRows) return;
      const uint32_t token = WarpIndex() * kCopiedRows + LaneIndex();
      const TokenScales scales = FindScales(args, unit, sight, first + token);
      StoreShared(ScalesOfTile(tile) + token * 8, Vector8{{std::bit_cast<uint32_t>(scales.key),
                                                           std::bit_cast<uint32_t>(scales.value)}});
    }
  }

  // Multiplies the tile's scores, or its weights, by the scales of the lane's keys.
  enum class ScaledPart : uint8_t { kKeys, kValues };
  template <ScaledPart kPart>
  static PAGODA_DEVICE void MultiplyByScales(const AttentionArgs& args, uint32_t tile,
                                             Scores& scores) {
    if constexpr (kFloat8) {
      if (!HasSlotScales(args)) return;
      constexpr uint32_t kOffset = kPart == ScaledPart::kKeys ? 0 : 4;
#pragma unroll
      for (uint32_t n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (uint32_t r = 0; r < 2; ++r) {
          const uint32_t token = 8 * n + LaneIndex() % 4 * 2 + r;
          const float scale = LoadShared<float>(ScalesOfTile(tile) + token * 8 + kOffset);
#pragma unroll
          for (uint32_t m = 0; m < kRowTiles; ++m) {
            scores[m][n][r] *= scale;
            scores[m][n][r + 2] *= scale;
          }
        }
      }
    }
  }

  static PAGODA_DEVICE void Attend(const AttentionArgs& args, const Unit& unit,
                                   uint32_t first_row) {
    const uint32_t num_rows = unit.num_rows - first_row < kRows ? unit.num_rows - first_row : kRows;
    Sight sight = {.first_position = unit.first_position + first_row / args.group,
                   .last_position = unit.first_position + (first_row + num_rows - 1) / args.group,
                   .end_key = unit.item.end_key};
    if (args.mask.causal && sight.last_position + 1 < sight.end_key) {
      sight.end_key = sight.last_position + 1;
    }
    const uint32_t key_chunks = args.kv.head_dim * (kFloat8 ? 1 : 2) / 16;
    const uint32_t value_chunks = args.value_dim * (kFloat8 ? 1 : 2) / 16;
    const float scale = args.scale * KeyScale(args, unit.kv_head);

    SyncThreads();  // The previous tiles have been read.
    LoadQueries<kDim, kRows, kFloat8>(args, unit, first_row, num_rows, SharedBase(), kThreads);
    WarpState state;
    Clear(state);

    uint32_t first = NextTile<kTokens>(args, sight, unit.item.first_key);
    uint64_t offset = FindLanesRow(args, unit, sight, first);
    if (first < sight.end_key) CopyTile(KeyTile(0), args.kv.keys, offset, key_chunks);
    WriteScales(args, unit, sight, first, 0);
    CommitCopies();
    if (first < sight.end_key) CopyTile(ValueTile(0), args.kv.values, offset, value_chunks);
    CommitCopies();
#pragma unroll 1
    for (uint32_t i = 0; first < sight.end_key; ++i) {
      const uint32_t next = NextTile<kTokens>(args, sight, first + kTokens);
      const bool more = next < sight.end_key;
      if (more) {
        offset = FindLanesRow(args, unit, sight, next);
        CopyTile(KeyTile(i + 1), args.kv.keys, offset, key_chunks);
        WriteScales(args, unit, sight, next, i + 1);
      }
      CommitCopies();
      WaitForCopies<2>();
      SyncThreads();  // K is there; the previous V is read, and the queries are written.
      Scores scores;
      Multiply(args.kv.type, KeyTile(i), scores);
      MultiplyByScales<ScaledPart::kKeys>(args, i, scores);
      Weigh(args, unit, sight, scale, first_row, first, scores, state);
      // In the sum of values, not in that of weights. Before the next barrier, behind which other
      // warps write the next tile's scales here.
      MultiplyByScales<ScaledPart::kValues>(args, i, scores);
      if (more) CopyTile(ValueTile(i + 1), args.kv.values, offset, value_chunks);
      CommitCopies();
      WaitForCopies<2>();
      SyncThreads();  // V is there; K has been read.
      AddValues(args.kv.type, ValueTile(i), scores, state);
      first = next;
    }
    WaitForCopies<0>();
    Store(args, unit, first_row, num_rows, state);
  }

  static PAGODA_DEVICE void CopyTile(uint32_t tile, const std::byte* base, uint64_t offset,
                                     uint32_t chunks) {
    CopyRows<kRowBytes, kCopiedRows>(tile, WarpIndex() * kCopiedRows, base, offset, chunks);
  }

  static PAGODA_DEVICE void Clear(WarpState& state) {
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (uint32_t n = 0; n < kValueTiles; ++n) {
        for (uint32_t r = 0; r < 4; ++r) state.sums[m][n][r] = 0;
      }
      for (uint32_t e = 0; e < 2; ++e) {
        state.largest[m][e] = NegativeInfinity();
        state.weights[m][e] = 0;
      }
    }
  }

  // S = Q K^T.
  static PAGODA_DEVICE void Multiply(ElementType type, uint32_t keys, Scores& scores) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (uint32_t n = 0; n < kTokenTiles; ++n) {
        for (uint32_t r = 0; r < 4; ++r) scores[m][n][r] = 0;
      }
    }
    const uint32_t queries =
        SharedBase() + TileOffset<kDim * 2>(WarpIndex() * kWarpsRows + lane % 16, lane / 16);
    keys += kFloat8 ? TileOffset<kRowBytes>(lane, 0)
                    : TileOffset<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
      uint32_t rows[kRowTiles][4];
#pragma unroll
      for (uint32_t m = 0; m < kRowTiles; ++m) {
        LoadMatrices(rows[m], ChunksAfter(queries, 2 * step) + m * 16 * kDim * 2);
      }
      if constexpr (kFloat8) {
        // A chunk has all 16 elements of the step.
#pragma unroll
        for (uint32_t n = 0; n < kTokenTiles; n += 4) {
          uint32_t bytes[4];
          LoadMatrices(bytes, ChunksAfter(keys, step) + 8 * n * kRowBytes);
#pragma unroll
          for (uint32_t k = 0; k < 4; ++k) {
            uint32_t columns[2];
            FromFloat8<T>(bytes[k], type, columns[0], columns[1]);
#pragma unroll
            for (uint32_t m = 0; m < kRowTiles; ++m) {
              MultiplyMatrices<T>(scores[m][n + k], rows[m], columns[0], columns[1]);
            }
          }
        }
      } else {
#pragma unroll
        for (uint32_t n = 0; n < kTokenTiles; n += 2) {
          uint32_t columns[4];
          LoadMatrices(columns, ChunksAfter(keys, 2 * step) + 8 * n * kRowBytes);
#pragma unroll
          for (uint32_t m = 0; m < kRowTiles; ++m) {
            MultiplyMatrices<T>(scores[m][n], rows[m], columns[0], columns[1]);
            MultiplyMatrices<T>(scores[m][n + 1], rows[m], columns[2], columns[3]);
          }
        }
      }
    }
  }

  // Turns products into weights, and rescales the sums to the rows' new largest scores.
  static PAGODA_DEVICE void Weigh(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                  float scale, uint32_t first_row, uint32_t first, Scores& scores,
                                  WarpState& state) {
    const bool bends = args.soft_cap > 0 || args.alibi_slopes != nullptr;
    const bool sees_all =
        first + kTokens <= sight.end_key &&
        SeesAll(args.mask, sight.first_position, sight.last_position, first, first + kTokens - 1);
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        if (bends) {
          BendRow(args, unit, scale, RowOf(first_row, m, 2 * e), first, e, scores[m]);
        } else {
          const float factor = scale * kLog2E;
#pragma unroll
          for (uint32_t n = 0; n < kTokenTiles; ++n) {
            scores[m][n][2 * e] *= factor;
            scores[m][n][2 * e + 1] *= factor;
          }
        }
        if (!sees_all)
          MaskRow</*kSparse=*/true>(args, unit, sight, RowOf(first_row, m, 2 * e), first, e,
                                    scores[m]);
        WeighRow(m, e, scores, state);
      }
    }
  }

  // Rows lane / 4 + 8 e of tile m.
  static PAGODA_DEVICE void WeighRow(uint32_t m, uint32_t e, Scores& scores, WarpState& state) {
    float largest = state.largest[m][e];
#pragma unroll
    for (uint32_t n = 0; n < kTokenTiles; ++n) {
      largest = LargerOf(scores[m][n][2 * e], largest);
      largest = LargerOf(scores[m][n][2 * e + 1], largest);
    }
    largest = LargerOf(largest, ShuffleXor(largest, 1));
    largest = LargerOf(largest, ShuffleXor(largest, 2));
    // No key seen yet: all scores are -infinity, and weights 0.
    const float reference = largest == NegativeInfinity() ? 0.0f : largest;
    const float factor = Exp2(state.largest[m][e] - reference);
    state.largest[m][e] = largest;
    float sum = state.weights[m][e] * factor;
#pragma unroll
    for (uint32_t n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (uint32_t r = 2 * e; r < 2 * e + 2; ++r) {
        scores[m][n][r] = Exp2(scores[m][n][r] - reference);
        sum += scores[m][n][r];
      }
    }
    state.weights[m][e] = sum;
#pragma unroll
    for (uint32_t n = 0; n < kValueTiles; ++n) {
      state.sums[m][n][2 * e] *= factor;
      state.sums[m][n][2 * e + 1] *= factor;
    }
  }

  // O += P V. Two tiles of a product's result have the form of its left matrix.
  static PAGODA_DEVICE void AddValues(ElementType type, uint32_t values, const Scores& weights,
                                      WarpState& state) {
    values += TileOffset<kRowBytes>(LaneIndex() % 16, LaneIndex() / 16);
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
      uint32_t rows[kRowTiles][4];
#pragma unroll
      for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const float(&tile)[4] = weights[m][2 * k + i / 2];
          rows[m][i] = PackPair<T>(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (uint32_t n = 0; n < kValueTiles; n += kFloat8 ? 4 : 2) {
        uint32_t matrices[4];
        if constexpr (kFloat8) {
          // Each has pairs of elements of two tokens, transposed pair by pair: the even ones make a
          // tile, the odd ones the next.
          LoadMatricesTransposed(matrices, ChunksAfter(values, n / 2) + 16 * k * kRowBytes);
#pragma unroll
          for (uint32_t i = 0; i < 2; ++i) {
            uint32_t even[2];
            uint32_t odd[2];
            FromFloat8<T>(PermuteBytes(matrices[2 * i], 0x3120), type, even[0], odd[0]);
            FromFloat8<T>(PermuteBytes(matrices[2 * i + 1], 0x3120), type, even[1], odd[1]);
#pragma unroll
            for (uint32_t m = 0; m < kRowTiles; ++m) {
              MultiplyMatrices<T>(state.sums[m][n + 2 * i], rows[m], even[0], even[1]);
              MultiplyMatrices<T>(state.sums[m][n + 2 * i + 1], rows[m], odd[0], odd[1]);
            }
          }
        } else {
          LoadMatricesTransposed(matrices, ChunksAfter(values, n) + 16 * k * kRowBytes);
#pragma unroll
          for (uint32_t m = 0; m < kRowTiles; ++m) {
            MultiplyMatrices<T>(state.sums[m][n], rows[m], matrices[0], matrices[1]);
            MultiplyMatrices<T>(state.sums[m][n + 1], rows[m], matrices[2], matrices[3]);
          }
        }
      }
    }
  }

  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                  uint32_t num_rows, WarpState& state) {
    const uint32_t lane = LaneIndex();
    const bool whole = unit.item.partial == kWholeItem;
    const float scale = ValueScale(args, unit.kv_head);
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        float sum = state.weights[m][e];
        sum += ShuffleXor(sum, 1);
        sum += ShuffleXor(sum, 2);
        const uint32_t row = RowOf(first_row, m, 2 * e);
        if (row >= first_row + num_rows) continue;
        const RowEnd end = EndRow(args, state.largest[m][e], sum,
                                  unit.kv_head * args.group + row % args.group, whole);
        if (lane % 4 == 0) StoreLogSum(args, unit, row, end.log_sum);
        const float factor = end.factor * scale;
#pragma unroll
        for (uint32_t n = 0; n < kValueTiles; n += 2) {
          const float first = state.sums[m][n][2 * e] * factor;
          const float second = state.sums[m][n][2 * e + 1] * factor;
          const float third = state.sums[m][n + 1][2 * e] * factor;
          const float fourth = state.sums[m][n + 1][2 * e + 1] * factor;
          // value_dim is a multiple of 8, of 16 for 8-bit pools.
          const uint32_t element = 8 * n;
          if constexpr (kFloat8) {
            if (element >= args.value_dim) continue;
            StorePair<T>(args, unit, row, element + lane % 4 * 4, first, third);
            StorePair<T>(args, unit, row, element + lane % 4 * 4 + 2, second, fourth);
          } else {
            if (element >= args.value_dim) continue;
            StorePair<T>(args, unit, row, element + lane % 4 * 2, first, second);
            if (element + 8 >= args.value_dim) continue;
            StorePair<T>(args, unit, row, element + 8 + lane % 4 * 2, third, fourth);
          }
        }
      }
    }
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_PREFILL_H_
