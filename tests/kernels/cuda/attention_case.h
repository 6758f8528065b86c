// One call of attention with random contents, for the GPU kernels and the reference.
#ifndef PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_
#define PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/attention.h"
#include "kernels/paged_attention.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::kernels::cuda {

// Whether AttentionKernels::kHopper works on this device.
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
  uint32_t value_dim = 0;  // Not 0: latents. K only; its first elements are the values.
  uint32_t tokens_per_block = 16;
  std::vector<Lengths> lengths = {{1, 40}};
  AttentionMask mask;
  float scale = 0;  // 0: 1 / sqrt(head_dim).
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  bool pool_scales = false;    // For 8-bit pools.
  bool slot_scales = false;    // For 8-bit pools, for each slot. Slots that no query sees have NaN.
  bool token_flat = false;     // The layout [token_slot][kv_head][head_dim].
  bool shared_blocks = false;  // All sequences begin with the same blocks, up to their length.
  uint32_t padding = 0;        // Elements between the tokens' rows of queries and outputs.
  float query_size = 1;        // The standard deviation of the queries.
  uint32_t split_tokens = 0;   // 0: the choice of PlanForCuda.
  AttentionKernels kernels = AttentionKernels::kAuto;

  std::string Describe() const;
};

// All elements as fp32, in rows of value_dim.
struct AttentionResult {
  std::vector<float> output;  // [N][num_heads][value_dim]
  std::vector<float> lse;     // [N][num_heads]
};

// A case's memory, on the host and on the device. In the device's pool, everything that no query
// sees is NaN, and the tables have -1 for blocks of which no query sees a token.
class AttentionData {
 public:
  explicit AttentionData(const AttentionCase& attention_case);

  AttentionResult Reference() const;
  AttentionResult OnCpu() const;  // By the CPU kernels.
  // Ends the test program if CUDA fails. Returns a Status if the call refuses its arguments.
  absl::StatusOr<AttentionResult> Run();

  const AttentionCase& attention_case() const { return case_; }
  AttentionPlan Plan() const;
  // The device's arguments. Valid while this object exists.
  PagedAttentionParams Params() const;
  // The result of the last launch; and whether nothing was written between its rows.
  absl::StatusOr<AttentionResult> TakeResult();
  void PoisonOutput();

  // Sets all elements to NaN, on the host and on the device: of one head of a query token, and of a
  // key in all KV heads.
  void SetQueryToNaN(uint32_t query, uint32_t head);
  void SetKeyToNaN(size_t sequence, int32_t position);

  // Moves the blocks to other slots of the pool, and updates the tables.
  void PermuteSlots(uint32_t seed);

 private:
  void MakeTables();
  void FillPool();
  void SetScales(uint32_t slot);
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
  std::vector<int32_t> seen_tables_;  // With only the visible blocks.
  KvLayer kv_;                        // With host pointers.
  std::vector<std::byte> pool_;
  uint64_t values_offset_ = 0;
  std::vector<float> key_scales_;
  std::vector<float> value_scales_;
  std::vector<float> queries_;          // [N][num_heads][head_dim], exact in query_type.
  std::vector<std::byte> query_bytes_;  // In query_type, with its stride.
  std::vector<float> alibi_slopes_;
  std::vector<float> sink_logits_;

  struct Device;
  std::shared_ptr<Device> device_;
};

// Empty, or the distance of the result from the reference if the types do not explain it: the norm
// of a row's error, relative to the norm of the row.
std::string Compare(const AttentionCase& attention_case, const AttentionResult& result,
                    const AttentionResult& reference);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_KERNELS_CUDA_ATTENTION_CASE_H_
