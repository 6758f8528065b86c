// The softmax of a row, for any registers `Simd`. Included after vectors/simd_avx2.h or
// vectors/simd_avx512.h, and in an anonymous namespace like them.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_SIMD_SOFTMAX_H_
#define PAGODA_KERNELS_CPU_ATTENTION_SIMD_SOFTMAX_H_

#include "kernels/cpu/attention/attention_tile.h"

namespace pagoda::kernels::cpu {
namespace {

using F = Simd::F;

constexpr float kUnseen = -__builtin_inff();

// 2^x within 1e-7; 0 for -infinity. The polynomial is from Cephes, by S. Moshier.
inline F Exp2(F x) {
  const F rest = Simd::RoundingRest(x);
  F y = Simd::Set(1.535336188319500e-4f);
  y = Simd::Fma(y, rest, Simd::Set(1.339887440266574e-3f));
  y = Simd::Fma(y, rest, Simd::Set(9.618437357674640e-3f));
  y = Simd::Fma(y, rest, Simd::Set(5.550332471162809e-2f));
  y = Simd::Fma(y, rest, Simd::Set(2.402264791363012e-1f));
  y = Simd::Fma(y, rest, Simd::Set(6.931472028550421e-1f));
  y = Simd::Fma(y, rest, Simd::Set(1.0f));
  return Simd::ScaleBy(y, Simd::RoundToInteger(x));
}

// Also from Cephes: a polynomial near 0, because the formula would lose digits there.
inline F Tanh(F x) {
  const F square = Simd::Mul(x, x);
  F y = Simd::Set(-5.70498872745e-3f);
  y = Simd::Fma(y, square, Simd::Set(2.06390887954e-2f));
  y = Simd::Fma(y, square, Simd::Set(-5.37397155531e-2f));
  y = Simd::Fma(y, square, Simd::Set(1.33314422036e-1f));
  y = Simd::Fma(y, square, Simd::Set(-3.33332819422e-1f));
  y = Simd::Fma(Simd::Mul(y, square), x, x);
  const F power = Exp2(Simd::Mul(Simd::Abs(x), Simd::Set(-2.885390081777927f)));  // -2 / ln 2.
  const F one = Simd::Set(1.0f);
  const F far = Simd::CopySign(Simd::Div(Simd::Sub(one, power), Simd::Add(one, power)), x);
  return Simd::IfSmall(x, 0.625f, y, far);
}

// Turns the dot products of row r with `tokens` keys (a multiple of kLanes) into weights in place,
// and adds them to the row's largest score and weight sum. Returns the factor for the row's
// existing sums. Bit t of visible[t / 32]: the row sees token t; null: it sees all.
inline float Weigh(const ScoreRule& rule, const RowStates& rows, uint32_t r, uint32_t tokens,
                   const uint32_t* visible, float* scores) {
  constexpr uint32_t kLanes = Simd::kLanes;
  const F multiplier = Simd::Set(rule.multiplier);
  F largest_lanes = Simd::Set(kUnseen);
  const bool plain = rule.cap == 0 && rows.first_biases == nullptr && visible == nullptr;
  if (plain) {
    for (uint32_t t = 0; t < tokens; t += kLanes) {
      largest_lanes = Simd::Max(largest_lanes, Simd::Mul(Simd::Load(scores + t), multiplier));
    }
  } else {
    const bool biased = rows.first_biases != nullptr;
    const F slope = Simd::Set(biased ? rows.biases_per_token[r] : 0);
    const F first = Simd::Set(biased ? rows.first_biases[r] : 0);
    for (uint32_t t = 0; t < tokens; t += kLanes) {
      F score = Simd::Mul(Simd::Load(scores + t), multiplier);
      if (rule.cap != 0) score = Simd::Mul(Tanh(score), Simd::Set(rule.cap));
      if (biased) {
        const F token = Simd::Add(Simd::Iota(), Simd::Set(static_cast<float>(t)));
        score = Simd::Add(score, Simd::Fma(slope, token, first));
      }
      if (visible != nullptr) {
        score = Simd::Select(score, visible[t / kTileTokens] >> (t % kTileTokens));
      }
      Simd::Store(scores + t, score);
      largest_lanes = Simd::Max(largest_lanes, score);
    }
  }

  const float before = rows.largest[r];
  const float here = Simd::ReduceMax(largest_lanes);
  const float largest = here > before ? here : before;
  F sum = Simd::Zero();
  if (largest == kUnseen) {  // No key was seen, or only NaN. NaN stays: of two numbers, Max takes
                             // the second if one is NaN.
    for (uint32_t t = 0; t < tokens; t += kLanes) {
      const F weight = Simd::Max(Simd::Zero(), Simd::Load(scores + t));
      Simd::Store(scores + t, weight);
      sum = Simd::Add(sum, weight);
    }
    rows.weight_sums[r] += Simd::ReduceAdd(sum);
    return 1.0f;
  }
  const F shift = Simd::Set(-largest);
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    const F score = Simd::Load(scores + t);
    const F weight = Exp2(plain ? Simd::Fma(score, multiplier, shift) : Simd::Add(score, shift));
    Simd::Store(scores + t, weight);
    sum = Simd::Add(sum, weight);
  }
  float factor = 1.0f;
  if (largest != before) {
    float lanes[kLanes];
    Simd::Store(lanes, Exp2(Simd::Set(before - largest)));
    factor = lanes[0];
    rows.largest[r] = largest;
  }
  rows.weight_sums[r] = rows.weight_sums[r] * factor + Simd::ReduceAdd(sum);
  return factor;
}

// Multiplies each token's number by its scale. `tokens` is a multiple of kLanes; null: 1.
inline void ScaleTokens(const float* scales, uint32_t tokens, float* numbers) {
  if (scales == nullptr) return;
  for (uint32_t t = 0; t < tokens; t += Simd::kLanes) {
    Simd::Store(numbers + t, Simd::Mul(Simd::Load(numbers + t), Simd::Load(scales + t)));
  }
}

inline void Scale(float* sums, uint32_t size, float factor) {
  if (factor == 1.0f) return;
  const F f = Simd::Set(factor);
  for (uint32_t i = 0; i < size; i += Simd::kLanes) {
    Simd::Store(sums + i, Simd::Mul(Simd::Load(sums + i), f));
  }
}

// The registers of each row's sums, from element e on.
template <uint32_t kRows, uint32_t kVectors>
[[gnu::always_inline]] inline void LoadSums(const RowStates& rows, uint32_t e,
                                            F (&sums)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      sums[r][v] = Simd::Load(rows.sums + r * rows.sum_stride + e + v * Simd::kLanes);
    }
  }
}
template <uint32_t kRows, uint32_t kVectors>
[[gnu::always_inline]] inline void StoreSums(const RowStates& rows, uint32_t e,
                                             const F (&sums)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      Simd::Store(rows.sums + r * rows.sum_stride + e + v * Simd::kLanes, sums[r][v]);
    }
  }
}

// Turns the scores of a decode tile into weights, and scales the first num_sums of each row's sums.
template <uint32_t kRows>
[[gnu::always_inline]] inline void WeighTile(const DecodeTile& tile, uint32_t num_sums,
                                             float (*scores)[kTileTokens]) {
  const uint32_t all = tile.tokens == kTileTokens ? ~uint32_t{0} : (1u << tile.tokens) - 1;
  const uint32_t* visible = tile.visible == all ? nullptr : &tile.visible;
  for (uint32_t r = 0; r < kRows; ++r) {
    ScaleTokens(tile.key_scales, tile.tokens, scores[r]);
    const float factor = Weigh(tile.rule, tile.rows, r, tile.tokens, visible, scores[r]);
    ScaleTokens(tile.value_scales, tile.tokens, scores[r]);
    Scale(tile.rows.sums + r * tile.rows.sum_stride, num_sums, factor);
  }
}

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_SIMD_SOFTMAX_H_
