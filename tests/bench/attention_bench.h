// What the CPU's paged attention takes, beside what the machine can do at most.
#ifndef PAGODA_TESTS_BENCH_ATTENTION_BENCH_H_
#define PAGODA_TESTS_BENCH_ATTENTION_BENCH_H_

#include <functional>
#include <string>

namespace pagoda::bench {

struct AttentionBenchOptions {
  // Whether a figure is to be measured, by its id.
  std::function<bool(const std::string& id)> wanted = [](const std::string&) { return true; };
  // Everything at its smallest, without the figures by isa, to see that it works.
  bool smoke = false;
};

// 8 KV heads, 32 query heads, elements of 128, bf16, random block tables of 32 tokens a block; a
// call's blocks were last touched gigabytes of other reads before. One JSON object a line:
//   cpu_decode_bf16_kvKV_bB_tT: bytes of K and V a second on T threads, for B sequences of KV
//     tokens; beside a read of as many bytes by as many threads.
//     With _pageN: blocks of N tokens. With an isa's name: its kernels, not the fastest ones.
//   cpu_prefill_bf16_N, cpu_append_bf16_512_4096: operations a second on one thread, 4 for each
//     query head, element and pair of a query and a key that it sees; beside the dot product of
//     bf16 pairs, or with the name of an isa without it, beside fused multiplications of fp32.
void PrintAttentionFigures(const AttentionBenchOptions& options);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_ATTENTION_BENCH_H_
