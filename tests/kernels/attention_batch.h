// Batches for attention with every option, over a pool. Only the parts that some query sees are
// written; the rest is NaN in each element type, and so are the scales of slots without such parts.
#ifndef PAGODA_TESTS_KERNELS_ATTENTION_BATCH_H_
#define PAGODA_TESTS_KERNELS_ATTENTION_BATCH_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention/attention.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels {

// Slow builds take fewer of the same shapes: builds with a sanitizer, and builds without
// optimisation. NDEBUG does not tell: release builds do not define it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
inline constexpr bool kShortForm = true;
#else
inline constexpr bool kShortForm = false;
#endif

struct SequenceLengths {
  int32_t queries;
  int32_t context;
};

struct BatchShape {
  ElementType pool_type = ElementType::kFloat32;
  ElementType query_type = ElementType::kFloat32;
  uint32_t num_kv_heads = 2;
  uint32_t group = 2;
  uint32_t tokens_per_block = 16;
  uint32_t head_dim = 32;
  uint32_t value_dim = 0;        // 0: head_dim.
  bool latents = false;          // No values: they are the first elements of the keys.
  bool token_flat = false;       // [token_slot][kv_head][head_dim], not [kv_head][token][head_dim].
  uint32_t padding = 0;          // Elements behind each token.
  bool scales_per_head = false;  // For pools of 8 bits only.
  bool scales_per_slot = false;  // For pools of 8 bits only.
  AttentionMask mask;
  float scale = 0;  // 0: 1 / sqrt(head_dim).
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  std::vector<SequenceLengths> lengths;

  std::string Describe() const;
};

// A random choice of all options. `largest_context` bounds the sequences.
BatchShape RandomBatchShape(std::mt19937& random, int32_t largest_context);

// Bytes of memory that end at a page without access.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes);
  ~GuardedBytes();
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* mapping_;
  size_t mapped_bytes_;
  std::byte* data_;
  size_t size_;
};

// The rows that attention wrote, as fp32, without the gaps between tokens.
struct AttentionRows {
  std::vector<float> output;  // [N][num_heads][value_dim]
  std::vector<float> lse;     // [N][num_heads]
  friend bool operator==(const AttentionRows&, const AttentionRows&) = default;
};

// Runs attention with the params.
struct Runner {
  cpu::Isa isa = cpu::BestIsa();
  cpu::MatrixUnit matrices = cpu::MatrixUnit::kNone;
  cpu::Isa decode_isa = cpu::Isa::kAvx512Bf16;  // Decode uses `isa`, on every machine.
  cpu::FetchAhead fetch = cpu::FastestFetchAhead();
  cpu::ThreadPool* threads = nullptr;
  const AttentionPlan* plan = nullptr;
};

class AttentionBatch {
 public:
  AttentionBatch(const BatchShape& shape, std::mt19937& random);

  const BatchShape& shape() const { return shape_; }
  uint32_t num_heads() const { return shape_.num_kv_heads * shape_.group; }
  uint32_t value_dim() const { return shape_.value_dim == 0 ? shape_.head_dim : shape_.value_dim; }
  uint32_t num_queries() const { return static_cast<uint32_t>(query_starts_.back()); }

  // Without output, lse and query: Run and Expected set these.
  const PagedAttentionParams& params() const { return params_; }
  PlanShape plan_shape() const;

  // The position of the batch's query token n, and its sequence.
  int64_t position(uint32_t n) const;
  size_t sequence(uint32_t n) const;

  // The element's bytes in the pool.
  std::byte* Key(size_t sequence, uint32_t kv_head, int64_t position);
  std::byte* Value(size_t sequence, uint32_t kv_head, int64_t position);
  uint32_t SlotOf(size_t sequence, int64_t position) const;
  // Writes all elements of a token's key or value: the number, or NaN with all bits set.
  void FillKey(size_t sequence, uint32_t kv_head, int64_t position, float number);
  void FillValue(size_t sequence, uint32_t kv_head, int64_t position, float number);

  // Moves the blocks to other slots.
  void MoveBlocks(std::mt19937& random);

  AttentionRows Run(const Runner& runner) const;
  AttentionRows Expected() const;  // Computed by the fp64 reference, from the rounded queries.

  // The queries only, in fp32.
  std::vector<float>& queries() { return queries_; }

  std::vector<int32_t>& query_starts() { return query_starts_; }
  std::vector<int32_t>& tables() { return tables_; }

 private:
  uint64_t Blocks(int32_t context) const;
  void LayOut(std::mt19937& random);
  void WriteSeen(std::mt19937& random);
  void WriteToken(std::byte* token, uint32_t elements, float scale, std::mt19937& random);

  BatchShape shape_;
  KvLayer kv_;
  std::unique_ptr<GuardedBytes> pool_;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> contexts_;
  std::vector<int32_t> tables_;
  std::vector<float> queries_;  // [N][num_heads][head_dim], exact in the query's type.
  std::vector<float> slopes_;
  std::vector<float> sinks_;
  std::vector<float> key_scales_;
  std::vector<float> value_scales_;
  PagedAttentionParams params_;
};

// The largest distance of a row's result from the reference: of the whole output relative to its
// length; of the log-sum-exp in natural units, relative if it is above 1.
struct Tolerance {
  double output;
  double lse;
};

// The tolerances, and their reasons. All sums are fp32. Their rounding over some hundred terms, and
// in scores of some units that exp magnifies, stays below 1e-5. The bf16 tiles round queries and
// weights to 8 bits: 2^-9 of each, with random sign. A result is rounded to its type at the end:
// 2^-9 for bf16, 2^-12 for fp16.
Tolerance ToleranceOf(const BatchShape& shape, cpu::Isa isa,
                      cpu::MatrixUnit matrices = cpu::MatrixUnit::kNone);

// Fails if a row is further away than that, or is not finite although the expected row is.
void ExpectClose(const AttentionBatch& batch, const AttentionRows& actual,
                 const AttentionRows& expected, const Tolerance& tolerance);

// The instruction sets of this machine.
std::vector<cpu::Isa> Isas();

// Each of them, and the last two with AMX too where the processor has it.
struct AttentionWay {
  cpu::Isa isa;
  cpu::MatrixUnit matrices = cpu::MatrixUnit::kNone;
};
std::vector<AttentionWay> Ways();
std::string WayName(const AttentionWay& way);

class AttentionWayTest : public testing::TestWithParam<AttentionWay> {
 protected:
  static cpu::Isa isa() { return GetParam().isa; }
  static cpu::MatrixUnit matrices() { return GetParam().matrices; }
};

}  // namespace pagoda::kernels

#endif  // PAGODA_TESTS_KERNELS_ATTENTION_BATCH_H_
