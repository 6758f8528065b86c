// A call's units of work, one per item and KV head, and the places of their results.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_UNIT_H_
#define PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_UNIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/execution/isa.h"
#include "kernels/numeric.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cpu {

// The softmax of one query row over some keys. Scores are in units of log2; `sums` are the values
// weighted by exp2(score - largest), not normalised.
struct RowResult {
  float largest;  // -infinity: no key was seen.
  float weight_sum;
  const float* sums;  // [value_dim]
};

// The partial results: one row for each query head of each of the plan's num_partials rows.
struct PartialRows {
  float* sums = nullptr;  // [num_partials][num_heads][value_dim]
  float* largest = nullptr;
  float* weight_sums = nullptr;
};

// Converts from the type of queries and outputs to the types in which kernels compute, and back.
struct QueryConversions {
  ConvertRows to_float;
  ConvertRows to_bf16;
  ConvertRows from_float;
};

// The data that all units of a call share. Threads write different rows of outputs and partials.
struct AttentionCall {
  const PagedAttentionParams& params;
  const AttentionPlan& plan;
  const TileKernels* kernels;         // Null: portable.
  const TileKernels* decode_kernels;  // Null if `kernels` is null.
  const Float8Table* float8;          // The table of the pool's 8-bit type. Null for others.
  FetchAhead fetch;
  QueryConversions conversions;
  PartialRows partials;

  uint32_t group() const { return params.num_heads / params.kv.num_kv_heads; }
  uint32_t value_dim() const { return params.kv.value_elements(); }
};

// An item of the plan and a KV head.
struct AttentionUnit {
  const AttentionItem* item = nullptr;
  uint32_t kv_head = 0;
  friend bool operator==(const AttentionUnit&, const AttentionUnit&) = default;
};

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// --- Input of units ---

// The position of the item's query token q in its context.
int64_t PositionOf(const AttentionCall& call, const AttentionItem& item, uint32_t q);

// The query of head `head` of the item's query token q, [head_dim] of fp32 or bf16.
void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               float* query);
void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               BFloat16* query);

// The addresses of the keys and values at the positions first_key to first_key + count - 1 of the
// sequence.
void FindTokens(const AttentionCall& call, uint32_t sequence, uint32_t kv_head, uint32_t first_key,
                uint32_t count, const std::byte** __restrict keys,
                const std::byte** __restrict values);

// The scales of the same keys and values. They are 1 for a block of which no token is seen, because
// its slot can be missing or unwritten. Bit t % 32 of seen[t / 32]: token t is seen; null: all are.
// REQUIRES: scales per slot.
void FindScales(const AttentionCall& call, uint32_t sequence, uint32_t kv_head, uint32_t first_key,
                uint32_t count, const uint32_t* seen, float* __restrict key_scales,
                float* __restrict value_scales);

// Bit t: the query head's query at `position` sees the key at first_key + t, which is below
// end_key.
uint32_t VisibleWord(const AttentionMask& mask, uint32_t head, int64_t position, int64_t first_key,
                     int64_t end_key);

// The scale of a head in a slot, if each slot has its scales; else 1, because RuleOf and ValueScale
// include it. `part` is the layer's scales.keys or scales.values.
float SlotScale(const KvScales& scales, const float* part, uint32_t slot, uint32_t kv_head);

// The rule that turns q . k into a score in units of log2.
ScoreRule RuleOf(const PagedAttentionParams& params, uint32_t kv_head);

// The factor of the sums of the pool's values.
float ValueScale(const PagedAttentionParams& params, uint32_t kv_head);

// --- Output of units ---

// Stores the result of the item's query token q in query head `head`: in the output, or in the
// item's partial results.
void StoreRow(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
              const RowResult& result);

// Merges the parts of the merge's rows, in the parts' order, for the query heads of one KV head.
// `sums` is scratch memory of the caller: [value_dim].
void MergeParts(const AttentionCall& call, const AttentionMerge& merge, uint32_t kv_head,
                float* sums);

// --- The two implementations of units ---

// The bytes of scratch memory that any unit of the call needs.
size_t PortableScratchBytes(const AttentionCall& call);
size_t TileScratchBytes(const AttentionCall& call);

void RunPortableUnit(const AttentionCall& call, const AttentionUnit& unit,
                     absl::Span<std::byte> scratch);

// `next` is the unit that the thread will probably run next; without an item if there is none. Its
// first tokens are prefetched towards the end of this unit. `fetched`: this unit's first tokens
// were prefetched. Returns whether all of next's first tokens were prefetched. Units of many rows
// prefetch none; a unit whose last keys are few does not prefetch all.
bool RunTileUnit(const AttentionCall& call, const AttentionUnit& unit, const AttentionUnit& next,
                 bool fetched, absl::Span<std::byte> scratch);

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_UNIT_H_
