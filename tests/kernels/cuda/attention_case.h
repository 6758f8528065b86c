// One call of attention with random contents, for the GPU's kernels and the reference.
#ifndef PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_
#define PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/attention.h"
#include "kernels/paged_attention.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::kernels::cuda {

// Whether AttentionKernels::kHopper is taken here.
bool HasHopper();

struct Lengths {
  int32_t queries = 1;
  int32_t context = 1;
};

struct AttentionCase {
  uint32_t seed = 1;
  ElementType query_type = ElementType::kBFloat16;
  ElementType pool_type = ElementType::kBFloat16;
  uint32_t num_kv_heads = 2;
  uint32_t group = 4;
  uint32_t head_dim = 64;
  uint32_t value_dim = 0;  // Not 0: latents, K alone, of which the first are values.
  uint32_t tokens_per_block = 16;
  std::vector<Lengths> lengths = {{1, 40}};
  AttentionMask mask;
  float scale = 0;  // 0: 1 / sqrt(head_dim).
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  bool pool_scales = false;    // Of 8-bit pools.
  bool token_flat = false;     // The layout [token_slot][kv_head][head_dim].
  bool shared_blocks = false;  // All sequences begin with the same blocks, as far as they reach.
  uint32_t padding = 0;        // Elements between the tokens' rows of queries and outputs.
  float query_size = 1;        // Their standard deviation.
  uint32_t split_tokens = 0;   // 0: what PlanForCuda takes.
  AttentionKernels kernels = AttentionKernels::kAuto;

  std::string Describe() const;
};

// fp32 of every element, by row of value_dim.
struct AttentionResult {
  std::vector<float> output;  // [N][num_heads][value_dim]
  std::vector<float> lse;     // [N][num_heads]
};

// A case's memory, on the host and on the device. In the device's pool all that no query sees is
// NaN, and the tables have -1 for blocks of which no query sees a token.
class AttentionData {
 public:
  explicit AttentionData(const AttentionCase& attention_case);

  AttentionResult Reference() const;
  AttentionResult OnCpu() const;  // By the CPU's kernels.
  // Ends the test program if CUDA fails; a Status for what the call refuses.
  absl::StatusOr<AttentionResult> Run();

  const AttentionCase& attention_case() const { return case_; }
  AttentionPlan Plan() const;
  // The device's arguments. Valid as long as this lives.
  PagedAttentionParams Params() const;
  // What has been written by the last launch; and whether nothing was written between the rows.
  absl::StatusOr<AttentionResult> TakeResult();
  void PoisonOutput();

  // Makes all elements NaN, on the host and on the device: of a query token's head, of a key in all
  // KV heads.
  void SetQueryToNaN(uint32_t query, uint32_t head);
  void SetKeyToNaN(size_t sequence, int32_t position);

  // Moves the blocks to other slots of the pool, and the tables with them.
  void PermuteSlots(uint32_t seed);

 private:
  void MakeTables();
  void FillPool();
  void MakeQueries();
  bool SeenByAny(size_t sequence, int64_t key) const;
  PagedAttentionParams HostParams() const;
  AttentionResult OnHost(absl::Status (*attention)(const PagedAttentionParams&)) const;
  void Upload();

  AttentionCase case_;
  uint32_t num_heads_;
  uint32_t value_dim_;
  uint64_t query_stride_;
  uint64_t output_stride_;
  std::vector<int32_t> query_starts_ = {0};
  std::vector<int32_t> context_lengths_;
  uint64_t table_stride_ = 1;
  std::vector<int32_t> tables_;       // With all blocks, for the reference.
  std::vector<int32_t> seen_tables_;  // With those that are seen.
  KvLayer kv_;                        // Pointers of the host.
  std::vector<std::byte> pool_;
  uint64_t values_offset_ = 0;
  std::vector<float> key_scales_;
  std::vector<float> value_scales_;
  std::vector<float> queries_;          // [N][num_heads][head_dim], each a number of query_type.
  std::vector<std::byte> query_bytes_;  // Of query_type, with its stride.
  std::vector<float> alibi_slopes_;
  std::vector<float> sink_logits_;

  struct Device;
  std::shared_ptr<Device> device_;
};

// Empty, or how far the result is from the reference beyond what the types explain: the norm of a
// row's error by the norm of the row.
std::string Compare(const AttentionCase& attention_case, const AttentionResult& result,
                    const AttentionResult& reference);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_
