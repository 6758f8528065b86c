// The speed of the CPU's paged attention, compared with the most that the machine can do.
#ifndef PAGODA_TESTS_BENCH_KERNELS_ATTENTION_BENCH_H_
#define PAGODA_TESTS_BENCH_KERNELS_ATTENTION_BENCH_H_

#include <functional>
#include <string>

namespace pagoda::bench {

struct AttentionBenchOptions {
  // Whether to measure the figure with this id.
  std::function<bool(const std::string& id)> wanted = [](const std::string&) { return true; };
  // Runs everything at its smallest size, without the figures by isa, to check that it works.
  bool smoke = false;
};

// Prints one JSON object a line. There are 8 KV heads, 32 query heads and elements of 128, in bf16,
// with random block tables and 32 tokens a block. Between two uses of the same blocks, gigabytes of
// other memory are read.
//   cpu_decode_bf16_kvKV_bB_tT: bytes of K and V a second on T threads, for B sequences of KV
//     tokens. The yardstick: the same number of threads reads the same number of bytes.
//     With _pageN: blocks of N tokens. With an isa's name: its kernels instead of the fastest ones.
//   cpu_decode_bf16_gG_kv4096_b16_tT: the same with G query heads for each KV head.
//   cpu_decode_f16_kv4096_b16_tT: the same over pools of fp16.
//   cpu_chunk_Q_kv4096_b1_t2: the last Q tokens of a context of 4,096, on two threads, in tokens a
//     second. The yardstick: the same on one thread.
//   cpu_decode_e4m3_kvKV_bB_tT, cpu_decode_e5m2_...: the same over pools of 8 bits with a scale per
//     slot and head, in tokens of context a second. The yardstick: pools of bf16, by the fastest
//     kernels.
//   cpu_decode_latent_hH_kv4096_b16_tT: latent attention of H heads, in bf16, with AMX where the
//     processor has it. A token has one key of 576 elements, whose first 512 are its value. Bytes a
//     second next to a read of as many. With _dots: operations a second next to dot products of
//     bf16 pairs.
//   cpu_prefill_bf16_N, cpu_append_bf16_512_4096: operations a second on one thread. There are 4
//     operations for each query head, element, and pair of a query and a key that it sees. The
//     yardstick is the dot product of bf16 pairs. With the name of an isa that lacks it, the
//     yardstick is fused multiplications of fp32.
void PrintAttentionFigures(const AttentionBenchOptions& options);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_KERNELS_ATTENTION_BENCH_H_
