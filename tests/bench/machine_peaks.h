// What the machine can do at most: the yardsticks of the kernels' benchmarks. Each call measures
// once, for some tens of milliseconds; a figure takes turns with its yardstick (InterleavedMedians
// of figure.h), because machines are shared and their clocks move.
#ifndef PAGODA_TESTS_BENCH_MACHINE_PEAKS_H_
#define PAGODA_TESTS_BENCH_MACHINE_PEAKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "kernels/cpu/isa.h"

namespace pagoda::bench {

// Memory of huge pages where the system gives any, all of it touched: every byte is 0x3f, which
// makes finite elements near 1 of each type. Of a GiB a pass is far beyond any cache's share.
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

// The seconds from when `num_threads` threads start body(0), body(1), ... at once until the last
// one returns. The threads are new ones: no pool that is to be measured has a part in a yardstick.
double SecondsOnThreads(uint32_t num_threads, const std::function<void(uint32_t thread)>& body);

// Bytes a second that the threads read, each a piece of `memory`, in as many streams at once as a
// core's prefetchers like.
double ReadBytesPerSecond(absl::Span<const std::byte> memory, uint32_t num_threads);

// Likewise by one thread, of pieces that lie anywhere, as many of them in turn as it reads streams:
// what a kernel could have of blocks that are not neighbours. REQUIRES: four at a time, of a
// multiple of 256 bytes.
double ReadPiecesBytesPerSecond(absl::Span<const std::byte* const> pieces, uint64_t piece_bytes);

// Bytes a second that the threads copy by std::memcpy, each one piece; they read and write as many.
// REQUIRES: the sizes are the same.
double CopyBytesPerSecond(absl::Span<std::byte> target, absl::Span<const std::byte> source,
                          uint32_t num_threads);

// Operations a second, two for each multiplication and addition, all operands in registers.
// Of dot products of bf16 pairs (vdpbf16ps). REQUIRES: BestIsa() is kAvx512Bf16.
double Bf16DotFlops(uint32_t num_threads);
// Of fused multiplications and additions of fp32 with the registers of `isa`, at most BestIsa();
// kPortable: a multiplication and an addition.
double Float32Flops(kernels::cpu::Isa isa, uint32_t num_threads);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_MACHINE_PEAKS_H_
