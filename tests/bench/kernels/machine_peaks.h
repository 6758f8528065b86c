// The most that the machine can do: the yardsticks of the kernels' benchmarks. Each call measures
// once, for some tens of milliseconds. Figures and yardsticks alternate (InterleavedMedians of
// tests/bench/figure.h), because machines are shared and their clock rates change.
#ifndef PAGODA_TESTS_BENCH_KERNELS_MACHINE_PEAKS_H_
#define PAGODA_TESTS_BENCH_KERNELS_MACHINE_PEAKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "kernels/execution/isa.h"

namespace pagoda::bench {

// Memory in huge pages if the system gives any, all of it touched. Every byte is 0x3f, which makes
// finite elements near 1 in each type. A pass over a GiB exceeds any cache by far.
class ColdMemory {
 public:
  explicit ColdMemory(uint64_t bytes);
  ~ColdMemory();
  ColdMemory(const ColdMemory&) = delete;
  ColdMemory& operator=(const ColdMemory&) = delete;

  absl::Span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_;
  size_t size_;
};

// The seconds from the common start of body(0), body(1), ... on `num_threads` threads until the
// last one returns. The threads are new, so that no pool under measurement takes part in a
// yardstick.
double SecondsOnThreads(uint32_t num_threads, const std::function<void(uint32_t thread)>& body);

// Bytes a second that the threads read. Each reads one piece of `memory`, in a number of parallel
// streams that suits a core's prefetchers.
double ReadBytesPerSecond(absl::Span<const std::byte> memory, uint32_t num_threads);

// The same by one thread, for pieces at any addresses. It reads a few pieces in parallel, one for
// each stream. It is the most that a kernel could read of blocks that are not neighbours. REQUIRES:
// a multiple of four pieces, each a multiple of 256 bytes.
double ReadPiecesBytesPerSecond(absl::Span<const std::byte* const> pieces, uint64_t piece_bytes);

// Bytes a second that the threads copy by std::memcpy, one piece each. A copied byte counts once.
// REQUIRES: the sizes are the same.
double CopyBytesPerSecond(absl::Span<std::byte> target, absl::Span<const std::byte> source,
                          uint32_t num_threads);

// Operations a second with all operands in registers. A multiplication and an addition count as
// two. This one is for dot products of bf16 pairs (vdpbf16ps). REQUIRES: BestIsa() is kAvx512Bf16.
double Bf16DotFlops(uint32_t num_threads);
// The same for fused multiplications and additions of fp32, with the registers of `isa`, which is
// at most BestIsa(). kPortable: a multiplication and an addition.
double Float32Flops(kernels::cpu::Isa isa, uint32_t num_threads);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_KERNELS_MACHINE_PEAKS_H_
