// The work of a warp in attention of few rows: 16 tokens at a time against the unit's rows, by
//   S^T = K Q^T,  O^T = V^T P^T
// with tokens and values as the left matrix's rows, and the unit's rows as its columns.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_ROWS_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_ROWS_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/float8.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, the type of the products. kFormat: that of K and V; 16 bits are T.
// kDim: at least head_dim. kColumnTiles x 8: at least the unit's rows. Layout gives the places:
//   static constexpr uint32_t kMostKept;
//     // The most right matrices of a unit to keep in registers; if there are more, none is kept.
//   static uint32_t Queries();
//     // Where LoadQueries writes the queries.
//   static uint32_t Offset(uint32_t row, uint32_t chunk);
//     // The offset of 16 bytes in 16 tokens of K or V.
template <class T, KvFormat kFormat, uint32_t kDim, uint32_t kColumnTiles, class Layout>
class DecodeRows {
 public:
  static constexpr bool kFloat8 = kFormat != KvFormat::k16Bits;
  static constexpr uint32_t kTokens = 16;
  static constexpr uint32_t kRows = kColumnTiles * 8;
  static constexpr uint32_t kResultBytes = (kDim + 4) * 4;  // Per row.
  static constexpr uint32_t kSteps = kDim / 16;             // Products along head_dim.
  static constexpr bool kKeepQueries = kSteps * kColumnTiles <= Layout::kMostKept;

  // The right matrices: of all products, or none if they are not kept.
  using Queries = uint32_t[kKeepQueries ? kSteps : 1][kColumnTiles][2];

  // O^T: element r of sums[i][t] belongs to column 8 t + 2 (lane % 4) + r % 2, and to the value's
  // element that ValueElement returns.
  struct WarpState {
    float sums[kSteps][kColumnTiles][4];
    float largest[kColumnTiles][2];  // The reference of the columns' weights.
    float weights[kColumnTiles][2];  // The sums of weights, of the lane's tokens.
  };

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

  static PAGODA_DEVICE void KeepQueries(Queries& queries) {
    if constexpr (kKeepQueries) {
#pragma unroll
      for (uint32_t step = 0; step < kSteps; step += 2) LoadColumns(step, &queries[step]);
    }
  }

  // The scales of a lane's tokens of a tile, lane / 4 and lane / 4 + 8, if slots have their own.
  struct LaneScales {
    bool used = false;
    TokenScales of[2];
  };
  static PAGODA_DEVICE LaneScales ScalesOfLane(const AttentionArgs& args, const Unit& unit,
                                               const Sight& sight, uint32_t first) {
    LaneScales scales;
    if constexpr (kFloat8) {
      if (!HasSlotScales(args)) return scales;
      scales.used = true;
      for (uint32_t i = 0; i < 2; ++i) {
        scales.of[i] = FindScales(args, unit, sight, first + LaneIndex() / 4 + i * 8);
      }
    }
    return scales;
  }

  // Adds the 16 tokens from position `first` on, whose K is there, to the softmax. The result is
  // the tokens' weights, for AddValues.
  static PAGODA_DEVICE void WeighKeys(const AttentionArgs& args, const Unit& unit,
                                      const Sight& sight, float scale, const LaneScales& lane,
                                      uint32_t first, uint32_t keys, const Queries& queries,
                                      WarpState& state, float (&scores)[kColumnTiles][4]) {
    Multiply(keys, queries, scores);
    if (kFloat8 && lane.used) {
#pragma unroll
      for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) scores[t][r] *= lane.of[r / 2].key;
      }
    }
    // Element r belongs to token lane / 4 + r / 2 * 8 and to column 8 t + 2 (lane % 4) + r % 2.
    const bool plain =
        first >= sight.first_key && first + kTokens <= sight.end_key && args.soft_cap == 0 &&
        args.alibi_slopes == nullptr &&
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
        // No key seen yet: all scores are -infinity, and weights 0.
        scores[t][r] = Exp2(scores[t][r] - (reference == NegativeInfinity() ? 0.0f : reference));
        state.weights[t][r % 2] += scores[t][r];
        // The values' scale counts in the sum of values, not in that of weights.
        if (kFloat8 && lane.used) scores[t][r] *= lane.of[r / 2].value;
      }
    }
  }

  // O^T += V^T P^T. The product of K and Q leaves the weights with tokens downwards; the right
  // matrix needs them across.
  static PAGODA_DEVICE void AddValues(uint32_t values, const float (&weights)[kColumnTiles][4],
                                      WarpState& state) {
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
        // Each matrix has pairs of elements of two tokens, transposed pair by pair.
        uint32_t bytes[4];
        LoadMatricesTransposed(bytes, values + Layout::Offset(lane % 16, i + lane / 16));
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          FromFloat8<kFormat, T>(PermuteBytes(bytes[2 * k], 0x3120), rows[k][0], rows[k][1]);
          FromFloat8<kFormat, T>(PermuteBytes(bytes[2 * k + 1], 0x3120), rows[k][2], rows[k][3]);
        }
      } else {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          LoadMatricesTransposed(rows[k], values + Layout::Offset(lane % 8 + lane / 16 * 8,
                                                                  2 * (i + k) + lane / 8 % 2));
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

  // Writes a warp's results to shared memory: rows of kResultBytes from `results` on, and the rows'
  // largest scores and sums from `ends` on.
  static PAGODA_DEVICE void StoreWarp(const WarpState& state, uint32_t results, uint32_t ends) {
    const uint32_t column = LaneIndex() % 4 * 2;
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        const uint32_t row = results + (8 * t + column + r % 2) * kResultBytes;
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
            ends + (8 * t + column + e) * 8,
            Vector8{{std::bit_cast<uint32_t>(state.largest[t][e]), std::bit_cast<uint32_t>(sum)}});
      }
    }
  }

  // Stores `element` and the next element of a row: the warps' results, each by its share, in the
  // output or the partial rows. Warp w's results are at results + w * result_step, and its ends at
  // ends + w * kRows * 8.
  template <uint32_t kWarps>
  static PAGODA_DEVICE void StoreResult(const AttentionArgs& args, const Unit& unit, uint32_t row,
                                        uint32_t element, float scale, uint32_t results,
                                        uint32_t result_step, uint32_t ends) {
    float references[kWarps];
    float sums[kWarps];
    float largest = NegativeInfinity();
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
      const auto words = LoadShared<Vector8>(ends + (w * kRows + row) * 8);
      references[w] = std::bit_cast<float>(words.words[0]);
      sums[w] = std::bit_cast<float>(words.words[1]);
      largest = LargerOf(largest, references[w]);
    }
    float sum = 0;
    float first = 0;
    float second = 0;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
      // A warp that saw no key; not one with only NaN scores.
      if (references[w] == NegativeInfinity() && sums[w] == 0) continue;
      const float share = Exp2(references[w] - largest);
      const auto words =
          LoadShared<Vector8>(results + w * result_step + row * kResultBytes + element * 4);
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

 private:
  // Scores can exceed the reference of their weights by this factor, 2^8, before it is moved.
  static constexpr float kSlack = 8;

  static PAGODA_DEVICE uint32_t ValueElement(uint32_t i, uint32_t r) {
    return kFloat8 ? 16 * i + LaneIndex() / 4 * 2 + r / 2 : 16 * i + LaneIndex() / 4 + r / 2 * 8;
  }

  // Loads the queries as right matrices, for two products along head_dim.
  static PAGODA_DEVICE void LoadColumns(uint32_t step, uint32_t (*columns)[kColumnTiles][2]) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
      uint32_t matrices[4];
      LoadMatrices(matrices,
                   Layout::Queries() + TileOffset<kDim * 2>(8 * t + lane % 8, 2 * step + lane / 8));
      columns[0][t][0] = matrices[0];
      columns[0][t][1] = matrices[1];
      columns[1][t][0] = matrices[2];
      columns[1][t][1] = matrices[3];
    }
  }

  // Computes S^T of a tile.
  static PAGODA_DEVICE void Multiply(uint32_t keys, const Queries& queries,
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
        // A chunk has 16 elements, all of one product.
        uint32_t bytes[4];
        LoadMatrices(bytes, keys + Layout::Offset(lane % 16, step + lane / 16));
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          FromFloat8<kFormat, T>(bytes[2 * k], rows[k][0], rows[k][2]);
          FromFloat8<kFormat, T>(bytes[2 * k + 1], rows[k][1], rows[k][3]);
        }
      } else {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          LoadMatrices(rows[k], keys + Layout::Offset(lane % 16, 2 * (step + k) + lane / 16));
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

  // Moves the columns' references to the largest scores, and rescales their sums.
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
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_ROWS_H_
