// Attention's tiles with the dot product of bf16 pairs. Only this file is compiled for it
// (CMakeLists.txt). Numbers are multiplied as bf16 and added as fp32.
#include "kernels/cpu/vectors/simd_avx512.h"
// Must follow the header of their registers.
#include "kernels/cpu/attention/row_fetcher.h"
#include "kernels/cpu/attention/simd_softmax.h"

namespace pagoda::kernels::cpu {
namespace {

using Pairs = __m512i;  // 32 numbers of bf16.

constexpr uint32_t kLanes = Simd::kLanes;
constexpr uint32_t kElements = 32;  // Per register.
constexpr uint32_t kBlockRows = Simd::kBlockRows;
constexpr uint32_t kPanelTokens = 32;
constexpr __mmask32 kHalf = 0xffff;

F MultiplyAdd(F sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// The numbers of a, then those of b.
Pairs ToBf16(F a, F b) { return reinterpret_cast<Pairs>(_mm512_cvtne2ps_pbh(b, a)); }

template <ElementType kType>
Pairs LoadPairs(const std::byte* p) {
  if constexpr (kType == ElementType::kBFloat16) {
    return _mm512_loadu_si512(p);
  } else {  // Every 8-bit number is exact in bf16.
    return ToBf16(Simd::LoadElements<kType>(p),
                  Simd::LoadElements<kType>(p + kLanes * ElementBytes(kType)));
  }
}

// 16 numbers, then zeros.
template <ElementType kType>
Pairs LoadHalf(const std::byte* p) {
  if constexpr (kType == ElementType::kBFloat16) {
    return _mm512_maskz_loadu_epi16(kHalf, p);
  } else {
    return ToBf16(Simd::LoadElements<kType>(p), Simd::Zero());
  }
}

// Two bf16 numbers at p, in each lane.
Pairs Broadcast(const uint16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// sums[r * kTokens + k] += query r . key k, over the 32 or 16 elements from e on.
template <ElementType kType, uint32_t kRows, uint32_t kTokens, bool kWhole>
inline void DotElements(const uint16_t* queries, const std::byte* const* keys, uint32_t e,
                        F* sums) {
  Pairs x[kTokens];
#pragma GCC unroll 16
  for (uint32_t k = 0; k < kTokens; ++k) {
    const std::byte* key = keys[k] + e * ElementBytes(kType);
    x[k] = kWhole ? LoadPairs<kType>(key) : LoadHalf<kType>(key);
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) {
    const Pairs query = _mm512_load_si512(queries + e * kQueryRows + r * kElements);
#pragma GCC unroll 16
    for (uint32_t k = 0; k < kTokens; ++k) {
      sums[r * kTokens + k] = MultiplyAdd(sums[r * kTokens + k], query, x[k]);
    }
  }
}

template <ElementType kType, uint32_t kRows>
inline void DotKeys(const DecodeTile& tile, RowFetcher& fetcher, float (*scores)[kTileTokens]) {
  constexpr uint32_t kTokens = Simd::kDots / kRows;
  const auto* queries = static_cast<const uint16_t*>(tile.queries);
  for (uint32_t t = 0; t < tile.tokens; t += kTokens) {
    const std::byte* keys[kTokens];
    F sums[Simd::kDots];
#pragma GCC unroll 16
    for (uint32_t k = 0; k < kTokens; ++k) keys[k] = tile.keys[t + k];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < Simd::kDots; ++i) sums[i] = Simd::Zero();
    if (kTokens <= kStepTokens) fetcher.Step();
    uint32_t e = 0;
    for (; e + kElements <= tile.head_dim; e += kElements) {
      if (kTokens > kStepTokens) fetcher.Step();
      DotElements<kType, kRows, kTokens, true>(queries, keys, e, sums);
    }
    if (e < tile.head_dim) DotElements<kType, kRows, kTokens, false>(queries, keys, e, sums);
    Simd::StoreRows<kRows>(Simd::SumEach(sums), &scores[0][t], kTileTokens);
  }
}

// Adds weighted values to the 32 * kRegisters sums of each row, from element e on. If kWhole is
// false, the last 16 do not exist. Sums have the order in which the instruction unpacks two rows of
// values.
template <ElementType kType, uint32_t kRows, uint32_t kRegisters, bool kWhole>
inline void AddValues(const DecodeTile& tile, const uint16_t (*weights)[kTileTokens], uint32_t e,
                      RowFetcher& fetcher) {
  constexpr uint32_t kBytes = ElementBytes(kType);
  F sums[kRows][2 * kRegisters];
  LoadSums(tile.rows, e, sums);
  for (uint32_t t = 0; t < tile.tokens; t += 2) {
    if (t % (2 * kStepTokens) == 0) fetcher.Step();
    Pairs values[2 * kRegisters];
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kRegisters; ++v) {
      const uint32_t offset = (e + v * kElements) * kBytes;
      const std::byte* a = tile.values[t] + offset;
      const std::byte* b = tile.values[t + 1] + offset;
      const Pairs x = kWhole ? LoadPairs<kType>(a) : LoadHalf<kType>(a);
      const Pairs y = kWhole ? LoadPairs<kType>(b) : LoadHalf<kType>(b);
      values[2 * v] = _mm512_unpacklo_epi16(x, y);
      values[2 * v + 1] = _mm512_unpackhi_epi16(x, y);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
      const Pairs weight = Broadcast(&weights[r][t]);
#pragma GCC unroll 4
      for (uint32_t v = 0; v < 2 * kRegisters; ++v) {
        sums[r][v] = MultiplyAdd(sums[r][v], weight, values[v]);
      }
    }
  }
  StoreSums(tile.rows, e, sums);
}

template <ElementType kType, uint32_t kRows>
void Decode(const DecodeTile& tile) {
  alignas(64) float scores[kRows][kTileTokens];
  alignas(64) uint16_t weights[kRows][kTileTokens];
  constexpr uint32_t kStep = 2 * kElements;  // Elements whose values are added at a time.
  const uint32_t key_steps = FetchSteps<Simd::kDots / kRows>(tile, kElements);
  const uint32_t value_steps =
      tile.tokens / (2 * kStepTokens) * ((tile.value_dim + kStep - 1) / kStep);
  RowFetcher fetcher(tile, tile.head_dim * ElementBytes(kType), key_steps + value_steps);
  DotKeys<kType, kRows>(tile, fetcher, scores);
  WeighTile<kRows>(tile, tile.rows.sum_stride, scores);
  for (uint32_t r = 0; r < kRows; ++r) {
    // In a tile of 16 tokens, the last 16 are unspecified.
    _mm512_store_si512(weights[r], ToBf16(Simd::Load(scores[r]), Simd::Load(scores[r] + kLanes)));
  }
  uint32_t e = 0;
  for (; e + kStep <= tile.value_dim; e += kStep) {
    AddValues<kType, kRows, 2, true>(tile, weights, e, fetcher);
  }
  for (; e + kElements <= tile.value_dim; e += kElements) {
    AddValues<kType, kRows, 1, true>(tile, weights, e, fetcher);
  }
  if (e < tile.value_dim) AddValues<kType, kRows, 1, false>(tile, weights, e, fetcher);
}

// --- Prefill: packs are [panel][pairs][32][2] ---

constexpr uint32_t kPairStep = 2 * kPanelTokens;  // From pair to pair of a panel, in numbers.

template <ElementType kType>
void PackKeys(const std::byte* const* keys, uint32_t tokens, uint32_t head_dim, void* pack) {
  auto* out = static_cast<uint16_t*>(pack);
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    uint16_t* panel =
        out + uint64_t{t} / kPanelTokens * kPanelTokens * head_dim + t % kPanelTokens * 2;
    for (uint32_t e = 0; e < head_dim; e += kElements) {
      const bool whole = e + kElements <= head_dim;
      F x[kLanes];
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kLanes; ++k) {
        const std::byte* key = keys[t + k] + e * ElementBytes(kType);
        x[k] = _mm512_castsi512_ps(whole ? LoadPairs<kType>(key) : LoadHalf<kType>(key));
      }
      Simd::Transpose(x);
      float* first = reinterpret_cast<float*>(panel + e / 2 * kPairStep);
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kLanes; ++k) {
        if (k < kLanes / 2 || whole) Simd::Store(first + k * kPanelTokens, x[k]);
      }
    }
  }
}

bool AllFinite(Pairs x) {
  const Pairs exponent = _mm512_set1_epi16(0x7f80);
  return _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent) == 0;
}

template <ElementType kType>
bool PackValues(const std::byte* const* values, uint32_t tokens, uint32_t value_dim, void* pack) {
  auto* out = static_cast<uint16_t*>(pack);
  // Brings the first and the last 16 pairs, which were unpacked within quarters, into order.
  const Pairs low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const Pairs high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  bool finite = true;
  for (uint32_t e = 0; e < value_dim; e += kElements) {
    uint16_t* panel = out + uint64_t{e} * kPackTokens;
    const bool whole = e + kElements <= value_dim;
    for (uint32_t t = 0; t < tokens; t += 2) {
      const std::byte* a = values[t] + e * ElementBytes(kType);
      const std::byte* b = values[t + 1] + e * ElementBytes(kType);
      const Pairs x = whole ? LoadPairs<kType>(a) : LoadHalf<kType>(a);
      const Pairs y = whole ? LoadPairs<kType>(b) : LoadHalf<kType>(b);
      finite &= AllFinite(x) && AllFinite(y);
      const Pairs first = _mm512_unpacklo_epi16(x, y), second = _mm512_unpackhi_epi16(x, y);
      uint16_t* pair = panel + t / 2 * kPairStep;
      _mm512_storeu_si512(pair, _mm512_permutex2var_epi64(first, low, second));
      _mm512_storeu_si512(pair + kElements, _mm512_permutex2var_epi64(first, high, second));
    }
  }
  return finite;
}

// out[r][0 to 31] (+)= sum over `pairs` pairs k of a[r * kRowStep + k * kStep] . b[k][0 to 31].
// Steps are in numbers.
template <uint32_t kRowStep, uint32_t kStep, bool kAdd>
inline void MultiplyBlock(const uint16_t* a, const uint16_t* b, uint32_t pairs, float* out,
                          uint64_t out_stride) {
  F sums[kBlockRows][2];
#pragma GCC unroll 12
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    sums[r][0] = kAdd ? Simd::Load(out + r * out_stride) : Simd::Zero();
    sums[r][1] = kAdd ? Simd::Load(out + r * out_stride + kLanes) : Simd::Zero();
  }
  for (uint32_t k = 0; k < pairs; ++k) {
    const Pairs b0 = _mm512_loadu_si512(b + k * kPairStep);
    const Pairs b1 = _mm512_loadu_si512(b + k * kPairStep + kElements);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < kBlockRows; ++r) {
      const Pairs x = Broadcast(a + r * kRowStep + k * kStep);
      sums[r][0] = MultiplyAdd(sums[r][0], x, b0);
      sums[r][1] = MultiplyAdd(sums[r][1], x, b1);
    }
  }
#pragma GCC unroll 12
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    Simd::Store(out + r * out_stride, sums[r][0]);
    Simd::Store(out + r * out_stride + kLanes, sums[r][1]);
  }
}

// Adds to each row the values of only those tokens that it sees.
inline void AddSeenValues(const PrefillBlock& block, const uint16_t* weights) {
  const auto* values = static_cast<const uint16_t*>(block.values);
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    for (uint32_t e = 0; e < block.value_dim; e += kLanes) {
      const uint16_t* panel =
          values + uint64_t{e} / kElements * kElements * kPackTokens + e % kElements * 2;
      float* out = block.rows.sums + r * block.rows.sum_stride + e;
      F sum = Simd::Load(out);
      for (uint32_t t = block.first_token; t < block.end_token; t += 2) {
        const uint32_t word = block.visible[r * kPackWords + t / kTileTokens];
        const uint32_t seen = word >> (t % kTileTokens) & 3;
        if (seen == 0) continue;
        const __mmask32 numbers = (seen & 1 ? 0x55555555u : 0u) | (seen & 2 ? 0xaaaaaaaau : 0u);
        sum = MultiplyAdd(sum, Broadcast(weights + r * kPackTokens + t),
                          _mm512_maskz_loadu_epi16(numbers, panel + t / 2 * kPairStep));
      }
      Simd::Store(out, sum);
    }
  }
}

// scratch: the scores, [kBlockRows][kPackTokens], then the weights in bf16, in the same shape.
void Prefill(const PrefillBlock& block) {
  auto* scores = static_cast<float*>(block.scratch);
  auto* weights = reinterpret_cast<uint16_t*>(scores + kBlockRows * kPackTokens);
  const auto* queries = static_cast<const uint16_t*>(block.queries);
  const auto* keys = static_cast<const uint16_t*>(block.keys);
  for (uint32_t t = block.first_token; t < block.end_token; t += kPanelTokens) {
    MultiplyBlock<2, 2 * kBlockRows, false>(queries, keys + uint64_t{t} * block.head_dim,
                                            block.head_dim / 2, scores + t, kPackTokens);
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
    for (uint32_t t = 0; t < tokens; t += kElements) {
      _mm512_storeu_si512(weights + r * kPackTokens + first + t,
                          ToBf16(Simd::Load(row + t), Simd::Load(row + t + kLanes)));
    }
  }
  if (block.select_values && block.visible != nullptr) return AddSeenValues(block, weights);
  const auto* values = static_cast<const uint16_t*>(block.values);
  for (uint32_t e = 0; e < block.value_dim; e += kPanelTokens) {
    MultiplyBlock<kPackTokens, 2, true>(
        weights + first, values + (uint64_t{e} * kPackTokens + uint64_t{first} * kPanelTokens),
        tokens / 2, block.rows.sums + e, block.rows.sum_stride);
  }
}

template <ElementType kType>
constexpr TileKernels Bf16Kernels() {
  return {.decode = {Decode<kType, 1>, Decode<kType, 2>, Decode<kType, 4>},
          .bf16 = true,
          .query_step = kElements,
          .query_order = ElementOrder::kNatural,
          .sum_order = ElementOrder::kUnpacked,
          .lanes = kLanes,
          .block_rows = kBlockRows,
          .panel_tokens = kPanelTokens,
          .scratch_bytes = kBlockRows * kPackTokens * (sizeof(float) + sizeof(uint16_t)),
          .pack_keys = PackKeys<kType>,
          .pack_values = PackValues<kType>,
          .prefill = Prefill};
}

}  // namespace

const TileKernels kAvx512Bf16Kernels[5] = {
    {},
    {},
    Bf16Kernels<ElementType::kBFloat16>(),
    Bf16Kernels<ElementType::kFloat8E4M3>(),
    Bf16Kernels<ElementType::kFloat8E5M2>(),
};

}  // namespace pagoda::kernels::cpu
