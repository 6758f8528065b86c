// Implements device.h under nvcc, for sm_80 and newer.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_DEVICE_PTX_H_
#define PAGODA_KERNELS_CUDA_DEVICE_DEVICE_PTX_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#define PAGODA_DEVICE __device__ __forceinline__

namespace pagoda::kernels::cuda {

PAGODA_DEVICE uint32_t ThreadIndex() { return threadIdx.x; }
PAGODA_DEVICE uint32_t BlockIndex() { return blockIdx.x; }
PAGODA_DEVICE uint32_t GridBlocks() { return gridDim.x; }

PAGODA_DEVICE void SyncThreads() { __syncthreads(); }
PAGODA_DEVICE void SyncWarp() { __syncwarp(); }

// Exchanges within a warp. All 32 threads must take part.
PAGODA_DEVICE float ShuffleXor(float value, uint32_t mask) {
  return __shfl_xor_sync(~0u, value, static_cast<int>(mask));
}
PAGODA_DEVICE uint32_t Shuffle(uint32_t value, uint32_t lane) {
  return __shfl_sync(~0u, value, static_cast<int>(lane));
}
PAGODA_DEVICE bool AnyOfWarp(bool value) { return __any_sync(~0u, value) != 0; }

extern __shared__ __align__(1024) Vector16 dynamic_shared_memory[];

// The block's shared memory begins here, aligned to 1,024 bytes.
PAGODA_DEVICE uint32_t SharedBase() {
  return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared_memory));
}

template <class T>
PAGODA_DEVICE T LoadShared(uint32_t address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (sizeof(T) == 16) {
    Vector16 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "r"(address)
                 : "memory");
    return std::bit_cast<T>(v);
  } else if constexpr (sizeof(T) == 8) {
    Vector8 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(v.words[0]), "=r"(v.words[1])
                 : "r"(address)
                 : "memory");
    return std::bit_cast<T>(v);
  } else {
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return std::bit_cast<T>(word);
  }
}

template <class T>
PAGODA_DEVICE void StoreShared(uint32_t address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (sizeof(T) == 16) {
    const auto v = std::bit_cast<Vector16>(value);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.words[0]),
                 "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    const auto v = std::bit_cast<Vector8>(value);
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(v.words[0]), "r"(v.words[1])
                 : "memory");
  } else {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(std::bit_cast<uint32_t>(value))
                 : "memory");
  }
}

// Copies 16 bytes in the background; both ends are aligned to 16 bytes. If `present` is false,
// writes zeros and reads nothing.
PAGODA_DEVICE void CopyAsync16(uint32_t shared, const void* global, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(present ? 16u : 0u)
               : "memory");
}
// Makes the thread's copies since the last commit a group.
PAGODA_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of the thread's youngest groups are in flight.
template <int kPending>
PAGODA_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads four matrices of 8 x 8 elements of 16 bits. Lane 8 m + r gives the address of row r of
// matrix m, 16 bytes. Lane 4 r + c gets elements 2 c and 2 c + 1 of row r of each matrix;
// transposed: of column r.
PAGODA_DEVICE void LoadMatrices(uint32_t (&matrices)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}
PAGODA_DEVICE void LoadMatricesTransposed(uint32_t (&matrices)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements that the warp's registers hold.
PAGODA_DEVICE uint32_t TransposeMatrix(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

// sums[16 x 8] += a[16 x 16] * b[16 x 8]. T is Half or BFloat16; sums are fp32.
template <class T>
PAGODA_DEVICE void MultiplyMatrices(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Byte i of the result is the byte of `value` that nibble i of the selector names; 4 names a zero.
PAGODA_DEVICE uint32_t PermuteBytes(uint32_t value, uint32_t selector) {
  return __byte_perm(value, 0, selector);
}
// Bytes 0 to 3 are those of `low`, bytes 4 to 7 those of `high`.
PAGODA_DEVICE uint32_t PermuteBytes(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}

// Rounds both numbers to T; `low` goes to the low bits.
template <class T>
PAGODA_DEVICE uint32_t PackPair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// The numbers of a pair of Half.
PAGODA_DEVICE float LowOfHalves(uint32_t pair) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<uint16_t>(pair)));
  return number;
}
PAGODA_DEVICE float HighOfHalves(uint32_t pair) { return LowOfHalves(pair >> 16); }

// Whether HalvesOfE4M3 exists: in hardware from sm_89 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kConvertsE4M3 = true;
#else
inline constexpr bool kConvertsE4M3 = false;
#endif

// The two e4m3 elements in the low 16 bits, as a pair of Half. Exact; NaN stays NaN.
PAGODA_DEVICE uint32_t HalvesOfE4M3(uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bytes)));
  return halves;
#else
  asm volatile("trap;");
  return bytes;
#endif
}

template <class T>
PAGODA_DEVICE uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  if constexpr (std::is_same_v<T, BFloat16>) {
    // Adding -0 keeps the sign of a zero.
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
}

// The larger number; if one is NaN, the other one. One instruction, unlike a comparison with a
// selection.
PAGODA_DEVICE float LargerOf(float a, float b) { return fmaxf(a, b); }

// Exact to about 2 units in the last place; 0 for -infinity, NaN for NaN. Results below 2^-126
// become 0, which makes it one instruction instead of four.
PAGODA_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
PAGODA_DEVICE float Log2(float x) { return __log2f(x); }
// Exact to about 2e-7. That suffices for soft caps, which multiply by some ten.
PAGODA_DEVICE float Tanh(float x) {
  return 1.0f - __fdividef(2.0f, 1.0f + Exp2(x * 2.88539008177792681472f));
}

// Exact to 1 or 2 units in the last place, for every argument.
PAGODA_DEVICE float ExactTanh(float x) { return tanhf(x); }
PAGODA_DEVICE float Cosine(float x) { return cosf(x); }
PAGODA_DEVICE float Sine(float x) { return sinf(x); }
PAGODA_DEVICE float SquareRoot(float x) { return sqrtf(x); }

// One access each. A copy of a structure need not be one access.
PAGODA_DEVICE Vector16 LoadGlobal16(const void* address) {
  return std::bit_cast<Vector16>(*static_cast<const uint4*>(address));
}
PAGODA_DEVICE Vector8 LoadGlobal8(const void* address) {
  return std::bit_cast<Vector8>(*static_cast<const uint2*>(address));
}
PAGODA_DEVICE void StoreGlobal16(void* address, Vector16 value) {
  *static_cast<uint4*>(address) = std::bit_cast<uint4>(value);
}
PAGODA_DEVICE void StoreGlobal8(void* address, Vector8 value) {
  *static_cast<uint2*>(address) = std::bit_cast<uint2>(value);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_DEVICE_PTX_H_
