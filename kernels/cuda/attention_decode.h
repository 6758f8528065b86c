// Attention of few rows on tensor cores: decode, and short chunks.
//
// Keys are the long side, so they are the rows of the products' left matrix, 16 at a time, and the
// unit's rows, a KV head's query heads and tokens, are the columns, 8 at a time, without the waste
// of a tile of 64 rows (as TensorRT-LLM's XQA does it):
//   S^T = K Q^T,  O^T = V^T P^T.
// A warp is on its own: it has a ring of stages in shared memory, each with K and V of 16 tokens,
// which asynchronous copies fill ahead, walks every fourth tile of the unit's keys, and needs no
// barrier but its own. At the unit's end the warps' results are put together, in their order.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_DECODE_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_DECODE_H_

#include <cstdint>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_unit.h"
#include "kernels/cuda/device.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, in which is multiplied. kFloat8: K and V have 8 bits, else they are T.
// kDim: at least head_dim; kColumnTiles x 8: at least the unit's rows.
template <class T, bool kFloat8, uint32_t kDim, uint32_t kColumnTiles>
class DecodeKernel {
 public:
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kTokens = 16;  // Of a warp's tile.
  static constexpr uint32_t kRows = kColumnTiles * 8;
  static constexpr uint32_t kRowBytes = kDim * (kFloat8 ? 1 : 2);
  static constexpr uint32_t kTileBytes = kTokens * kRowBytes;
  static constexpr uint32_t kStageBytes = 2 * kTileBytes;
  // Two blocks of a multiprocessor, 64 KiB each, wait for memory at a time.
  static constexpr uint32_t kStages = kStageBytes > 8192
                                          ? 2
                                          : (24576 / kStageBytes < 6 ? 24576 / kStageBytes : 6);
  static constexpr uint32_t kRingBytes = kStages * kStageBytes;  // Of a warp.
  static constexpr uint32_t kQueryBytes = kRows * kDim * 2;
  static constexpr uint32_t kResultBytes = (kDim + 4) * 4;     // Of a row, in a warp's ring.
  static constexpr uint32_t kStateBytes = kWarps * kRows * 8;  // The rows' largest and sum.
  static constexpr uint32_t kSharedBytes = kQueryBytes + kStateBytes + kWarps * kRingBytes;
  static constexpr uint32_t kMinBlocks = kSharedBytes <= 110 * 1024 ? 2 : 1;
  static_assert(kRows * kResultBytes <= kRingBytes);
  using Args = AttentionLaunch;

  static PAGODA_DEVICE void Run(const AttentionLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const uint64_t num_units = NumUnits(args, launch.kind);
    for (uint64_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
      LoadQueries<kDim, kRows, kFloat8>(args, unit, 0, unit.num_rows, SharedBase(), kThreads);
      SyncThreads();  // The queries are there, and the unit before has been stored.
      WarpState state;
      WalkKeys(args, unit, state);
      Combine(args, unit, state);
    }
  }

 private:
  static constexpr uint32_t kSteps = kDim / 16;                      // Products along head_dim.
  static constexpr bool kKeepQueries = kSteps * kColumnTiles <= 16;  // In registers.
  // Scores may exceed the reference of their weights by this factor, 2^8, before it is moved.
  static constexpr float kSlack = 8;

  // O^T: element r of sums[i][t] is of column 8 t + 2 (lane % 4) + r % 2, and of the value's
  // element that ValueElement names.
  struct WarpState {
    float sums[kSteps][kColumnTiles][4];
    float largest[kColumnTiles][2];  // The reference of the columns' weights.
    float weights[kColumnTiles][2];  // Their sums, of the lane's tokens.
  };

  static PAGODA_DEVICE uint32_t StateBase() { return SharedBase() + kQueryBytes; }
  static PAGODA_DEVICE uint32_t RingBase() {
    return SharedBase() + kQueryBytes + kStateBytes + WarpIndex() * kRingBytes;
  }

  static PAGODA_DEVICE uint32_t ValueElement(uint32_t i, uint32_t r) {
    return kFloat8 ? 16 * i + LaneIndex() / 4 * 2 + r / 2 : 16 * i + LaneIndex() / 4 + r / 2 * 8;
  }

  // The next tile after `tile` that may be seen.
  static PAGODA_DEVICE uint32_t NextTile(const AttentionArgs& args, const Unit& unit,
                                         const Sight& sight, uint32_t tile, uint32_t end) {
    while (tile < end) {
      const uint32_t first = unit.item.first_key + tile * kTokens;
      if (MaySee(args.mask, sight.first_position, sight.last_position, first,
                 first + kTokens - 1)) {
        break;
      }
      tile += kWarps;
    }
    return tile;
  }

  static PAGODA_DEVICE void WalkKeys(const AttentionArgs& args, const Unit& unit,
                                     WarpState& state) {
    Clear(state);
    const Sight sight = {.first_position = unit.first_position,
                         .last_position = unit.first_position + unit.item.num_queries - 1,
                         .end_key = unit.item.end_key};
    const uint32_t end = (unit.item.end_key - unit.item.first_key + kTokens - 1) / kTokens;
    const uint32_t key_chunks = args.kv.head_dim * (kFloat8 ? 1 : 2) / 16;
    const uint32_t value_chunks = args.value_dim * (kFloat8 ? 1 : 2) / 16;
    const float scale = args.scale * KeyScale(args, unit.kv_head);

    uint32_t queries[kKeepQueries ? kSteps : 1][kColumnTiles][2];
    if constexpr (kKeepQueries) {
#pragma unroll
      for (uint32_t step = 0; step < kSteps; step += 2) LoadColumns(step, &queries[step]);
    }

    // The tile that is copied next, and the offset of this lane's token in it, which is looked up
    // a tile ahead.
    uint32_t copied = NextTile(args, unit, sight, WarpIndex(), end);
    uint64_t offset = FindRow(args, unit, sight, KeyOfLane(unit, copied));
    uint32_t copy_stage = 0;
    const auto copy_next = [&] {
      if (copied < end) {
        const uint32_t stage = RingBase() + copy_stage * kStageBytes;
        CopyRows<kRowBytes, kTokens>(stage, 0, args.kv.keys, offset, key_chunks);
        CopyRows<kRowBytes, kTokens>(stage + kTileBytes, 0, args.kv.values, offset, value_chunks);
        copied = NextTile(args, unit, sight, copied + kWarps, end);
        offset = FindRow(args, unit, sight, KeyOfLane(unit, copied));
      }
      CommitCopies();
      copy_stage = copy_stage + 1 == kStages ? 0 : copy_stage + 1;
    };
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < kStages; ++i) copy_next();

    uint32_t stage = 0;
#pragma unroll 1
    for (uint32_t tile = NextTile(args, unit, sight, WarpIndex(), end); tile < end;
         tile = NextTile(args, unit, sight, tile + kWarps, end)) {
      WaitForCopies<kStages - 2>();
      // All lanes see the copies of all, and have read the stage that is filled next.
      SyncWarp();
      copy_next();
      Absorb(args, unit, sight, scale, unit.item.first_key + tile * kTokens,
             RingBase() + stage * kStageBytes, queries, state);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    WaitForCopies<0>();
  }

  static PAGODA_DEVICE uint32_t KeyOfLane(const Unit& unit, uint32_t tile) {
    return unit.item.first_key + tile * kTokens + LaneIndex() % kTokens;
  }

  static PAGODA_DEVICE void Clear(WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t i = 0; i < kSteps; ++i) {
        for (uint32_t r = 0; r < 4; ++r) state.sums[i][t][r] = 0;
      }
      for (uint32_t e = 0; e < 2; ++e) {
        state.largest[t][e] = NegativeInfinity();
        state.weights[t][e] = 0;
      }
    }
  }

  // The queries as right matrices, for two products along head_dim.
  static PAGODA_DEVICE void LoadColumns(uint32_t step, uint32_t (*columns)[kColumnTiles][2]) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
      uint32_t matrices[4];
      LoadMatrices(matrices,
                   SharedBase() + TileOffset<kDim * 2>(8 * t + lane % 8, 2 * step + lane / 8));
      columns[0][t][0] = matrices[0];
      columns[0][t][1] = matrices[1];
      columns[1][t][0] = matrices[2];
      columns[1][t][1] = matrices[3];
    }
  }

  // S^T of a tile.
  template <class Queries>
  static PAGODA_DEVICE void Multiply(ElementType type, uint32_t keys, const Queries& queries,
                                     float (&scores)[kColumnTiles][4]) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
      for (uint32_t r = 0; r < 4; ++r) scores[t][r] = 0;
    }
#pragma unroll
    for (uint32_t step = 0; step < kSteps; step += 2) {
      uint32_t rows[2][4];
      if constexpr (kFloat8) {
        // A chunk has 16 elements: all of one product.
        uint32_t bytes[4];
        LoadMatrices(bytes, keys + TileOffset<kRowBytes>(lane % 16, step + lane / 16));
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          FromFloat8<T>(bytes[2 * k], type, rows[k][0], rows[k][2]);
          FromFloat8<T>(bytes[2 * k + 1], type, rows[k][1], rows[k][3]);
        }
      } else {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          LoadMatrices(rows[k],
                       keys + TileOffset<kRowBytes>(lane % 16, 2 * (step + k) + lane / 16));
        }
      }
      uint32_t columns[2][kColumnTiles][2];
      if constexpr (!kKeepQueries) LoadColumns(step, columns);
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
#pragma unroll
        for (uint32_t t = 0; t < kColumnTiles; ++t) {
          if constexpr (kKeepQueries) {
            MultiplyMatrices<T>(scores[t], rows[k], queries[step + k][t][0],
                                queries[step + k][t][1]);
          } else {
            MultiplyMatrices<T>(scores[t], rows[k], columns[k][t][0], columns[k][t][1]);
          }
        }
      }
    }
  }

  // Takes the 16 tokens from position `first` on, whose K and V are in the stage, into the softmax.
  template <class Queries>
  static PAGODA_DEVICE void Absorb(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                   float scale, uint32_t first, uint32_t stage,
                                   const Queries& queries, WarpState& state) {
    float scores[kColumnTiles][4];
    Multiply(args.kv.type, stage, queries, scores);
    // Element r is of token lane / 4 + r / 2 * 8 and of column 8 t + 2 (lane % 4) + r % 2.
    const bool plain =
        first + kTokens <= sight.end_key && args.soft_cap == 0 && args.alibi_slopes == nullptr &&
        SeesAll(args.mask, sight.first_position, sight.last_position, first, first + kTokens - 1);
    bool higher = false;
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        if (plain) {
          scores[t][r] *= scale * kLog2E;
        } else {
          scores[t][r] = MaskedScore(args, unit, sight, scale, 8 * t + LaneIndex() % 4 * 2 + r % 2,
                                     first + LaneIndex() / 4 + r / 2 * 8, scores[t][r]);
        }
        higher = higher || scores[t][r] > state.largest[t][r % 2] + kSlack;
      }
    }
    if (AnyOfWarp(higher)) MoveReference(scores, state);
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        const float reference = state.largest[t][r % 2];
        // Nothing seen yet: all scores are -infinity, and weights 0.
        scores[t][r] = Exp2(scores[t][r] - (reference == NegativeInfinity() ? 0.0f : reference));
        state.weights[t][r % 2] += scores[t][r];
      }
    }
    AddValues(args.kv.type, stage + kTileBytes, scores, state);
  }

  // Moves the columns' references to the largest scores, and what was summed by them.
  static PAGODA_DEVICE void MoveReference(const float (&scores)[kColumnTiles][4],
                                          WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        float largest = LargerOf(scores[t][e], scores[t][e + 2]);
        // Over the lanes that have the column's other tokens.
        for (uint32_t mask = 4; mask < kWarpThreads; mask *= 2) {
          largest = LargerOf(largest, ShuffleXor(largest, mask));
        }
        largest = LargerOf(state.largest[t][e], largest);
        const float factor =
            largest == state.largest[t][e] ? 1.0f : Exp2(state.largest[t][e] - largest);
        state.largest[t][e] = largest;
        state.weights[t][e] *= factor;
#pragma unroll
        for (uint32_t i = 0; i < kSteps; ++i) {
          state.sums[i][t][e] *= factor;
          state.sums[i][t][e + 2] *= factor;
        }
      }
    }
  }

  // O^T += V^T P^T. The weights lie as the product of K and Q left them, tokens down; the right
  // matrix wants them across.
  static PAGODA_DEVICE void AddValues(ElementType type, uint32_t values,
                                      const float (&weights)[kColumnTiles][4], WarpState& state) {
    const uint32_t lane = LaneIndex();
    uint32_t columns[kColumnTiles][2];
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
      columns[t][0] = TransposeMatrix(PackPair<T>(weights[t][0], weights[t][1]));
      columns[t][1] = TransposeMatrix(PackPair<T>(weights[t][2], weights[t][3]));
    }
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i += 2) {
      uint32_t rows[2][4];
      if constexpr (kFloat8) {
        // Each matrix has pairs of elements of two tokens, transposed by the pair.
        uint32_t bytes[4];
        LoadMatricesTransposed(bytes, values + TileOffset<kRowBytes>(lane % 16, i + lane / 16));
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          FromFloat8<T>(PermuteBytes(bytes[2 * k], 0x3120), type, rows[k][0], rows[k][1]);
          FromFloat8<T>(PermuteBytes(bytes[2 * k + 1], 0x3120), type, rows[k][2], rows[k][3]);
        }
      } else {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          LoadMatricesTransposed(
              rows[k],
              values + TileOffset<kRowBytes>(lane % 8 + lane / 16 * 8, 2 * (i + k) + lane / 8 % 2));
        }
      }
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
#pragma unroll
        for (uint32_t t = 0; t < kColumnTiles; ++t) {
          MultiplyMatrices<T>(state.sums[i + k][t], rows[k], columns[t][0], columns[t][1]);
        }
      }
    }
  }

  // The warps' results, each by its share, to the output or the partial rows.
  static PAGODA_DEVICE void Combine(const AttentionArgs& args, const Unit& unit, WarpState& state) {
    SyncWarp();  // The ring is read by no lane any more.
    const uint32_t column = LaneIndex() % 4 * 2;
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        const uint32_t row = RingBase() + (8 * t + column + r % 2) * kResultBytes;
#pragma unroll
        for (uint32_t i = 0; i < kSteps; ++i) {
          StoreShared(row + ValueElement(i, r) * 4, state.sums[i][t][r]);
        }
      }
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        float sum = state.weights[t][e];
        for (uint32_t mask = 4; mask < kWarpThreads; mask *= 2) sum += ShuffleXor(sum, mask);
        if (LaneIndex() >= 4) continue;
        StoreShared(
            StateBase() + (WarpIndex() * kRows + 8 * t + column + e) * 8,
            Vector8{{std::bit_cast<uint32_t>(state.largest[t][e]), std::bit_cast<uint32_t>(sum)}});
      }
    }
    SyncThreads();
    const float scale = ValueScale(args, unit.kv_head);
    const uint32_t pairs = args.value_dim / 2;
    for (uint32_t i = ThreadIndex(); i < unit.num_rows * pairs; i += kThreads) {
      StoreResult(args, unit, i / pairs, i % pairs * 2, scale);
    }
  }

  static PAGODA_DEVICE void StoreResult(const AttentionArgs& args, const Unit& unit, uint32_t row,
                                        uint32_t element, float scale) {
    float references[kWarps];
    float sums[kWarps];
    float largest = NegativeInfinity();
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
      const auto words = LoadShared<Vector8>(StateBase() + (w * kRows + row) * 8);
      references[w] = std::bit_cast<float>(words.words[0]);
      sums[w] = std::bit_cast<float>(words.words[1]);
      largest = LargerOf(largest, references[w]);
    }
    float sum = 0;
    float first = 0;
    float second = 0;
    const uint32_t ring = SharedBase() + kQueryBytes + kStateBytes;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
      // A warp that saw nothing, not one all of whose scores are NaN.
      if (references[w] == NegativeInfinity() && sums[w] == 0) continue;
      const float share = Exp2(references[w] - largest);
      const auto words =
          LoadShared<Vector8>(ring + w * kRingBytes + row * kResultBytes + element * 4);
      sum += share * sums[w];
      first += share * std::bit_cast<float>(words.words[0]);
      second += share * std::bit_cast<float>(words.words[1]);
    }
    const uint32_t head = unit.kv_head * args.group + row % args.group;
    const RowEnd end = EndRow(args, largest, sum, head, unit.item.partial == kWholeItem);
    const float factor = end.factor * scale;
    StorePair<T>(args, unit, row, element, first * factor, second * factor);
    if (element == 0) StoreLogSum(args, unit, row, end.log_sum);
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_DECODE_H_
