// The tiles of attention by fused multiplication of fp32, for any registers `Simd`. Included once
// in each file that is compiled for an instruction set.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_SIMD_ATTENTION_H_
#define PAGODA_KERNELS_CPU_ATTENTION_SIMD_ATTENTION_H_

#include "kernels/cpu/attention/row_fetcher.h"
#include "kernels/cpu/attention/simd_softmax.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr uint32_t kLanes = Simd::kLanes;
constexpr uint32_t kPairElements = 2 * kLanes;

// scores[r][t] = query r . key t.
template <ElementType kType, uint32_t kRows>
inline void DotKeys(const DecodeTile& tile, RowFetcher& fetcher, float (*scores)[kTileTokens]) {
  constexpr uint32_t kTokens = Simd::kDots / kRows;
  constexpr uint32_t kBytes = ElementBytes(kType);
  const auto* queries = static_cast<const float*>(tile.queries);
  const uint32_t pairs_end = tile.head_dim / kPairElements * kPairElements;
  for (uint32_t t = 0; t < tile.tokens; t += kTokens) {
    const std::byte* keys[kTokens];
    F sums[kRows * kTokens];
#pragma GCC unroll 16
    for (uint32_t k = 0; k < kTokens; ++k) keys[k] = tile.keys[t + k];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kRows * kTokens; ++i) sums[i] = Simd::Zero();
    if (kTokens <= kStepTokens) fetcher.Step();
    for (uint32_t e = 0; e < pairs_end; e += kPairElements) {
      if (kTokens > kStepTokens) fetcher.Step();
      F a[kTokens], b[kTokens];
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kTokens; ++k) {
        Simd::LoadPair<kType>(keys[k] + e * kBytes, a[k], b[k]);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const float* query = queries + e * kQueryRows + r * kPairElements;
        const F qa = Simd::Load(query);
        const F qb = Simd::Load(query + kLanes);
#pragma GCC unroll 16
        for (uint32_t k = 0; k < kTokens; ++k) {
          F& sum = sums[r * kTokens + k];
          sum = Simd::Fma(qa, a[k], sum);
          sum = Simd::Fma(qb, b[k], sum);
        }
      }
    }
    if (pairs_end < tile.head_dim) {  // kLanes elements.
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kTokens; ++k) {
        const F key = Simd::LoadElements<kType>(keys[k] + pairs_end * kBytes);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < kRows; ++r) {
          F& sum = sums[r * kTokens + k];
          sum =
              Simd::Fma(Simd::Load(queries + pairs_end * kQueryRows + r * kPairElements), key, sum);
        }
      }
    }
    Simd::StoreRows<kRows>(Simd::SumEach(sums), &scores[0][t], kTileTokens);
  }
}

// Adds weighted values to kVectors registers of each row's sums, from element e on. kPairs: the
// elements come two registers at a time.
template <ElementType kType, uint32_t kRows, uint32_t kVectors, bool kPairs>
inline void AddValues(const DecodeTile& tile, const float (*weights)[kTileTokens], uint32_t e,
                      RowFetcher& fetcher) {
  constexpr uint32_t kBytes = ElementBytes(kType);
  F sums[kRows][kVectors];
  LoadSums(tile.rows, e, sums);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    if (t % (2 * kStepTokens) == 0) fetcher.Step();
    const std::byte* value = tile.values[t] + e * kBytes;
    F x[kVectors];
    if constexpr (kPairs) {
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kVectors; v += 2) {
        Simd::LoadPair<kType>(value + v * kLanes * kBytes, x[v], x[v + 1]);
      }
    } else {
      x[0] = Simd::LoadElements<kType>(value);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const F weight = Simd::Set(weights[r][t]);
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] = Simd::Fma(weight, x[v], sums[r][v]);
    }
  }
  StoreSums(tile.rows, e, sums);
}

template <ElementType kType, uint32_t kRows>
void Decode(const DecodeTile& tile) {
  alignas(64) float scores[kRows][kTileTokens];
  constexpr uint32_t kElements = Simd::kValueVectors * kLanes;  // Elements added at a time.
  const uint32_t key_steps = FetchSteps<Simd::kDots / kRows>(tile, kPairElements);
  const uint32_t value_steps =
      tile.tokens / (2 * kStepTokens) * ((tile.value_dim + kElements - 1) / kElements);
  RowFetcher fetcher(tile, tile.head_dim * ElementBytes(kType), key_steps + value_steps);
  DotKeys<kType, kRows>(tile, fetcher, scores);
  WeighTile<kRows>(tile, tile.value_dim, scores);
  uint32_t e = 0;
  for (; e + kElements <= tile.value_dim; e += kElements) {
    AddValues<kType, kRows, Simd::kValueVectors, true>(tile, scores, e, fetcher);
  }
  if constexpr (Simd::kValueVectors > 2) {
    for (; e + kPairElements <= tile.value_dim; e += kPairElements) {
      AddValues<kType, kRows, 2, true>(tile, scores, e, fetcher);
    }
  }
  for (; e < tile.value_dim; e += kLanes)
    AddValues<kType, kRows, 1, false>(tile, scores, e, fetcher);
}

// --- Prefill ---

constexpr uint32_t kBlockRows = Simd::kBlockRows;
constexpr uint32_t kPanelTokens = 2 * kLanes;

// [kPackTokens / kPanelTokens][head_dim][kPanelTokens]
template <ElementType kType>
void PackKeys(const std::byte* const* keys, uint32_t tokens, uint32_t head_dim, void* pack) {
  auto* out = static_cast<float*>(pack);
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    float* panel = out + uint64_t{t} / kPanelTokens * kPanelTokens * head_dim + t % kPanelTokens;
    for (uint32_t e = 0; e < head_dim; e += kLanes) {
      F x[kLanes];
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kLanes; ++k) {
        x[k] = Simd::LoadElements<kType>(keys[t + k] + e * ElementBytes(kType));
      }
      Simd::Transpose(x);
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kLanes; ++k) Simd::Store(panel + (e + k) * kPanelTokens, x[k]);
    }
  }
}

// [value_dim / kPanelTokens, rounded up][kPackTokens][kPanelTokens]
template <ElementType kType>
bool PackValues(const std::byte* const* values, uint32_t tokens, uint32_t value_dim, void* pack) {
  auto* out = static_cast<float*>(pack);
  bool finite = true;
  for (uint32_t e = 0; e < value_dim; e += kLanes) {
    float* panel = out + uint64_t{e} / kPanelTokens * kPanelTokens * kPackTokens + e % kPanelTokens;
    for (uint32_t t = 0; t < tokens; ++t) {
      const F x = Simd::LoadElements<kType>(values[t] + e * ElementBytes(kType));
      finite &= Simd::AllFinite(x);
      Simd::Store(panel + t * kPanelTokens, x);
    }
  }
  return finite;
}

// out[r][0 to kPanelTokens - 1] (+)= sum over k of a[r * kRowStep + k * kStep] * b[k][0 to
// kPanelTokens - 1], for k = 0 to size - 1.
template <uint32_t kRowStep, uint32_t kStep, bool kAdd>
inline void MultiplyBlock(const float* a, const float* b, uint32_t size, float* out,
                          uint64_t out_stride) {
  F sums[kBlockRows][2];
#pragma GCC unroll 12
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    sums[r][0] = kAdd ? Simd::Load(out + r * out_stride) : Simd::Zero();
    sums[r][1] = kAdd ? Simd::Load(out + r * out_stride + kLanes) : Simd::Zero();
  }
  for (uint32_t k = 0; k < size; ++k) {
    const F b0 = Simd::Load(b + k * kPanelTokens);
    const F b1 = Simd::Load(b + k * kPanelTokens + kLanes);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < kBlockRows; ++r) {
      const F x = Simd::Set(a[r * kRowStep + k * kStep]);
      sums[r][0] = Simd::Fma(x, b0, sums[r][0]);
      sums[r][1] = Simd::Fma(x, b1, sums[r][1]);
    }
  }
#pragma GCC unroll 12
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    Simd::Store(out + r * out_stride, sums[r][0]);
    Simd::Store(out + r * out_stride + kLanes, sums[r][1]);
  }
}

// Adds to each row the values of only those tokens that it sees.
inline void AddSeenValues(const PrefillBlock& block, const float* weights) {
  const auto* values = static_cast<const float*>(block.values);
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    for (uint32_t e = 0; e < block.value_dim; e += kLanes) {
      const float* panel =
          values + uint64_t{e} / kPanelTokens * kPanelTokens * kPackTokens + e % kPanelTokens;
      float* out = block.rows.sums + r * block.rows.sum_stride + e;
      F sum = Simd::Load(out);
      for (uint32_t t = block.first_token; t < block.end_token; ++t) {
        const uint32_t word = block.visible[r * kPackWords + t / kTileTokens];
        if ((word >> (t % kTileTokens) & 1) == 0) continue;
        sum = Simd::Fma(Simd::Set(weights[r * kPackTokens + t]),
                        Simd::Load(panel + t * kPanelTokens), sum);
      }
      Simd::Store(out, sum);
    }
  }
}

// scratch: the scores, later the weights, [kBlockRows][kPackTokens].
void Prefill(const PrefillBlock& block) {
  auto* scores = static_cast<float*>(block.scratch);
  const auto* queries = static_cast<const float*>(block.queries);
  const auto* keys = static_cast<const float*>(block.keys);
  for (uint32_t t = block.first_token; t < block.end_token; t += kPanelTokens) {
    MultiplyBlock<1, kBlockRows, false>(queries, keys + uint64_t{t} * block.head_dim,
                                        block.head_dim, scores + t, kPackTokens);
  }
  const uint32_t first = block.first_token, tokens = block.end_token - first;
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    const uint32_t* visible =
        block.visible == nullptr ? nullptr : block.visible + r * kPackWords + first / kTileTokens;
    float* row = scores + r * kPackTokens + first;
    if (block.key_scales != nullptr) ScaleTokens(block.key_scales + first, tokens, row);
    const float factor = Weigh(block.rule, block.rows, r, tokens, visible, row);
    if (block.value_scales != nullptr) ScaleTokens(block.value_scales + first, tokens, row);
    Scale(block.rows.sums + r * block.rows.sum_stride, block.value_dim, factor);
  }
  if (block.select_values && block.visible != nullptr) return AddSeenValues(block, scores);
  const auto* values = static_cast<const float*>(block.values);
  for (uint32_t e = 0; e < block.value_dim; e += kPanelTokens) {
    MultiplyBlock<kPackTokens, 1, true>(
        scores + first, values + (uint64_t{e} * kPackTokens + uint64_t{first} * kPanelTokens),
        tokens, block.rows.sums + e, block.rows.sum_stride);
  }
}

template <ElementType kType>
constexpr TileKernels FloatKernels() {
  return {.decode = {Decode<kType, 1>, Decode<kType, 2>, Decode<kType, 4>},
          .query_step = kPairElements,
          .query_order =
              kType == ElementType::kBFloat16 ? ElementOrder::kEvenOdd : ElementOrder::kNatural,
          .sum_order =
              kType == ElementType::kBFloat16 ? ElementOrder::kEvenOdd : ElementOrder::kNatural,
          .lanes = kLanes,
          .block_rows = kBlockRows,
          .panel_tokens = kPanelTokens,
          .scratch_bytes = kBlockRows * kPackTokens * sizeof(float),
          .pack_keys = PackKeys<kType>,
          .pack_values = PackValues<kType>,
          .prefill = Prefill};
}

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_SIMD_ATTENTION_H_
