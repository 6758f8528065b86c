// A call's units of work, item by item and KV head by KV head, and where their results go.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_UNIT_H_
#define PAGODA_KERNELS_CPU_ATTENTION_UNIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/isa.h"
#include "kernels/numeric.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cpu {

// The softmax of one query row over some keys: scores are in units of log2, `sums` the values by
// weight exp2(score - largest), unnormalised.
struct RowResult {
  float largest;  // -infinity: no key was seen.
  float weight_sum;
  const float* sums;  // [value_dim]
};

// Rows of partial results, for each query head of each row of the plan's num_partials.
struct PartialRows {
  float* sums = nullptr;  // [num_partials][num_heads][value_dim]
  float* largest = nullptr;
  float* weight_sums = nullptr;
};

// From the type of queries and outputs to those in which kernels compute, and back.
struct QueryConversions {
  ConvertRows to_float;
  ConvertRows to_bf16;
  ConvertRows from_float;
};

// What all units of a call share. Threads write to different rows of outputs and partial results.
struct AttentionCall {
  const PagedAttentionParams& params;
  const AttentionPlan& plan;
  const TileKernels* kernels;         // Null: portable.
  const TileKernels* decode_kernels;  // Null where `kernels` is.
  FetchAhead fetch;
  QueryConversions conversions;
  PartialRows partials;

  uint32_t group() const { return params.num_heads / params.kv.num_kv_heads; }
  uint32_t value_dim() const { return params.kv.value_elements(); }
};

// Item and KV head. The item is one of the plan's.
struct AttentionUnit {
  const AttentionItem* item = nullptr;
  uint32_t kv_head = 0;
  friend bool operator==(const AttentionUnit&, const AttentionUnit&) = default;
};

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// --- What units read ---

// The position of the item's query token q in its context.
int64_t PositionOf(const AttentionCall& call, const AttentionItem& item, uint32_t q);

// The query of head `head` of the item's query token q, [head_dim] of fp32 or bf16.
void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               float* query);
void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               BFloat16* query);

// Where the keys and values of the positions first_key to first_key + count - 1 of the sequence
// lie.
void FindTokens(const AttentionCall& call, uint32_t sequence, uint32_t kv_head, uint32_t first_key,
                uint32_t count, const std::byte** __restrict keys,
                const std::byte** __restrict values);

// Bit t: the query head's query at `position` sees the key at first_key + t, which is below
// end_key.
uint32_t VisibleWord(const AttentionMask& mask, uint32_t head, int64_t position, int64_t first_key,
                     int64_t end_key);

// The scale of a head in a slot, where each slot has its own; else 1: RuleOf and ValueScale have
// it. `part` is the layer's scales.keys or scales.values.
float SlotScale(const KvScales& scales, const float* part, uint32_t slot, uint32_t kv_head);

// What turns q . k into a score in units of log2.
ScoreRule RuleOf(const PagedAttentionParams& params, uint32_t kv_head);

// What the sums of values of the pool are multiplied by.
float ValueScale(const PagedAttentionParams& params, uint32_t kv_head);

// --- What units write ---

// The result of the item's query token q in query head `head`: to the output, or where the item's
// partial results go.
void StoreRow(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
              const RowResult& result);

// Puts the parts of the merge's rows together, for the query heads of one KV head, in the parts'
// order. `sums` is for the caller: [value_dim].
void MergeParts(const AttentionCall& call, const AttentionMerge& merge, uint32_t kv_head,
                float* sums);

// --- The units' two implementations ---

// Bytes of scratch memory that the units of a call need, whichever thread they run on.
size_t PortableScratchBytes(const AttentionCall& call);
size_t TileScratchBytes(const AttentionCall& call);

void RunPortableUnit(const AttentionCall& call, const AttentionUnit& unit,
                     absl::Span<std::byte> scratch);

// `next` is what the thread will probably do after it, without item if nothing; its first tokens
// are fetched towards the end. `fetched`: those of this one were. Returns whether all of next's
// were: units of many rows fetch none, and one whose last keys are few not all.
bool RunTileUnit(const AttentionCall& call, const AttentionUnit& unit, const AttentionUnit& next,
                 bool fetched, absl::Span<std::byte> scratch);

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_UNIT_H_
