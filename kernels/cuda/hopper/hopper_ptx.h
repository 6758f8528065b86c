// Implements hopper.h under nvcc, for sm_90a only.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_HOPPER_PTX_H_
#define PAGODA_KERNELS_CUDA_HOPPER_HOPPER_PTX_H_

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/tensor_map.h"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "the kernels for Hopper are compiled for sm_90a alone"
#endif

namespace pagoda::kernels::cuda {

// A barrier is 8 bytes in shared memory, aligned to 8. Its phase ends when `arrivals` threads have
// arrived and the bytes that they expect have been copied. The next phase begins at once.
PAGODA_DEVICE void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Call it after InitBarrier and before the block's SyncThreads: the asynchronous proxy then sees
// the barriers.
PAGODA_DEVICE void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
PAGODA_DEVICE void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
PAGODA_DEVICE void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of this parity. A barrier's phases have the parities 0, 1, 0, ...
// A new barrier behaves as if a phase of parity 1 had just ended.
PAGODA_DEVICE void WaitFor(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}\n"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// Barrier `id`, 1 to 15, for `threads` threads (whole warps). Id 0 belongs to SyncThreads.
PAGODA_DEVICE void SyncSome(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same without waiting, and without ordering any access to memory: the other threads of the
// barrier wait until these have come.
PAGODA_DEVICE void ArriveSome(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The first element, token, head and slot of a box.
struct BoxPlace {
  uint32_t element;
  uint32_t token;
  uint32_t head;
  uint32_t slot;
};

PAGODA_DEVICE void PrefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}
// One thread copies a box to shared memory, in the background. The barrier's phase counts all bytes
// of the box, zeros included.
PAGODA_DEVICE void CopyBox(uint32_t shared, const TensorMap& map, const BoxPlace& place,
                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(place.element), "r"(place.token), "r"(place.head),
      "r"(place.slot), "r"(barrier)
      : "memory");
}

// The same, but L2 evicts the box's lines first.
PAGODA_DEVICE void CopyBoxOnce(uint32_t shared, const TensorMap& map, const BoxPlace& place,
                               uint32_t barrier) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(place.element), "r"(place.token), "r"(place.head),
      "r"(place.slot), "r"(barrier), "l"(policy)
      : "memory");
}

// Orders the thread's stores to shared memory, and the earlier stores that it has seen, before the
// asynchronous proxy's accesses after the next barrier.
PAGODA_DEVICE void FenceAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Sets the registers of each thread of a warpgroup; all its warps must call it. It gives registers
// up, or waits until other warpgroups have given up enough.
template <uint32_t kRegisters>
PAGODA_DEVICE void GiveUpRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
PAGODA_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Before the first product of a group: fixes the sums and left matrices in registers.
PAGODA_DEVICE void FenceProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Makes the warpgroup's products since the last commit a group.
PAGODA_DEVICE void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the youngest groups are in flight. Until then their sums and left
// matrices must not be touched.
template <int kPending>
PAGODA_DEVICE void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of these registers across it. No instruction.
template <uint32_t kTiles>
PAGODA_DEVICE void PinRegisters(float (&sums)[kTiles][4]) {
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) asm volatile("" : "+f"(sums[n][r])::"memory");
  }
}
template <uint32_t kSteps>
PAGODA_DEVICE void PinRegisters(uint32_t (&left)[kSteps][4]) {
#pragma unroll
  for (uint32_t k = 0; k < kSteps; ++k) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) asm volatile("" : "+r"(left[k][r])::"memory");
  }
}

// The same number. The compiler cannot compute with it earlier: without this, it computes all
// descriptors of a loop's matrices before the loop, and has no registers left.
PAGODA_DEVICE uint32_t PinNumber(uint32_t number) {
  asm volatile("" : "+r"(number)::"memory");
  return number;
}

// Makes the assembler finish two sums of weights here. Otherwise it moves the following wait for
// products up, above the arithmetic of the sums, which then no longer runs in parallel to the
// products. It never traps: a sum of weights is not negative, and NaN is not less than 0.
PAGODA_DEVICE void ComputeFirst(const float (&weights)[2]) {
  if (weights[0] < 0 || weights[1] < 0) asm volatile("trap;");
}

#define PAGODA_SUMS_32                                                                          \
  "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),     \
      "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), \
      "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), \
      "+f"(sums[3][3])
#define PAGODA_SUM_NAMES_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
#define PAGODA_SUMS_64                                                                          \
  "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),     \
      "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]), \
      "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), \
      "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]), \
      "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]), \
      "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]), \
      "+f"(sums[7][2]), "+f"(sums[7][3])
#define PAGODA_SUM_NAMES_64                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define PAGODA_SUMS_128                                                                          \
  PAGODA_SUMS_64, "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3]),        \
      "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]), "+f"(sums[10][0]), \
      "+f"(sums[10][1]), "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]),                \
      "+f"(sums[11][1]), "+f"(sums[11][2]), "+f"(sums[11][3]), "+f"(sums[12][0]),                \
      "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3]), "+f"(sums[13][0]),                \
      "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3]), "+f"(sums[14][0]),                \
      "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]), "+f"(sums[15][0]),                \
      "+f"(sums[15][1]), "+f"(sums[15][2]), "+f"(sums[15][3])
#define PAGODA_SUM_NAMES_128                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "

// sums[64 x columns] += or = left[64 x 16] * right[16 x columns], in the background. T is Half or
// BFloat16. Warp w of the warpgroup has rows 16 w to 16 w + 15; for these and for each eight
// columns, its elements are those of the fragment of m16n8k16. `left` and `right` have rows along
// the sum (RowsOfColumn).
template <class T, uint32_t kTiles>
PAGODA_DEVICE void MultiplyShared(float (&sums)[kTiles][4], Matrix left, Matrix right, bool add) {
  static_assert(kTiles == 4 || kTiles == 8 || kTiles == 16);
  const uint32_t scale = add ? 1 : 0;
  if constexpr (std::is_same_v<T, BFloat16> && kTiles == 4) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_32
        "%16, %17, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_32
        : "l"(left), "l"(right), "r"(scale));
  } else if constexpr (kTiles == 4) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " PAGODA_SUM_NAMES_32
        "%16, %17, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_32
        : "l"(left), "l"(right), "r"(scale));
  } else if constexpr (std::is_same_v<T, BFloat16> && kTiles == 8) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_64
        "%32, %33, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_64
        : "l"(left), "l"(right), "r"(scale));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_128
        "%64, %65, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_128
        : "l"(left), "l"(right), "r"(scale));
  } else if constexpr (kTiles == 8) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " PAGODA_SUM_NAMES_64
        "%32, %33, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_64
        : "l"(left), "l"(right), "r"(scale));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " PAGODA_SUM_NAMES_128
        "%64, %65, add, 1, 1, 0, 0;\n"
        "}\n"
        : PAGODA_SUMS_128
        : "l"(left), "l"(right), "r"(scale));
  }
}

// sums[64 x columns] += left[64 x 16] * right[16 x columns]. `left` is in registers, as a fragment
// of m16n8k16 of the warp's rows; `right` has contiguous columns (ColumnsOfRows).
template <class T, uint32_t kTiles>
PAGODA_DEVICE void MultiplyRegisters(float (&sums)[kTiles][4], const uint32_t (&left)[4],
                                     Matrix right) {
  static_assert(kTiles == 8 || kTiles == 16);
  if constexpr (std::is_same_v<T, BFloat16> && kTiles == 8) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_64
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : PAGODA_SUMS_64
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_128
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
                 : PAGODA_SUMS_128
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
  } else if constexpr (kTiles == 8) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " PAGODA_SUM_NAMES_64
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : PAGODA_SUMS_64
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " PAGODA_SUM_NAMES_128
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
                 : PAGODA_SUMS_128
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
  }
}

// sums[64 x 128] += left[64 x 16] * right[16 x 128], in the background. `left` is in shared memory,
// with rows along the sum (RowsOfColumn); `right` has contiguous columns (ColumnsOfRows).
template <class T>
PAGODA_DEVICE void MultiplySharedColumns(float (&sums)[16][4], Matrix left, Matrix right) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " PAGODA_SUM_NAMES_128
                 "%64, %65, 1, 1, 1, 0, 1;\n"
                 : PAGODA_SUMS_128
                 : "l"(left), "l"(right));
  } else {
    static_assert(std::is_same_v<T, Half>);
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " PAGODA_SUM_NAMES_128
                 "%64, %65, 1, 1, 1, 0, 1;\n"
                 : PAGODA_SUMS_128
                 : "l"(left), "l"(right));
  }
}

#undef PAGODA_SUMS_32
#undef PAGODA_SUM_NAMES_32
#undef PAGODA_SUMS_64
#undef PAGODA_SUMS_128
#undef PAGODA_SUM_NAMES_64
#undef PAGODA_SUM_NAMES_128

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_HOPPER_PTX_H_
