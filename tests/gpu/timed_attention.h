// Times attention on a GPU: batches over random block tables, with cold KV.
#ifndef PAGODA_TESTS_GPU_TIMED_ATTENTION_H_
#define PAGODA_TESTS_GPU_TIMED_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/attention.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// Prints the error and ends the process.
void Require(const absl::Status& status);

// Fills device memory with random numbers of a normal distribution, some of them repeated. Random
// data takes more power than zeros, and so more time. `type` is kBFloat16 or an 8-bit type.
void FillRandom(std::byte* memory, uint64_t bytes, ElementType type = ElementType::kBFloat16);

enum class Lengths {
  kEqual,
  kRagged,  // From twice the mean over n to twice the mean, in n equal steps, shuffled.
};

// A batch of sequences whose contexts have `context` tokens on average.
struct AttentionBatch {
  uint32_t sequences;
  int32_t queries;  // The queries of each sequence; its last tokens.
  int32_t context;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t tokens_per_block;
  uint32_t head_dim = 128;
  uint32_t value_dim = 0;                     // Not 0: latents, K only.
  ElementType type = ElementType::kBFloat16;  // The pool's type. Queries and outputs are bf16.
  Lengths lengths = Lengths::kEqual;

  uint32_t parts() const { return value_dim == 0 ? 2 : 1; }  // K and V, or K.
  uint32_t value_elements() const { return value_dim == 0 ? head_dim : value_dim; }
  std::vector<int32_t> contexts() const;
  // The bytes of K and V that one call reads.
  uint64_t kv_bytes() const;
};

// The seconds of one call. Calls cycle through so many disjoint blocks that none is in the L2.
double AttentionSeconds(const AttentionBatch& batch, uint32_t multiprocessors,
                        AttentionKernels kernels);

// What a step does before its first kernel: the seconds of PlanForCuda on the host, and of
// CopyPlan (encode, upload, wait). Medians.
struct PlanSeconds {
  double plan;
  double upload;
};
PlanSeconds TimePlan(const AttentionBatch& batch, uint32_t multiprocessors);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_GPU_TIMED_ATTENTION_H_
