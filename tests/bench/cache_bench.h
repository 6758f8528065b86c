// What the CPU's writes, reads and copies of the cache take, beside memcpy.
#ifndef PAGODA_TESTS_BENCH_CACHE_BENCH_H_
#define PAGODA_TESTS_BENCH_CACHE_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>

namespace pagoda::bench {

struct CacheBenchOptions {
  // Whether a figure is to be measured, by its id.
  std::function<bool(const std::string& id)> wanted = [](const std::string&) { return true; };
  // Of the pool; the rows are as many. Far beyond what caches hold of it.
  uint64_t pool_bytes = uint64_t{1} << 30;
  // That a call moves.
  uint64_t call_bytes = uint64_t{64} << 20;
};

// One layer of 8 KV heads, elements of 128, 16 tokens a block, random block tables; each call goes
// on in the pool and in the rows where the last one ended. On T = 1 and 2 threads, one JSON object
// a line, GB/s, a byte that is read and one that is written being one; beside memcpy of as many
// bytes by as many threads, on the same memory:
//   cpu_cache_write_tT: rows of bf16 to a pool of bf16, whole prompts by block tables.
//   cpu_cache_write_slots_tT: the same, each token in another block, by a slot mapping.
//   cpu_cache_write_fp32_tT, cpu_cache_write_fp8_tT: rows of fp32 to bf16, of bf16 to fp8 e4m3.
//   cpu_gather_tT, cpu_gather_fp8_tT: to rows of bf16, from a pool of bf16 or fp8 e4m3.
//   cpu_block_copy_64k_tT, cpu_block_copy_2m_tT: blocks of 64 KiB and 2 MiB, from slot to slot.
// In a call that stores less than 16 MiB what is stored goes through the caches, as memcpy's does:
//   cpu_cache_write_4m_tT, cpu_block_copy_4m_tT: calls of 4 MiB.
void PrintCacheFigures(const CacheBenchOptions& options);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_CACHE_BENCH_H_
