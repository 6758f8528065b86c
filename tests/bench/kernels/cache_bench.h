// The speed of the CPU's writes, reads and copies of the cache, compared with memcpy.
#ifndef PAGODA_TESTS_BENCH_KERNELS_CACHE_BENCH_H_
#define PAGODA_TESTS_BENCH_KERNELS_CACHE_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>

namespace pagoda::bench {

struct CacheBenchOptions {
  // Whether to measure the figure with this id.
  std::function<bool(const std::string& id)> wanted = [](const std::string&) { return true; };
  // The size of the pool; the rows have the same size. Far larger than the processor's caches.
  uint64_t pool_bytes = uint64_t{1} << 30;
  // The bytes that a call moves.
  uint64_t call_bytes = uint64_t{64} << 20;
};

// Prints one JSON object a line, in GB/s, on T = 1 and 2 threads. A byte that is read and a byte
// that is written count together as one. The yardstick is memcpy of the same number of bytes, by
// the same number of threads, on the same memory. There is one layer of 8 KV heads with elements of
// 128, in blocks of 16 tokens, with random block tables. Each call continues in the pool and in the
// rows where the last one ended.
//   cpu_cache_write_tT: rows of bf16 to a pool of bf16, whole prompts by block tables.
//   cpu_cache_write_slots_tT: the same by a slot mapping, with each token in another block.
//   cpu_cache_write_fp32_tT, cpu_cache_write_fp8_tT: rows of fp32 to bf16, of bf16 to fp8 e4m3.
//   cpu_gather_tT, cpu_gather_fp8_tT: to rows of bf16, from a pool of bf16 or fp8 e4m3.
//   cpu_block_copy_64k_tT, cpu_block_copy_2m_tT: blocks of 64 KiB and 2 MiB, from slot to slot.
// A call that stores less than 16 MiB stores through the processor's caches, as memcpy does:
//   cpu_cache_write_4m_tT, cpu_block_copy_4m_tT: calls of 4 MiB.
void PrintCacheFigures(const CacheBenchOptions& options);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_KERNELS_CACHE_BENCH_H_
