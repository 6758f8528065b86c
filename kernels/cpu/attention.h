// Paged attention, its merge, and the work on the cache, on the CPU.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_H_
#define PAGODA_KERNELS_CPU_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/execution.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cpu {

// The cut that suits the CPU's kernels; for PagedAttention with the same lengths, mask and KV
// heads, on as many threads.
AttentionPlan PlanForCpu(const PlanShape& shape, const Execution& execution = {});

// Synchronous. Without a plan one is made for the call. A token's result has the same bits for a
// given isa and decode_isa whatever else is in the batch, on however many threads, and wherever its
// blocks lie. With kAvx512Bf16, queries and weights are rounded to bf16 before they are multiplied
// with what pools of bf16 and of 8 bits hold (fp16 and fp32 pools: not, nor what decodes by another
// decode_isa); all sums are fp32. Errors: those of
// CheckHostArguments, and InvalidArgument for a plan that was made for other lengths or KV heads.
absl::Status PagedAttention(const PagedAttentionParams& params, const AttentionPlan* plan = nullptr,
                            const Execution& execution = {});

// Synchronous. Errors: those of CheckShapes.
absl::Status MergeAttention(const AttentionMergeParams& params, const Execution& execution = {});

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_H_
