#include "wire/token_varints.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagoda {
namespace {

constexpr uint64_t kTopBits = 0x8080808080808080;

// The value in the lowest bytes, whose top bits are ignored. Bits above the 32nd are lost, as in
// protobuf.
uint32_t ValueOf(uint64_t bytes) {
  return static_cast<uint32_t>((bytes & 0x7f) | (bytes >> 1 & 0x3f80) | (bytes >> 2 & 0x1fc000) |
                               (bytes >> 3 & 0xfe00000) | (bytes >> 4 & 0xf0000000));
}

// Without branches on the length, because the lengths of token ids are random.
bool ReadFrom(const char* at, const char* end, uint32_t* values) {
  while (at < end) {
    uint64_t bytes = kTopBits;  // Bytes behind the end continue for ever.
    if (end - at >= 8) {
      std::memcpy(&bytes, at, 8);
    } else {
      std::memcpy(&bytes, at, static_cast<size_t>(end - at));
    }
    const int bits =
        std::countr_zero(~bytes & kTopBits) + 1;  // Of the varint; 65 if it has no end.
    if (bits > 5 * 8) return false;
    *values++ = ValueOf(bytes & ((uint64_t{1} << bits) - 1));
    at += bits / 8;
  }
  return true;
}

#if defined(__x86_64__)
// Sixteen varints of at most four bytes at a time: finds their ends, moves the bytes of each into a
// value of its own, and closes the gaps of the top bits.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi2"))) bool
ReadVarintsWide(absl::string_view bytes, uint32_t* values) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  alignas(64) uint8_t places[64];
  for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i);
  const __m512i place = _mm512_load_si512(places);
  while (end - at >= 64) {
    const __m512i read = _mm512_loadu_si512(at);
    const __mmask64 ends = ~_mm512_movepi8_mask(read);
    if (std::popcount(static_cast<uint64_t>(ends)) < 16) break;
    const __m512i last =
        _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_maskz_compress_epi8(ends, place)));
    // The end of the value before each; -1 before the first.
    const __m512i before = _mm512_alignr_epi32(last, _mm512_set1_epi32(-1), 15);
    const __m512i size = _mm512_sub_epi32(last, before);
    if (_mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(4)) != 0) break;
    const __m512i first = _mm512_add_epi32(before, _mm512_set1_epi32(1));
    // The places of a value's four bytes. Those behind its own are cleared below.
    const __m512i from = _mm512_add_epi32(_mm512_mullo_epi32(first, _mm512_set1_epi32(0x01010101)),
                                          _mm512_set1_epi32(0x03020100));
    const __m512i moved = _mm512_permutexvar_epi8(from, read);
    const __m512i unused = _mm512_sub_epi32(_mm512_set1_epi32(32), _mm512_slli_epi32(size, 3));
    const __m512i kept = _mm512_and_si512(moved, _mm512_srlv_epi32(_mm512_set1_epi32(-1), unused));
    const __m512i b0 = _mm512_and_si512(kept, _mm512_set1_epi32(0x7f));
    const __m512i b1 = _mm512_and_si512(_mm512_srli_epi32(kept, 1), _mm512_set1_epi32(0x3f80));
    const __m512i b2 = _mm512_and_si512(_mm512_srli_epi32(kept, 2), _mm512_set1_epi32(0x1fc000));
    const __m512i b3 = _mm512_and_si512(_mm512_srli_epi32(kept, 3), _mm512_set1_epi32(0xfe00000));
    _mm512_storeu_si512(values, _mm512_or_si512(_mm512_or_si512(b0, b1), _mm512_or_si512(b2, b3)));
    values += 16;
    // Behind the sixteenth end.
    at += std::countr_zero(_pdep_u64(uint64_t{1} << 15, static_cast<uint64_t>(ends))) + 1;
  }
  return ReadFrom(at, end, values);
}
#endif

}  // namespace

size_t CountVarints(absl::string_view bytes) {
  size_t ends = 0;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    ends += static_cast<size_t>(std::popcount(~word & kTopBits));
  }
  for (; i < bytes.size(); ++i) ends += bytes[i] >= 0 ? 1 : 0;
  return ends;
}

bool ReadVarintsPlain(absl::string_view bytes, uint32_t* values) {
  return ReadFrom(bytes.data(), bytes.data() + bytes.size(), values);
}

bool ReadVarints(absl::string_view bytes, uint32_t* values) {
#if defined(__x86_64__)
  static const bool wide =
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0 &&
      __builtin_cpu_supports("bmi2") != 0;
  if (wide) return ReadVarintsWide(bytes, values);
#endif
  return ReadVarintsPlain(bytes, values);
}

}  // namespace pagoda
