// The softmax of a warpgroup's 64 rows, 16 a warp, over tiles of kTokens keys. Element r of
// scores[n] belongs to the tile's key 8 n + lane % 4 * 2 + r % 2, and to the warp's row lane / 4 (r
// < 2) or lane / 4 + 8.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_SOFTMAX_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_SOFTMAX_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_scores.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// The online softmax of a lane's two rows.
struct SoftmaxState {
  float largest[2];  // The largest scores, as base-2 logarithms.
  float weights[2];  // The sums of weights, of the lane's columns.
};

template <class T, uint32_t kTokens>
class HopperSoftmax {
 public:
  static constexpr uint32_t kTokenTiles = kTokens / 8;
  using Scores = float[kTokenTiles][4];
  using Weights = uint32_t[kTokens / 16][4];  // Packed as left matrices.

  static PAGODA_DEVICE void Clear(SoftmaxState& state) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      state.largest[e] = NegativeInfinity();
      state.weights[e] = 0;
    }
  }

  // Whether a positive factor is all that lies between the tile's products and scores. Prepare does
  // the rest for other tiles.
  static PAGODA_DEVICE bool IsPlain(const AttentionArgs& args, const Sight& sight, uint32_t first) {
    return args.scale > 0 && args.soft_cap == 0 && args.alibi_slopes == nullptr &&
           first >= sight.first_key && SeesTile(args, sight, first);
  }
  static PAGODA_DEVICE float FactorOf(const AttentionArgs& args) {
    return args.scale * kLog2E;  // Pools of 16 bits have no scales.
  }

  // Two tiles of a product's result have the form of its left matrix.
  static PAGODA_DEVICE void Pack(const Scores& scores, Weights& weights) {
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const float(&tile)[4] = scores[2 * k + i / 2];
        weights[k][i] = PackPair<T>(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
      }
    }
  }

  // Applies the mask, and everything but a positive factor, to the products of a tile that is not
  // plain. Returns the remaining factor. `row`: the unit's row of the first of the warp's 16 rows.
  static PAGODA_DEVICE float Prepare(const AttentionArgs& args, const Unit& unit,
                                     const Sight& sight, uint32_t row, uint32_t first,
                                     Scores& scores) {
    const bool bends = args.soft_cap > 0 || args.alibi_slopes != nullptr;
    const bool sees_tile = SeesTile(args, sight, first);
    const float factor = FactorOf(args);
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t lanes_row = row + LaneIndex() / 4 + 8 * e;
      if (bends) {
        BendRow(args, unit, args.scale, lanes_row, first, e, scores);
      } else if (factor <= 0) {
#pragma unroll
        for (uint32_t n = 0; n < kTokenTiles; ++n) {
          scores[n][2 * e] *= factor;
          scores[n][2 * e + 1] *= factor;
        }
      }
      if (!sees_tile) MaskRow</*kSparse=*/false>(args, unit, sight, lanes_row, first, e, scores);
      if (first < sight.first_key) MaskBefore(sight.first_key, first, e, scores);
    }
    return bends || factor <= 0 ? 1.0f : factor;
  }

  // Turns products into weights. `factor` turns them into scores; it is positive, so that the
  // largest score belongs to the largest product, and one multiplication and addition gives an
  // exponent. The caller must multiply the existing sums by `factors`.
  static PAGODA_DEVICE void Weigh(float factor, Scores& scores, SoftmaxState& state,
                                  float (&factors)[2]) {
    float largest[2];
    FindLargest(factor, scores, largest);
    WeighBelow(largest, factor, scores, state, factors);
  }

  // The largest scores of the lane's rows. NaN only if all of a row's products are.
  static PAGODA_DEVICE void FindLargest(float factor, const Scores& scores, float (&rows)[2]) {
    // Two chains of each row, because an operation waits for the previous one of its chain.
    float largest[2][2];
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      largest[e][0] = LargerOf(scores[0][2 * e], scores[0][2 * e + 1]);
      largest[e][1] = LargerOf(scores[1][2 * e], scores[1][2 * e + 1]);
    }
#pragma unroll
    for (uint32_t n = 2; n < kTokenTiles; ++n) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        largest[r / 2][n % 2] = LargerOf(largest[r / 2][n % 2], scores[n][r]);
      }
    }
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      float row = LargerOf(largest[e][0], largest[e][1]);
      row = LargerOf(row, ShuffleXor(row, 1));
      rows[e] = LargerOf(row, ShuffleXor(row, 2)) * factor;
    }
  }

  // Weigh, with `largest` scores of the rows that other tiles can have.
  static PAGODA_DEVICE void WeighBelow(const float (&largest)[2], float factor, Scores& scores,
                                       SoftmaxState& state, float (&factors)[2]) {
    float reference[2];
    MoveReference(largest, state, reference, factors);
    float sums[2][2] = {{state.weights[0], 0}, {state.weights[1], 0}};
#pragma unroll
    for (uint32_t n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        scores[n][r] = Exp2(scores[n][r] * factor - reference[r / 2]);
        sums[r / 2][n % 2] += scores[n][r];
      }
    }
    state.weights[0] = sums[0][0] + sums[0][1];
    state.weights[1] = sums[1][0] + sums[1][1];
  }

  // WeighBelow without keys.
  static PAGODA_DEVICE void Rescale(const float (&largest)[2], SoftmaxState& state,
                                    float (&factors)[2]) {
    float reference[2];
    MoveReference(largest, state, reference, factors);
  }

 private:
  // Moves the rows' references to the largest scores, and rescales their sums.
  static PAGODA_DEVICE void MoveReference(const float (&largest)[2], SoftmaxState& state,
                                          float (&reference)[2], float (&factors)[2]) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const float row = LargerOf(largest[e], state.largest[e]);  // Leaves NaN out.
      // No key seen yet: all scores are -infinity, and weights 0.
      reference[e] = row == NegativeInfinity() ? 0.0f : row;
      factors[e] = Exp2(state.largest[e] - reference[e]);
      state.largest[e] = row;
      state.weights[e] *= factors[e];
    }
  }

  // Whether every row sees every key of the tile; tiles before sight.first_key count as seen.
  static PAGODA_DEVICE bool SeesTile(const AttentionArgs& args, const Sight& sight,
                                     uint32_t first) {
    return first + kTokens <= sight.end_key &&
           SeesAll(args.mask, sight.first_position, sight.last_position, first,
                   first + kTokens - 1);
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_SOFTMAX_HOPPER_H_
