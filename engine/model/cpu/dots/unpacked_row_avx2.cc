// Compiled for AVX2 with FMA and F16C. Calls no inline function of another header except
// intrinsics: see vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/dots/unpacked_row.h"

namespace pagoda {
namespace {

float HalfAt(const uint8_t* bytes) {
  uint16_t bits;
  __builtin_memcpy(&bits, bytes, sizeof(bits));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
__m256i Load32(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}
__m128i Load16(const uint8_t* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
void Store32(uint8_t* bytes, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), value);
}
__m256i Bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }

// 16 bytes as 32 elements: the low halves, then the high ones.
__m256i Nibbles(const uint8_t* bytes) {
  const __m128i pairs = Load16(bytes);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs), Bytes(0xf));
}

// 16 where bit i of the 32 is set, in byte i.
__m256i FifthBits(const uint8_t* bytes) {
  int bits;
  __builtin_memcpy(&bits, bytes, sizeof(bits));
  const __m256i which = _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101,
                                           0x0202020202020202, 0x0303030303030303);
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), which);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  return _mm256_and_si256(set, Bytes(16));
}

// The tables plus 128, and MXFP4's plus 16.
__m256i Iq4Table() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                    static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                    static_cast<char>(197), static_cast<char>(217), static_cast<char>(241)));
}
__m256i Mxfp4Table() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
}

void OneScale(const UnpackedRow& to, uint64_t group, float scale, float minimum) {
  to.scales[group] = scale;
  to.minimums[group] = minimum;
}

void Q8_0(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 34) {
    const float scale = HalfAt(row);
    OneScale(to, b, scale, scale * 128.0f);
    Store32(to.integers + 32 * b, _mm256_xor_si256(Load32(row + 2), Bytes(0x80)));
  }
}

void Q4_0(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 18) {
    const float scale = HalfAt(row);
    OneScale(to, b, scale, scale * 8.0f);
    Store32(to.integers + 32 * b, Nibbles(row + 2));
  }
}

void Q4_1(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 20) {
    OneScale(to, b, HalfAt(row), -HalfAt(row + 2));
    Store32(to.integers + 32 * b, Nibbles(row + 4));
  }
}

void Q5_0(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 22) {
    const float scale = HalfAt(row);
    OneScale(to, b, scale, scale * 16.0f);
    Store32(to.integers + 32 * b, _mm256_or_si256(Nibbles(row + 6), FifthBits(row + 2)));
  }
}

void Q5_1(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 24) {
    OneScale(to, b, HalfAt(row), -HalfAt(row + 2));
    Store32(to.integers + 32 * b, _mm256_or_si256(Nibbles(row + 8), FifthBits(row + 4)));
  }
}

void Iq4Nl(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 18) {
    const float scale = HalfAt(row);
    OneScale(to, b, scale, scale * 128.0f);
    Store32(to.integers + 32 * b, _mm256_shuffle_epi8(Iq4Table(), Nibbles(row + 2)));
  }
}

void Mxfp4(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 17) {
    const uint32_t exponent = row[0];
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, sizeof(scale));
    OneScale(to, b, scale, scale * 16.0f);
    Store32(to.integers + 32 * b, _mm256_shuffle_epi8(Mxfp4Table(), Nibbles(row + 1)));
  }
}

// 8 bytes as fp32, times a factor.
__m256 Scaled(__m128i bytes, float factor) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_set1_ps(factor));
}
__m256 ScaledSigned(__m128i bytes, float factor) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_set1_ps(factor));
}
// 16 signed bytes times `factor` are the scales of 16 groups; the offset times these, the minimums.
void SixteenScales(const UnpackedRow& to, uint64_t group, __m128i bytes, float factor,
                   float offset) {
  for (int half = 0; half < 2; ++half) {
    const __m256 scales = ScaledSigned(half == 0 ? bytes : _mm_srli_si128(bytes, 8), factor);
    _mm256_storeu_ps(to.scales + group + 8 * half, scales);
    _mm256_storeu_ps(to.minimums + group + 8 * half, _mm256_mul_ps(scales, _mm256_set1_ps(offset)));
  }
}

void Q2_K(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 84) {
    const __m128i both = Load16(row);
    const __m128i low = _mm_and_si128(both, _mm_set1_epi8(0xf));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(0xf));
    const float scale = HalfAt(row + 80), minimum = HalfAt(row + 82);
    _mm256_storeu_ps(to.scales + 16 * b, Scaled(low, scale));
    _mm256_storeu_ps(to.scales + 16 * b + 8, Scaled(_mm_srli_si128(low, 8), scale));
    _mm256_storeu_ps(to.minimums + 16 * b, Scaled(high, minimum));
    _mm256_storeu_ps(to.minimums + 16 * b + 8, Scaled(_mm_srli_si128(high, 8), minimum));
    uint8_t* integers = to.integers + 256 * b;
    for (int part = 0; part < 2; ++part) {
      const __m256i bytes = Load32(row + 16 + 32 * part);
      for (int plane = 0; plane < 4; ++plane, integers += 32) {
        Store32(integers, _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * plane), Bytes(3)));
      }
    }
  }
}

void Q3_K(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 110) {
    int8_t scales[16];
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? row[96 + g] & 0xf : row[96 + g - 8] >> 4;
      const int high = row[104 + g % 4] >> 2 * (g / 4) & 3;
      scales[g] = static_cast<int8_t>((low | high << 4) - 32);
    }
    SixteenScales(to, 16 * b, Load16(reinterpret_cast<const uint8_t*>(scales)), HalfAt(row + 108),
                  4.0f);
    const __m256i masks = Load32(row);
    uint8_t* integers = to.integers + 256 * b;
    for (int part = 0; part < 2; ++part) {
      const __m256i bytes = Load32(row + 32 + 32 * part);
      for (int plane = 0; plane < 4; ++plane, integers += 32) {
        const __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * plane), Bytes(3));
        const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(masks, 4 * part + plane), Bytes(1));
        Store32(integers, _mm256_or_si256(low, _mm256_slli_epi16(bit, 2)));
      }
    }
  }
}

// Reads the scales and minimums of Q4_K and Q5_K, 6 bits each in 12 bytes. Writes 8 bytes of each.
void SixBits(const uint8_t* block, uint64_t group, const UnpackedRow& to) {
  uint32_t words[3];
  __builtin_memcpy(words, block + 4, sizeof(words));
  const uint64_t scales = (words[0] & 0x3f3f3f3f) |
                          uint64_t{(words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030)} << 32;
  const uint64_t minimums = (words[1] & 0x3f3f3f3f) |
                            uint64_t{(words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030)}
                                << 32;
  _mm256_storeu_ps(to.scales + group,
                   Scaled(_mm_cvtsi64_si128(static_cast<int64_t>(scales)), HalfAt(block)));
  _mm256_storeu_ps(to.minimums + group,
                   Scaled(_mm_cvtsi64_si128(static_cast<int64_t>(minimums)), HalfAt(block + 2)));
}

void Q4_K(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 144) {
    SixBits(row, 8 * b, to);
    uint8_t* const integers = to.integers + 256 * b;
    for (int part = 0; part < 4; ++part) {
      const __m256i bytes = Load32(row + 16 + 32 * part);
      Store32(integers + 64 * part, _mm256_and_si256(bytes, Bytes(0xf)));
      Store32(integers + 64 * part + 32, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), Bytes(0xf)));
    }
  }
}

void Q5_K(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 176) {
    SixBits(row, 8 * b, to);
    const __m256i fifth = Load32(row + 16);
    uint8_t* const integers = to.integers + 256 * b;
    for (int group = 0; group < 8; ++group) {
      const __m256i bytes = Load32(row + 48 + 32 * (group / 2));
      const __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (group % 2)), Bytes(0xf));
      const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(fifth, group), Bytes(1));
      Store32(integers + 32 * group, _mm256_or_si256(low, _mm256_slli_epi16(bit, 4)));
    }
  }
}

void Q6_K(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 210) {
    SixteenScales(to, 16 * b, Load16(row + 192), HalfAt(row + 208), 32.0f);
    uint8_t* integers = to.integers + 256 * b;
    for (int part = 0; part < 2; ++part) {
      const __m256i high = Load32(row + 128 + 32 * part);
      for (int k = 0; k < 4; ++k, integers += 32) {
        const __m256i bytes = Load32(row + 64 * part + 32 * (k % 2));
        const __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (k / 2)), Bytes(0xf));
        const __m256i bits = _mm256_and_si256(_mm256_srli_epi16(high, 2 * k), Bytes(3));
        Store32(integers, _mm256_or_si256(low, _mm256_slli_epi16(bits, 4)));
      }
    }
  }
}

void Iq4Xs(const uint8_t* row, uint64_t blocks, const UnpackedRow& to) {
  for (uint64_t b = 0; b < blocks; ++b, row += 136) {
    const float factor = HalfAt(row);
    uint16_t high;
    __builtin_memcpy(&high, row + 2, sizeof(high));
    for (int g = 0; g < 8; ++g) {
      const int bits = (row[4 + g / 2] >> 4 * (g % 2) & 0xf) | (high >> 2 * g & 3) << 4;
      const float scale = factor * static_cast<float>(bits - 32);
      OneScale(to, 8 * b + g, scale, scale * 128.0f);
      Store32(to.integers + 256 * b + 32 * g,
              _mm256_shuffle_epi8(Iq4Table(), Nibbles(row + 8 + 16 * g)));
    }
  }
}

int SumOf(__m256i integers) {
  __m128i sum =
      _mm_add_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}

}  // namespace

void UnpackRowAvx2(TensorType type, const std::byte* row, uint64_t inputs, const UnpackedRow& to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (type) {
    case TensorType::kQ8_0:
      return Q8_0(bytes, inputs / 32, to);
    case TensorType::kQ4_0:
      return Q4_0(bytes, inputs / 32, to);
    case TensorType::kQ4_1:
      return Q4_1(bytes, inputs / 32, to);
    case TensorType::kQ5_0:
      return Q5_0(bytes, inputs / 32, to);
    case TensorType::kQ5_1:
      return Q5_1(bytes, inputs / 32, to);
    case TensorType::kIQ4_NL:
      return Iq4Nl(bytes, inputs / 32, to);
    case TensorType::kMxfp4:
      return Mxfp4(bytes, inputs / 32, to);
    case TensorType::kQ2_K:
      return Q2_K(bytes, inputs / 256, to);
    case TensorType::kQ3_K:
      return Q3_K(bytes, inputs / 256, to);
    case TensorType::kQ4_K:
      return Q4_K(bytes, inputs / 256, to);
    case TensorType::kQ5_K:
      return Q5_K(bytes, inputs / 256, to);
    case TensorType::kQ6_K:
      return Q6_K(bytes, inputs / 256, to);
    case TensorType::kIQ4_XS:
      return Iq4Xs(bytes, inputs / 256, to);
    default:
      return;  // Not quantised.
  }
}

void QuantiseRowAvx2(const float* row, uint64_t inputs, const QuantisedRow& to) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (uint64_t first = 0; first < inputs; first += 32) {
    __m256 largest = _mm256_setzero_ps(), nan = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      const __m256 values = _mm256_loadu_ps(row + first + 8 * i);
      largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, values));
      nan = _mm256_add_ps(nan, _mm256_mul_ps(values, _mm256_setzero_ps()));
    }
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    most = _mm_max_ss(most, _mm_movehdup_ps(most));
    const float maximum = _mm_cvtss_f32(most);
    const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(nan, nan, _CMP_UNORD_Q)) == 0;
    const float scale = finite ? maximum / 127.0f : __builtin_nanf("");
    const float inverse = maximum < 1e-36f || !finite ? 0.0f : 127.0f / maximum;
    __m256i integers[4];
    for (int i = 0; i < 4; ++i) {
      integers[i] = _mm256_cvtps_epi32(
          _mm256_mul_ps(_mm256_loadu_ps(row + first + 8 * i), _mm256_set1_ps(inverse)));
      if (!finite) integers[i] = _mm256_setzero_si256();
    }
    // packs works within halves of registers; the permutation restores the order.
    const __m256i words0 = _mm256_packs_epi32(integers[0], integers[1]);
    const __m256i words1 = _mm256_packs_epi32(integers[2], integers[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words0, words1),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    Store32(reinterpret_cast<uint8_t*>(to.integers) + first, bytes);
    const int sum0 = SumOf(_mm256_add_epi32(integers[0], integers[1]));
    const int sum1 = SumOf(_mm256_add_epi32(integers[2], integers[3]));
    _mm256_storeu_ps(to.scales + first / 4, _mm256_set1_ps(scale));
    to.sums16[first / 16] = scale * static_cast<float>(sum0);
    to.sums16[first / 16 + 1] = scale * static_cast<float>(sum1);
    to.sums32[first / 32] = scale * static_cast<float>(sum0 + sum1);
  }
  const uint64_t padded = (inputs + kUnpackedStep - 1) / kUnpackedStep * kUnpackedStep;
  for (uint64_t i = inputs; i < padded; ++i) to.integers[i] = 0;
  for (uint64_t i = inputs / 4; i < padded / 4; ++i) to.scales[i] = 0.0f;
  for (uint64_t i = inputs / 16; i < padded / 16 + 16; ++i) to.sums16[i] = 0.0f;
  for (uint64_t i = inputs / 32; i < padded / 32 + 16; ++i) to.sums32[i] = 0.0f;
}

}  // namespace pagoda
