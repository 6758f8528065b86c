// Compiled for AMX and AVX-512 with BF16. Calls no inline function of another header except
// intrinsics and those of amx_tiles.h: see vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/products/tiles.h"
#include "kernels/cpu/vectors/amx_tiles.h"

namespace pagoda {
namespace {

constexpr uint64_t kGroup = 16;  // Rows and outputs of a tile.
constexpr uint64_t kStepBytes = 1024;

using kernels::cpu::Transpose;

constexpr kernels::cpu::TileConfiguration kConfiguration;

// Writes a tile of results [16 outputs][16 rows].
void StoreTile(const TileCall& call, const float* tile, uint64_t first_output, uint64_t first_row) {
  __m512 registers[kGroup];
  for (uint64_t o = 0; o < kGroup; ++o) registers[o] = _mm512_load_ps(tile + kGroup * o);
  Transpose(registers);
  const uint64_t outputs = call.outputs - first_output;
  const auto mask = static_cast<__mmask16>(outputs >= kGroup ? 0xffff : (1u << outputs) - 1);
  __m512 bias = _mm512_setzero_ps();
  if (call.bias != nullptr) bias = _mm512_maskz_loadu_ps(mask, call.bias + first_output);
  for (uint64_t r = 0; r < kGroup; ++r) {
    if (first_row + r == call.num_rows) return;
    _mm512_mask_storeu_ps(call.output + (first_row + r) * call.output_stride + first_output, mask,
                          _mm512_add_ps(registers[r], bias));
  }
}

// Adds the products of two groups of outputs and two groups of rows to tiles 0 to 3. A second group
// that does not exist is the first one again; its results are not stored.
void AddProducts(const std::byte* weights0, const std::byte* weights1, const std::byte* rows0,
                 const std::byte* rows1, uint64_t steps) {
  for (uint64_t s = 0; s < steps; ++s) {
    _tile_loadd(4, weights0 + s * kStepBytes, 64);
    _tile_loadd(6, rows0 + s * kStepBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, weights1 + s * kStepBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, rows1 + s * kStepBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
}
// The same for one group of rows: tiles 0 and 2.
void AddProducts(const std::byte* weights0, const std::byte* weights1, const std::byte* rows,
                 uint64_t steps) {
  for (uint64_t s = 0; s < steps; ++s) {
    _tile_loadd(4, weights0 + s * kStepBytes, 64);
    _tile_loadd(6, rows + s * kStepBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, weights1 + s * kStepBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
  }
}

}  // namespace

void OrderTileInput(const TileInput& input) {
  for (uint64_t first = 0, at = 0; first < input.inputs; first += 32, at += kStepBytes) {
    __m512 high[kGroup], low[kGroup];
    const uint64_t left = input.inputs - first;
    const uint32_t mask = left >= 32 ? ~0u : (1u << left) - 1;
    for (uint64_t r = 0; r < kGroup; ++r) {
      __m512 values[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      if (r < input.num_rows) {
        const float* const row = input.rows + r * input.stride + first;
        values[0] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), row);
        values[1] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), row + 16);
      }
      const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[1], values[0]));
      high[r] = _mm512_castsi512_ps(rounded);
      if (input.low == nullptr) continue;
      for (int half = 0; half < 2; ++half) {
        const __m256i halves =
            half == 0 ? _mm512_castsi512_si256(rounded) : _mm512_extracti64x4_epi64(rounded, 1);
        const __m512 back =
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
        values[half] = _mm512_sub_ps(values[half], back);
      }
      low[r] =
          _mm512_castsi512_ps(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[1], values[0])));
    }
    Transpose(high);
    for (uint64_t p = 0; p < kGroup; ++p) {
      _mm512_store_ps(reinterpret_cast<float*>(input.high + at) + kGroup * p, high[p]);
    }
    if (input.low == nullptr) continue;
    Transpose(low);
    for (uint64_t p = 0; p < kGroup; ++p) {
      _mm512_store_ps(reinterpret_cast<float*>(input.low + at) + kGroup * p, low[p]);
    }
  }
}

void MultiplyTiles(const TileCall& call) {
  _tile_loadconfig(&kConfiguration);
  const uint64_t group_bytes = call.steps * kStepBytes;
  const uint64_t output_groups = (call.outputs + kGroup - 1) / kGroup;
  const uint64_t row_groups = (call.num_rows + kGroup - 1) / kGroup;
  alignas(64) float tile[kGroup * kGroup];
  for (uint64_t r = 0; r < row_groups; r += 2) {
    const bool two_rows = r + 1 < row_groups;
    for (uint64_t o = 0; o < output_groups; o += 2) {
      const bool two_outputs = o + 1 < output_groups;
      const uint64_t weights0 = o * group_bytes, weights1 = (o + two_outputs) * group_bytes;
      const uint64_t rows0 = r * group_bytes, rows1 = (r + two_rows) * group_bytes;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      const auto add = [&](const std::byte* weights, const std::byte* rows) {
        if (two_rows) {
          AddProducts(weights + weights0, weights + weights1, rows + rows0, rows + rows1,
                      call.steps);
        } else {
          AddProducts(weights + weights0, weights + weights1, rows + rows0, call.steps);
        }
      };
      add(call.weights, call.input);
      if (call.weights_low != nullptr) {
        add(call.weights_low, call.input);
        add(call.weights, call.input_low);
      }
      _tile_stored(0, tile, 64);
      StoreTile(call, tile, o * kGroup, r * kGroup);
      if (two_outputs) {
        _tile_stored(2, tile, 64);
        StoreTile(call, tile, (o + 1) * kGroup, r * kGroup);
      }
      if (!two_rows) continue;
      _tile_stored(1, tile, 64);
      StoreTile(call, tile, o * kGroup, (r + 1) * kGroup);
      if (two_outputs) {
        _tile_stored(3, tile, 64);
        StoreTile(call, tile, (o + 1) * kGroup, (r + 1) * kGroup);
      }
    }
  }
  _tile_release();
}

}  // namespace pagoda
