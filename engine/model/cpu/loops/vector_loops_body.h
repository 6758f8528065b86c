// The loops of vector_loops.h. Each file that compiles them for its instructions includes this
// once. Everything is in an anonymous namespace and calls nothing from another header: code
// compiled here for AVX-512 must not be linked into code for other machines.
#ifndef PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_BODY_H_
#define PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_BODY_H_

#include <cstdint>

#include "engine/model/cpu/loops/vector_loops.h"

namespace pagoda {
namespace {

inline float BitsToFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// 2^n * exp(r) with x = n * ln 2 + r and |r| <= ln 2 / 2, exp(r) by Cephes' polynomial (Moshier).
// Outside the range of fp32 the result stays at the range's end.
inline float Exp(float x) {
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  // After adding this, the last bits of the sum are the number's integer part.
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = FloatToBits(shifted) - FloatToBits(kRounder);
  return p * BitsToFloat((exponent + 127u) << 23);
}

// The number of partial sums, added in a fixed order. Registers of any width divide it.
constexpr uint64_t kLanes = 64;

float SumOfSquares(const float* __restrict input, uint64_t count) {
  float lanes[kLanes] = {};
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += input[i + lane] * input[i + lane];
  }
  for (uint64_t lane = 0; i + lane < count; ++lane)
    lanes[lane] += input[i + lane] * input[i + lane];
  for (uint64_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

void RmsNorm(const float* input, const float* weights, uint64_t count, float eps, float* output) {
  const float mean = SumOfSquares(input, count) / static_cast<float>(count);
  const float scale = 1.0f / __builtin_sqrtf(mean + eps);
#pragma GCC ivdep
  for (uint64_t i = 0; i < count; ++i) output[i] = input[i] * scale * weights[i];
}

void Rotate(float* head, const float* __restrict cosines, const float* __restrict sines,
            uint64_t half_count) {
  float* __restrict firsts = head;
  float* __restrict seconds = head + half_count;
  for (uint64_t i = 0; i < half_count; ++i) {
    const float first = firsts[i];
    const float second = seconds[i];
    firsts[i] = first * cosines[i] - second * sines[i];
    seconds[i] = second * cosines[i] + first * sines[i];
  }
}

void RotateNeighbours(float* __restrict head, const float* __restrict cosines,
                      const float* __restrict sines, uint64_t half_count) {
  for (uint64_t i = 0; i < half_count; ++i) {
    const float first = head[2 * i];
    const float second = head[2 * i + 1];
    head[2 * i] = first * cosines[i] - second * sines[i];
    head[2 * i + 1] = second * cosines[i] + first * sines[i];
  }
}

// The mean is subtracted before the squares are summed, so that a large mean costs no digits.
void LayerNorm(const float* input, const float* weights, const float* bias, uint64_t count,
               float eps, float* output) {
  float sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += input[i];
  const float mean = sum / static_cast<float>(count);
  float squares = 0;
  for (uint64_t i = 0; i < count; ++i) squares += (input[i] - mean) * (input[i] - mean);
  const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + eps);
#pragma GCC ivdep
  for (uint64_t i = 0; i < count; ++i) {
    output[i] = (input[i] - mean) * scale * weights[i] + bias[i];
  }
}

void GateSilu(const float* __restrict gate, const float* __restrict up, uint64_t count,
              float* __restrict output) {
  for (uint64_t i = 0; i < count; ++i) output[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

// 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2 u))
void GateGeluTanh(const float* __restrict gate, const float* __restrict up, uint64_t count,
                  float* __restrict output) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216f;
  for (uint64_t i = 0; i < count; ++i) {
    const float x = gate[i];
    const float two_u = kTwoRootTwoOverPi * (x + 0.044715f * x * x * x);
    output[i] = x / (1.0f + Exp(-two_u)) * up[i];
  }
}

void GateClampedSilu(const float* __restrict gate, const float* __restrict up, uint64_t count,
                     float alpha, float limit, float* __restrict output) {
  for (uint64_t i = 0; i < count; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    float u = up[i] > limit ? limit : up[i];
    u = u < -limit ? -limit : u;
    output[i] = (u + 1.0f) * (g / (1.0f + Exp(-alpha * g)));
  }
}

void GeluTanh(uint64_t count, float* values) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216f;
  for (uint64_t i = 0; i < count; ++i) {
    const float x = values[i];
    values[i] = x / (1.0f + Exp(-kTwoRootTwoOverPi * (x + 0.044715f * x * x * x)));
  }
}

void AddScaled(float factor, const float* __restrict addend, uint64_t count,
               float* __restrict sum) {
  for (uint64_t i = 0; i < count; ++i) sum[i] += factor * addend[i];
}

void Add(const float* __restrict addend, uint64_t count, float* __restrict sum) {
  for (uint64_t i = 0; i < count; ++i) sum[i] += addend[i];
}

void AddBias(const float* __restrict input, const float* __restrict bias, uint64_t count,
             float* __restrict output) {
  for (uint64_t i = 0; i < count; ++i) output[i] = input[i] + bias[i];
}

void Scale(float factor, uint64_t count, float* values) {
  for (uint64_t i = 0; i < count; ++i) values[i] *= factor;
}

// tanh(y) = 1 - 2 / (1 + exp(2 y)). The error is a few units in the last place of the cap.
void SoftCap(float cap, uint64_t count, float* values) {
  const float two_over_cap = 2.0f / cap;
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = cap - 2.0f * cap / (1.0f + Exp(two_over_cap * values[i]));
  }
}

constexpr VectorLoops kLoops = {.rms_norm = RmsNorm,
                                .rotate = Rotate,
                                .rotate_neighbours = RotateNeighbours,
                                .layer_norm = LayerNorm,
                                .gate_silu = GateSilu,
                                .gate_gelu_tanh = GateGeluTanh,
                                .gate_clamped_silu = GateClampedSilu,
                                .gelu_tanh = GeluTanh,
                                .add_scaled = AddScaled,
                                .add = Add,
                                .add_bias = AddBias,
                                .scale = Scale,
                                .soft_cap = SoftCap};

}  // namespace
}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_BODY_H_
