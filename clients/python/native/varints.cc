#include "clients/python/native/varints.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagoda::python {
namespace {

// Without branches, because the sizes of token ids are random.
char* PutVarint(uint32_t value, char* out) {
  static_assert(std::endian::native == std::endian::little);
  const uint64_t wide = value;
  uint64_t spread = (wide & 0x7f) | (wide & 0x3f80) << 1 | (wide & 0x1fc000) << 2 |
                    (wide & 0xfe00000) << 3 | (wide & 0xf0000000) << 4;
  const int more = std::bit_width(value | 1) * 9 / 64;  // (bits - 1) / 7.
  spread |= 0x8080808080 & ((uint64_t{1} << 8 * more) - 1);
  std::memcpy(out, &spread, sizeof(spread));
  return out + more + 1;
}

#if defined(__x86_64__)
// The values whose varints have at most four bytes are below this.
constexpr uint32_t kFiveBytes = 1u << 28;

// Of all sixteen values. g++ 12 takes the forms of shifts without a mask for reads of uninitialised
// memory.
constexpr __mmask16 kAll = 0xffff;

// Sixteen values at a time: spreads the bits of each over four bytes, and then keeps the bytes that
// the varint has.
__attribute__((target("avx512f,avx512bw,avx512vbmi2"))) char* PutVarintsWide(
    std::span<const uint32_t> values, char* out) {
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    const __m512i value = _mm512_loadu_si512(values.data() + i);
    if (_mm512_cmpge_epu32_mask(value, _mm512_set1_epi32(kFiveBytes)) != 0) {
      out = PutVarintsPlain(values.subspan(i, 16), out);
      continue;
    }
    const auto bits = [value](int mask, int shift) __attribute__((target("avx512f"))) {
      return _mm512_maskz_slli_epi32(kAll, _mm512_and_si512(value, _mm512_set1_epi32(mask)), shift);
    };
    const __m512i low = _mm512_or_si512(bits(0x7f, 0), bits(0x3f80, 1));
    const __m512i high = _mm512_or_si512(bits(0x1fc000, 2), bits(0xfe00000, 3));
    const __mmask16 two = _mm512_cmpge_epu32_mask(value, _mm512_set1_epi32(1 << 7));
    const __mmask16 three = _mm512_cmpge_epu32_mask(value, _mm512_set1_epi32(1 << 14));
    const __mmask16 four = _mm512_cmpge_epu32_mask(value, _mm512_set1_epi32(1 << 21));
    // The top bits of the bytes that a varint has, the first of which it always has.
    __m512i has = _mm512_mask_or_epi32(_mm512_set1_epi32(0x80), two, _mm512_set1_epi32(0x80),
                                       _mm512_set1_epi32(0x8000));
    has = _mm512_mask_or_epi32(has, three, has, _mm512_set1_epi32(0x800000));
    has = _mm512_mask_or_epi32(has, four, has, _mm512_set1_epi32(static_cast<int>(0x80000000)));
    // A byte that another one follows has its top bit.
    const __m512i follows = _mm512_maskz_srli_epi32(kAll, has, 8);
    const __m512i bytes = _mm512_or_si512(_mm512_or_si512(low, high), follows);
    const __mmask64 kept = _mm512_movepi8_mask(has);
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, bytes));
    out += std::popcount(static_cast<uint64_t>(kept));
  }
  return PutVarintsPlain(values.subspan(i), out);
}
#endif

}  // namespace

char* PutVarintsPlain(std::span<const uint32_t> values, char* out) {
  for (const uint32_t value : values) out = PutVarint(value, out);
  return out;
}

char* PutVarints(std::span<const uint32_t> values, char* out) {
#if defined(__x86_64__)
  static const bool wide =
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0;
  if (wide) return PutVarintsWide(values, out);
#endif
  return PutVarintsPlain(values, out);
}

}  // namespace pagoda::python
