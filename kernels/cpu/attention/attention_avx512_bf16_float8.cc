// Decode over pools of 8 bits, by look-ups and the dot product of bf16 pairs. Only this file is
// compiled for AVX-512 with VBMI and bf16 (CMakeLists.txt). Every 8-bit number is exact in bf16;
// queries and weights are rounded to it.
#include "kernels/cpu/vectors/simd_avx512.h"
// Must follow the header of their registers.
#include "kernels/cpu/attention/row_fetcher.h"
#include "kernels/cpu/attention/simd_float8.h"
#include "kernels/cpu/attention/simd_softmax.h"

namespace pagoda::kernels::cpu {
namespace {

using Pairs = __m512i;  // 32 numbers of bf16.

constexpr uint32_t kLanes = Simd::kLanes;
constexpr uint32_t kElements = 32;  // Per register.
constexpr uint32_t kRegisters = kLineElements / kLanes;

F MultiplyAdd(F sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Two bf16 numbers at p, in each lane.
Pairs Broadcast(const uint16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// sums[r * kTokens + k] += query r . key k, over the line from element e on.
template <uint32_t kRows, Line kLine>
[[gnu::always_inline]] inline void DotLine(const DecodeTile& tile, const Float8Lookup& lookup,
                                           const std::byte* const* keys, uint32_t e, F* sums) {
  constexpr uint32_t kTokens = Simd::kDots / kRows;
  const uint16_t* query = static_cast<const uint16_t*>(tile.queries) + e * kQueryRows;
#pragma GCC unroll 16
  for (uint32_t k = 0; k < kTokens; ++k) {
    Pairs first, second;
    lookup.Load<kLine>(keys[k] + e, tile.head_dim - e, first, second);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint16_t* q = query + r * kLineElements;
      F& sum = sums[r * kTokens + k];
      sum = MultiplyAdd(sum, _mm512_load_si512(q), first);
      sum = MultiplyAdd(sum, _mm512_load_si512(q + kElements), second);
    }
    LoadAgain();
  }
}

// scores[r][t] = query r . key t.
template <uint32_t kRows>
inline void DotKeys(const DecodeTile& tile, const Float8Lookup& lookup, RowFetcher& fetcher,
                    float (*scores)[kTileTokens]) {
  constexpr uint32_t kTokens = Simd::kDots / kRows;
  for (uint32_t t = 0; t < tile.tokens; t += kTokens) {
    F sums[Simd::kDots];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < Simd::kDots; ++i) sums[i] = Simd::Zero();
    if (kTokens <= kStepTokens) fetcher.Step();
    uint32_t e = 0;
    for (; e + kLineElements <= tile.head_dim; e += kLineElements) {
      if (kTokens > kStepTokens) fetcher.Step();
      DotLine<kRows, Line::kWhole>(tile, lookup, tile.keys + t, e, sums);
    }
    if (e < tile.head_dim) DotLine<kRows, Line::kStart>(tile, lookup, tile.keys + t, e, sums);
    Simd::StoreRows<kRows>(Simd::SumEach(sums), &scores[0][t], kTileTokens);
  }
}

// Adds weighted values to the sums of a line of each row, from element e on. Sums have the order in
// which the instruction unpacks two rows of values.
template <uint32_t kRows, Line kLine>
inline void AddValues(const DecodeTile& tile, const Float8Lookup& lookup,
                      const uint16_t (*weights)[kTileTokens], uint32_t e, RowFetcher& fetcher) {
  F sums[kRows][kRegisters];
  LoadSums(tile.rows, e, sums);
  for (uint32_t t = 0; t < tile.tokens; t += 2) {
    if (t % (2 * kStepTokens) == 0) fetcher.Step();
    Pairs a[2], b[2];
    lookup.Load<kLine>(tile.values[t] + e, tile.value_dim - e, a[0], a[1]);
    lookup.Load<kLine>(tile.values[t + 1] + e, tile.value_dim - e, b[0], b[1]);
    const Pairs values[kRegisters] = {
        _mm512_unpacklo_epi16(a[0], b[0]), _mm512_unpackhi_epi16(a[0], b[0]),
        _mm512_unpacklo_epi16(a[1], b[1]), _mm512_unpackhi_epi16(a[1], b[1])};
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const Pairs weight = Broadcast(&weights[r][t]);
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kRegisters; ++v) {
        sums[r][v] = MultiplyAdd(sums[r][v], weight, values[v]);
      }
    }
  }
  StoreSums(tile.rows, e, sums);
}

template <uint32_t kRows>
void Decode(const DecodeTile& tile) {
  alignas(64) float scores[kRows][kTileTokens];
  alignas(64) uint16_t weights[kRows][kTileTokens];
  const Float8Lookup lookup(*tile.float8);
  const uint32_t key_steps = FetchSteps<Simd::kDots / kRows>(tile, kLineElements);
  const uint32_t value_steps =
      tile.tokens / (2 * kStepTokens) * ((tile.value_dim + kLineElements - 1) / kLineElements);
  RowFetcher fetcher(tile, tile.head_dim, key_steps + value_steps);
  DotKeys<kRows>(tile, lookup, fetcher, scores);
  WeighTile<kRows>(tile, tile.rows.sum_stride, scores);
  for (uint32_t r = 0; r < kRows; ++r) {
    // In a tile of 16 tokens, the last 16 are unspecified.
    const __m512bh row = _mm512_cvtne2ps_pbh(Simd::Load(scores[r] + kLanes), Simd::Load(scores[r]));
    _mm512_store_si512(weights[r], reinterpret_cast<__m512i>(row));
  }
  uint32_t e = 0;
  for (; e + kLineElements <= tile.value_dim; e += kLineElements) {
    AddValues<kRows, Line::kWhole>(tile, lookup, weights, e, fetcher);
  }
  if (e < tile.value_dim) AddValues<kRows, Line::kStart>(tile, lookup, weights, e, fetcher);
}

}  // namespace

const Float8Decode kAvx512Bf16Float8Decode = {.decode = {Decode<1>, Decode<2>, Decode<4>},
                                              .query_step = kLineElements,
                                              .query_order = ElementOrder::kByteHalves,
                                              .sum_order = ElementOrder::kByteQuarters};

}  // namespace pagoda::kernels::cpu
