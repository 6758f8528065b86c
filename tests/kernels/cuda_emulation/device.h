// Implements kernels/cuda/device/device.h on the host. See emulator.h.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_DEVICE_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_DEVICE_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/kernels/cuda_emulation/emulator.h"

#define PAGODA_DEVICE inline

namespace pagoda::kernels::cuda {

PAGODA_DEVICE uint32_t ThreadIndex() { return emulation::CurrentPlace().thread; }
PAGODA_DEVICE uint32_t BlockIndex() { return emulation::CurrentPlace().block; }
PAGODA_DEVICE uint32_t GridBlocks() { return emulation::CurrentPlace().blocks; }

PAGODA_DEVICE void SyncThreads() { emulation::SyncThreads(); }
PAGODA_DEVICE void SyncWarp() {
  emulation::LaneData data;
  emulation::Collect("SyncWarp", data, [](emulation::LaneData*) {});
}

PAGODA_DEVICE uint32_t Shuffle(uint32_t value, uint32_t lane) {
  emulation::LaneData data = {.in = {value, lane}};
  emulation::Collect("Shuffle", data, [](emulation::LaneData* lanes) {
    for (int i = 0; i < 32; ++i) lanes[i].out[0] = lanes[lanes[i].in[1] % 32].in[0];
  });
  return data.out[0];
}
PAGODA_DEVICE float ShuffleXor(float value, uint32_t mask) {
  emulation::LaneData data = {.in = {std::bit_cast<uint32_t>(value), mask}};
  emulation::Collect("ShuffleXor", data, [](emulation::LaneData* lanes) {
    for (uint32_t i = 0; i < 32; ++i) lanes[i].out[0] = lanes[(i ^ lanes[i].in[1]) % 32].in[0];
  });
  return std::bit_cast<float>(data.out[0]);
}
PAGODA_DEVICE bool AnyOfWarp(bool value) {
  emulation::LaneData data = {.in = {value ? 1u : 0u}};
  emulation::Collect("AnyOfWarp", data, [](emulation::LaneData* lanes) {
    uint32_t any = 0;
    for (int i = 0; i < 32; ++i) any |= lanes[i].in[0];
    for (int i = 0; i < 32; ++i) lanes[i].out[0] = any;
  });
  return data.out[0] != 0;
}

PAGODA_DEVICE uint32_t SharedBase() { return emulation::kSharedBase; }

template <class T>
PAGODA_DEVICE T LoadShared(uint32_t address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  T value;
  emulation::ReadShared(address, &value, sizeof(T));
  return value;
}
template <class T>
PAGODA_DEVICE void StoreShared(uint32_t address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::WriteShared(address, &value, sizeof(T));
}

PAGODA_DEVICE void CopyAsync16(uint32_t shared, const void* global, bool present) {
  emulation::CopyAsync(shared, global, present);
}
PAGODA_DEVICE void CommitCopies() { emulation::CommitCopies(); }
template <int kPending>
PAGODA_DEVICE void WaitForCopies() {
  emulation::WaitForCopies(kPending);
}

// Each lane reads the row that it names, so that the shared memory knows which lane reads which
// row.
PAGODA_DEVICE void LoadMatrices(uint32_t (&matrices)[4], uint32_t address) {
  emulation::LaneData data = {};
  uint32_t row[4];
  emulation::ReadMatrixRow(address, row);
  std::memcpy(data.in, row, sizeof(row));
  emulation::Collect("LoadMatrices", data, [](emulation::LaneData* lanes) {
    for (int i = 0; i < 32; ++i) {
      for (int m = 0; m < 4; ++m) lanes[i].out[m] = lanes[8 * m + i / 4].in[i % 4];
    }
  });
  std::memcpy(matrices, data.out, sizeof(matrices));
}
PAGODA_DEVICE void LoadMatricesTransposed(uint32_t (&matrices)[4], uint32_t address) {
  emulation::LaneData data = {};
  uint32_t row[4];
  emulation::ReadMatrixRow(address, row);
  std::memcpy(data.in, row, sizeof(row));
  emulation::Collect("LoadMatricesTransposed", data, [](emulation::LaneData* lanes) {
    // Element `column` of a row of 8.
    const auto element = [lanes](int matrix, int row_index, int column) {
      return lanes[8 * matrix + row_index].in[column / 2] >> (column % 2 * 16) & 0xffffu;
    };
    for (int i = 0; i < 32; ++i) {
      for (int m = 0; m < 4; ++m) {
        lanes[i].out[m] = element(m, i % 4 * 2, i / 4) | element(m, i % 4 * 2 + 1, i / 4) << 16;
      }
    }
  });
  std::memcpy(matrices, data.out, sizeof(matrices));
}

PAGODA_DEVICE uint32_t TransposeMatrix(uint32_t matrix) {
  emulation::LaneData data = {.in = {matrix}};
  emulation::Collect("TransposeMatrix", data, [](emulation::LaneData* lanes) {
    const auto element = [lanes](int row, int column) {
      return lanes[row * 4 + column / 2].in[0] >> (column % 2 * 16) & 0xffffu;
    };
    for (int i = 0; i < 32; ++i) {
      lanes[i].out[0] = element(i % 4 * 2, i / 4) | element(i % 4 * 2 + 1, i / 4) << 16;
    }
  });
  return data.out[0];
}

namespace emulation {

template <class T>
float LowOf(uint32_t pair) {
  return ToFloat(T{static_cast<uint16_t>(pair)});
}
template <class T>
float HighOf(uint32_t pair) {
  return ToFloat(T{static_cast<uint16_t>(pair >> 16)});
}

// The fragments of m16n8k16, with g = lane / 4 and c = lane % 4 (PTX ISA). a has A[g][2c],
// A[g+8][2c], A[g][2c+8] and A[g+8][2c+8], each with the element on its right. b has B[2c][g] and
// B[2c+8][g], each with the element below it. The sums belong to [g][2c], [g][2c+1], [g+8][2c] and
// [g+8][2c+1].
template <class T>
void MultiplyFragments(LaneData* lanes) {
  ++warp_products;
  float a[16][16];
  float b[16][8];
  for (int i = 0; i < 32; ++i) {
    const int g = i / 4;
    const int c = i % 4;
    for (int r = 0; r < 4; ++r) {
      a[g + r % 2 * 8][2 * c + r / 2 * 8] = LowOf<T>(lanes[i].in[r]);
      a[g + r % 2 * 8][2 * c + r / 2 * 8 + 1] = HighOf<T>(lanes[i].in[r]);
    }
    for (int r = 0; r < 2; ++r) {
      b[2 * c + 8 * r][g] = LowOf<T>(lanes[i].in[4 + r]);
      b[2 * c + 8 * r + 1][g] = HighOf<T>(lanes[i].in[4 + r]);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < 4; ++r) {
      const int row = i / 4 + r / 2 * 8;
      const int column = i % 4 * 2 + r % 2;
      float sum = lanes[i].sums[r];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      lanes[i].sums[r] = sum;
    }
  }
}

}  // namespace emulation

template <class T>
PAGODA_DEVICE void MultiplyMatrices(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  emulation::LaneData data = {.in = {a[0], a[1], a[2], a[3], b0, b1}};
  std::memcpy(data.sums, sums, sizeof(sums));
  emulation::Collect("MultiplyMatrices", data, emulation::MultiplyFragments<T>);
  std::memcpy(sums, data.sums, sizeof(sums));
}

PAGODA_DEVICE uint32_t PermuteBytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7u;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xffu) << (8 * i);
  }
  return result;
}
PAGODA_DEVICE uint32_t PermuteBytes(uint32_t value, uint32_t selector) {
  return PermuteBytes(value, 0, selector);
}

template <class T>
PAGODA_DEVICE uint32_t PackPair(float low, float high) {
  return uint32_t{FromFloat<T>(high).bits} << 16 | FromFloat<T>(low).bits;
}
PAGODA_DEVICE float LowOfHalves(uint32_t pair) { return emulation::LowOf<Half>(pair); }
PAGODA_DEVICE float HighOfHalves(uint32_t pair) { return emulation::HighOf<Half>(pair); }

inline constexpr bool kConvertsE4M3 = true;
PAGODA_DEVICE uint32_t HalvesOfE4M3(uint32_t bytes) {
  return PackPair<Half>(ToFloat(Float8E4M3{static_cast<uint8_t>(bytes)}),
                        ToFloat(Float8E4M3{static_cast<uint8_t>(bytes >> 8)}));
}

template <class T>
PAGODA_DEVICE uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  return PackPair<T>(emulation::LowOf<T>(a) * emulation::LowOf<T>(b),
                     emulation::HighOf<T>(a) * emulation::HighOf<T>(b));
}

PAGODA_DEVICE float LargerOf(float a, float b) { return std::fmax(a, b); }
// Subnormal arguments and results become zeros.
PAGODA_DEVICE float Exp2(float x) {
  constexpr float kSmallest = 0x1p-126f;
  const float y = std::exp2(std::abs(x) < kSmallest ? 0.0f : x);
  return y < kSmallest ? 0.0f : y;
}
PAGODA_DEVICE float Log2(float x) { return std::log2(x); }
PAGODA_DEVICE float Tanh(float x) { return std::tanh(x); }
PAGODA_DEVICE float ExactTanh(float x) { return std::tanh(x); }
PAGODA_DEVICE float Cosine(float x) { return std::cos(x); }
PAGODA_DEVICE float Sine(float x) { return std::sin(x); }
PAGODA_DEVICE float SquareRoot(float x) { return std::sqrt(x); }

PAGODA_DEVICE Vector16 LoadGlobal16(const void* address) {
  return *static_cast<const Vector16*>(address);
}
PAGODA_DEVICE Vector8 LoadGlobal8(const void* address) {
  return *static_cast<const Vector8*>(address);
}
PAGODA_DEVICE void StoreGlobal8(void* address, Vector8 value) {
  *static_cast<Vector8*>(address) = value;
}
PAGODA_DEVICE void StoreGlobal16(void* address, Vector16 value) {
  *static_cast<Vector16*>(address) = value;
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_DEVICE_H_
