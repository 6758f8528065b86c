// Decode by AMX, whose tiles multiply 16 x 32 by 32 x 16 numbers of bf16. Only this file of the
// kernels is compiled for it (CMakeLists.txt). Queries and weights are rounded to bf16.
#include "kernels/cpu/vectors/amx_tiles.h"
#include "kernels/cpu/vectors/simd_avx512.h"
// Must follow the header of their registers.
#include "kernels/cpu/attention/row_fetcher.h"
#include "kernels/cpu/attention/simd_float8.h"
#include "kernels/cpu/attention/simd_softmax.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr uint32_t kTileRows = 16;
constexpr uint32_t kTileBytes = 64;     // The bytes of one row of a tile.
constexpr uint32_t kTileElements = 32;  // bf16 numbers in them.
constexpr uint32_t kWholeTileBytes = kTileRows * kTileBytes;

// Tiles 0 to 4 have 16 rows: two of scores (a row for each token), one of queries, and two of keys
// or of values. Tile 5 has the weights and tiles 6 and 7 the sums, with a row for each query row.
struct TileConfigurations {
  TileConfiguration of[kTileRows + 1];  // By the number of query rows.
};
constexpr TileConfigurations MakeConfigurations() {
  TileConfigurations all = {};
  for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
    for (uint32_t tile = 5; tile <= 7; ++tile) all.of[rows].rows[tile] = static_cast<uint8_t>(rows);
  }
  return all;
}
constexpr TileConfigurations kConfigurations = MakeConfigurations();

// The compiler does not know that the instructions of tiles read and write memory.
[[gnu::always_inline]] inline void MemoryBarrier() { __asm__ volatile("" ::: "memory"); }

// 16 keys as the rows of a tile, `stride` bytes apart.
struct KeyRows {
  const std::byte* first;
  int64_t stride;
};

// Keys and values of bf16.
class BFloat16Rows {
 public:
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kChunk = kTileElements;
  static constexpr bool kCopies = false;

  explicit BFloat16Rows(const DecodeTile&) {}

  // The keys from token `first` on. They are read where they lie if they are evenly spaced, else
  // copied to `copy`.
  KeyRows Keys(const DecodeTile& tile, uint32_t first, std::byte* copy, RowFetcher&) const {
    const std::byte* const* keys = tile.keys + first;
    const int64_t stride = keys[1] - keys[0];
    bool even = true;
    for (uint32_t t = 2; t < kTileRows; ++t) even &= keys[t] - keys[t - 1] == stride;
    if (even) return {keys[0], stride};
    for (uint32_t t = 0; t < kTileRows; ++t) {
      for (uint32_t i = 0; i < 2 * tile.head_dim; i += kTileBytes) {
        _mm512_store_si512(copy + t * 2 * tile.head_dim + i, _mm512_loadu_si512(keys[t] + i));
      }
    }
    return {copy, 2 * int64_t{tile.head_dim}};
  }

  // kChunk elements of 32 values, as tiles whose rows are pairs of tokens.
  static void Pair(const std::byte* const* values, uint32_t element, std::byte* tiles) {
    for (uint32_t t = 0; t < kTileTokens; t += 2, tiles += kTileBytes) {
      const __m512i first = _mm512_loadu_si512(values[t] + 2 * element);
      const __m512i second = _mm512_loadu_si512(values[t + 1] + 2 * element);
      _mm512_store_si512(tiles, _mm512_unpacklo_epi16(first, second));
      _mm512_store_si512(tiles + kWholeTileBytes, _mm512_unpackhi_epi16(first, second));
    }
  }
};

// Those of 8 bits, looked up.
class Float8Rows {
 public:
  static constexpr uint32_t kBytes = 1;
  static constexpr uint32_t kChunk = kLineElements;
  static constexpr bool kCopies = true;

  explicit Float8Rows(const DecodeTile& tile) : lookup_(*tile.float8) {}

  KeyRows Keys(const DecodeTile& tile, uint32_t first, std::byte* copy, RowFetcher& fetcher) const {
    std::byte* to = copy;
    for (uint32_t t = first; t < first + kTileRows; ++t) {
      for (uint32_t i = 0; i < tile.head_dim; i += kLineElements, to += 2 * kTileBytes) {
        __m512i a, b;
        lookup_.Load<Line::kWhole>(tile.keys[t] + i, 0, a, b);
        _mm512_store_si512(to, a);
        _mm512_store_si512(to + kTileBytes, b);
      }
      if (t % kStepTokens == 0) fetcher.Step();
    }
    return {copy, 2 * int64_t{tile.head_dim}};
  }

  void Pair(const std::byte* const* values, uint32_t element, std::byte* tiles) const {
    for (uint32_t t = 0; t < kTileTokens; t += 2, tiles += kTileBytes) {
      __m512i a[2], b[2];
      lookup_.Load<Line::kWhole>(values[t] + element, 0, a[0], a[1]);
      lookup_.Load<Line::kWhole>(values[t + 1] + element, 0, b[0], b[1]);
#pragma GCC unroll 2
      for (uint32_t half = 0; half < 2; ++half) {
        std::byte* const to = tiles + 2 * half * kWholeTileBytes;
        _mm512_store_si512(to, _mm512_unpacklo_epi16(a[half], b[half]));
        _mm512_store_si512(to + kWholeTileBytes, _mm512_unpackhi_epi16(a[half], b[half]));
      }
    }
  }

 private:
  const Float8Lookup lookup_;
};

// Tiles 0 and 1 = the dot products of 32 keys with the queries.
template <class Rows>
inline void MultiplyKeys(const DecodeTile& tile, const KeyRows& first, const KeyRows& second,
                         RowFetcher& fetcher) {
  const auto* queries = static_cast<const std::byte*>(tile.queries);
  MemoryBarrier();
  _tile_zero(0);
  _tile_zero(1);
  for (uint32_t i = 0; i < 2 * tile.head_dim; i += kTileBytes, queries += kWholeTileBytes) {
    _tile_loadd(2, queries, kTileBytes);
    _tile_loadd(3, first.first + i, first.stride);
    _tile_dpbf16ps(0, 3, 2);
    _tile_loadd(4, second.first + i, second.stride);
    _tile_dpbf16ps(1, 4, 2);
    if (!Rows::kCopies) fetcher.Step();
  }
}

// Adds the waiting values to the sums, a chunk of elements at a time: its tiles and its sums stay
// in the first cache. The tiles are added in their order, so it does not matter how many wait.
template <class Rows>
inline void AddValues(const DecodeTile& tile, const Rows& source) {
  constexpr uint32_t kTiles = Rows::kChunk / kTileRows;
  AmxValues& waiting = *tile.waiting;
  const int64_t stride = int64_t{tile.rows.sum_stride} * 4;
  float* sums = tile.rows.sums;
  for (uint32_t e = 0; e < tile.value_dim; e += Rows::kChunk) {
    alignas(64) std::byte values[AmxValues::kTiles][kTiles * kWholeTileBytes];
    for (uint32_t w = 0; w < waiting.count; ++w) source.Pair(waiting.values[w], e, values[w]);
    MemoryBarrier();
#pragma GCC unroll 2
    for (uint32_t t = 0; t < kTiles; t += 2, sums += 2 * kTileRows) {
      _tile_loadd(6, sums, stride);
      _tile_loadd(7, sums + kTileRows, stride);
      for (uint32_t w = 0; w < waiting.count; ++w) {
        _tile_loadd(5, waiting.weights[w], kTileBytes);
        _tile_loadd(3, values[w] + t * kWholeTileBytes, kTileBytes);
        _tile_dpbf16ps(6, 5, 3);
        _tile_loadd(4, values[w] + (t + 1) * kWholeTileBytes, kTileBytes);
        _tile_dpbf16ps(7, 5, 4);
      }
      _tile_stored(6, sums, stride);
      _tile_stored(7, sums + kTileRows, stride);
    }
    MemoryBarrier();
  }
  waiting.count = 0;
}

// Turns the scores of the tile's tokens into weights, which then wait with the tile's values. Those
// that wait already are added first if a row has a new largest score: only sums can be rescaled.
template <class Rows>
inline void WeighRows(const DecodeTile& tile, const Rows& source, float (*scores)[kTileTokens],
                      RowFetcher& fetcher) {
  AmxValues& waiting = *tile.waiting;
  const uint32_t all = tile.tokens == kTileTokens ? ~uint32_t{0} : (1u << tile.tokens) - 1;
  const uint32_t* visible = tile.visible == all ? nullptr : &tile.visible;
  float factors[kMostTileRows];
  bool rescales = false;
  for (uint32_t r = 0; r < tile.num_rows; ++r) {
    ScaleTokens(tile.key_scales, tile.tokens, scores[r]);
    factors[r] = Weigh(tile.rule, tile.rows, r, tile.tokens, visible, scores[r]);
    rescales |= factors[r] != 1.0f;
    ScaleTokens(tile.value_scales, tile.tokens, scores[r]);
    if (tile.tokens != kTileTokens) Simd::Store(scores[r] + kTileRows, Simd::Zero());
    fetcher.Step();
  }
  if (rescales) {
    if (waiting.count > 0) AddValues(tile, source);
    for (uint32_t r = 0; r < tile.num_rows; ++r) {
      Scale(tile.rows.sums + r * tile.rows.sum_stride, tile.rows.sum_stride, factors[r]);
    }
  }
  for (uint32_t r = 0; r < tile.num_rows; ++r) {
    const __m512bh row =
        _mm512_cvtne2ps_pbh(Simd::Load(scores[r] + kTileRows), Simd::Load(scores[r]));
    _mm512_store_si512(waiting.weights[waiting.count][r], reinterpret_cast<__m512i>(row));
  }
  for (uint32_t t = 0; t < kTileTokens; ++t) waiting.values[waiting.count][t] = tile.values[t];
  ++waiting.count;
}

void Begin(uint32_t num_rows) { _tile_loadconfig(&kConfigurations.of[num_rows]); }
void End() { _tile_release(); }

template <class Rows>
void Decode(const DecodeTile& tile) {
  alignas(64) float by_token[kTileTokens][kTileRows];
  alignas(64) float scores[kTileRows][kTileTokens];
  const uint32_t key_steps =
      Rows::kCopies ? kTileTokens / kStepTokens : tile.head_dim / kTileElements;
  RowFetcher fetcher(tile, tile.head_dim * Rows::kBytes, key_steps + tile.num_rows);
  const Rows source(tile);
  const KeyRows first = source.Keys(tile, 0, tile.scratch, fetcher);
  const KeyRows second =
      source.Keys(tile, kTileRows, tile.scratch + uint64_t{kTileRows} * 2 * tile.head_dim, fetcher);
  MultiplyKeys<Rows>(tile, first, second, fetcher);
  _tile_stored(0, by_token, kTileBytes);
  _tile_stored(1, by_token + kTileRows, kTileBytes);
  MemoryBarrier();
  for (uint32_t half = 0; half < kTileTokens; half += kTileRows) {
    __m512 lanes[kTileRows];
#pragma GCC unroll 16
    for (uint32_t t = 0; t < kTileRows; ++t) lanes[t] = Simd::Load(by_token[half + t]);
    Transpose(lanes);
#pragma GCC unroll 16
    for (uint32_t r = 0; r < kTileRows; ++r) Simd::Store(scores[r] + half, lanes[r]);
  }
  WeighRows(tile, source, scores, fetcher);
  if (tile.waiting->count == AmxValues::kTiles) AddValues(tile, source);
}

template <class Rows>
void AddWaiting(const DecodeTile& tile) {
  if (tile.waiting->count > 0) AddValues(tile, Rows(tile));
}

template <class Rows>
constexpr AmxDecode Functions(ElementOrder queries, ElementOrder sums) {
  return {.begin = Begin,
          .decode = Decode<Rows>,
          .add_waiting = AddWaiting<Rows>,
          .end = End,
          .query_order = queries,
          .sum_order = sums,
          .granule = Rows::kChunk};
}

}  // namespace

const AmxDecode kAmxBFloat16Decode =
    Functions<BFloat16Rows>(ElementOrder::kNatural, ElementOrder::kUnpacked);
const AmxDecode kAmxFloat8Decode =
    Functions<Float8Rows>(ElementOrder::kByteHalves, ElementOrder::kByteQuarters);

}  // namespace pagoda::kernels::cpu
