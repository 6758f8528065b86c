// Decode over pools of 8 bits, by look-ups and fused multiplications of fp32. Only this file is
// compiled for AVX-512 with VBMI but without bf16 (CMakeLists.txt). A line of 64 bytes is one step:
// it becomes four registers, which all rows of the tile use.
#include "kernels/cpu/vectors/simd_avx512.h"
// Must follow the header of their registers.
#include "kernels/cpu/attention/row_fetcher.h"
#include "kernels/cpu/attention/simd_float8.h"
#include "kernels/cpu/attention/simd_softmax.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr uint32_t kLanes = Simd::kLanes;
constexpr uint32_t kRegisters = kLineElements / kLanes;

// Keys whose products are computed at a time. A load of a query's part serves all of them, and
// their sums leave registers for the table.
constexpr uint32_t kKeys = 2;

// sums[r][k] += query r . key k, over the line from element e on.
template <uint32_t kRows, Line kLine>
[[gnu::always_inline]] inline void DotLine(const DecodeTile& tile, const Float8Lookup& lookup,
                                           const std::byte* const* keys, uint32_t e,
                                           F (&sums)[kRows][kKeys]) {
  const float* query = static_cast<const float*>(tile.queries) + e * kQueryRows;
  F x[kKeys][kRegisters];
#pragma GCC unroll 2
  for (uint32_t k = 0; k < kKeys; ++k) {
    lookup.Load<kLine>(keys[k] + e, tile.head_dim - e, x[k]);
  }
#pragma GCC unroll 4
  for (uint32_t v = 0; v < kRegisters; ++v) {
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const F part = Simd::Load(query + r * kLineElements + v * kLanes);
#pragma GCC unroll 2
      for (uint32_t k = 0; k < kKeys; ++k) sums[r][k] = Simd::Fma(part, x[k][v], sums[r][k]);
    }
  }
}

// scores[r][t] = query r . key t.
template <uint32_t kRows>
inline void DotKeys(const DecodeTile& tile, const Float8Lookup& lookup, RowFetcher& fetcher,
                    float (*scores)[kTileTokens]) {
  constexpr uint32_t kTokens = Simd::kDots / kRows;
  for (uint32_t t = 0; t < tile.tokens; t += kTokens) {
    F all[Simd::kDots];
    for (uint32_t first = 0; first < kTokens; first += kKeys) {
      if (first % kStepTokens == 0) fetcher.Step();
      const std::byte* const* keys = tile.keys + t + first;
      F sums[kRows][kKeys] = {};
      uint32_t e = 0;
      for (; e + kLineElements <= tile.head_dim; e += kLineElements) {
        DotLine<kRows, Line::kWhole>(tile, lookup, keys, e, sums);
      }
      if (e < tile.head_dim) DotLine<kRows, Line::kStart>(tile, lookup, keys, e, sums);
      for (uint32_t r = 0; r < kRows; ++r) {
        for (uint32_t k = 0; k < kKeys; ++k) all[r * kTokens + first + k] = sums[r][k];
      }
    }
    Simd::StoreRows<kRows>(Simd::SumEach(all), &scores[0][t], kTileTokens);
  }
}

// Adds weighted values to the sums of a line of each row, from element e on.
template <uint32_t kRows, Line kLine>
inline void AddValues(const DecodeTile& tile, const Float8Lookup& lookup,
                      const float (*weights)[kTileTokens], uint32_t e, RowFetcher& fetcher) {
  F sums[kRows][kRegisters];
  LoadSums(tile.rows, e, sums);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    if (t % (2 * kStepTokens) == 0) fetcher.Step();
    F x[kRegisters];
    lookup.Load<kLine>(tile.values[t] + e, tile.value_dim - e, x);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const F weight = Simd::Set(weights[r][t]);
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kRegisters; ++v) sums[r][v] = Simd::Fma(weight, x[v], sums[r][v]);
    }
  }
  StoreSums(tile.rows, e, sums);
}

template <uint32_t kRows>
void Decode(const DecodeTile& tile) {
  alignas(64) float scores[kRows][kTileTokens];
  const Float8Lookup lookup(*tile.float8);
  const uint32_t key_steps = tile.tokens / kStepTokens;
  const uint32_t value_steps =
      tile.tokens / (2 * kStepTokens) * ((tile.value_dim + kLineElements - 1) / kLineElements);
  RowFetcher fetcher(tile, tile.head_dim, key_steps + value_steps);
  DotKeys<kRows>(tile, lookup, fetcher, scores);
  WeighTile<kRows>(tile, tile.rows.sum_stride, scores);
  uint32_t e = 0;
  for (; e + kLineElements <= tile.value_dim; e += kLineElements) {
    AddValues<kRows, Line::kWhole>(tile, lookup, scores, e, fetcher);
  }
  if (e < tile.value_dim) AddValues<kRows, Line::kStart>(tile, lookup, scores, e, fetcher);
}

}  // namespace

const Float8Decode kAvx512Float8Decode = {.decode = {Decode<1>, Decode<2>, Decode<4>},
                                          .query_step = kLineElements,
                                          .query_order = ElementOrder::kBytePairs,
                                          .sum_order = ElementOrder::kBytePairs};

}  // namespace pagoda::kernels::cpu
