// Paged attention and its merge on the CPU.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_H_
#define PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_plan.h"
#include "kernels/execution/execution.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cpu {

// The plan for the CPU kernels. Use it for PagedAttention with the same lengths, mask and KV heads,
// on the same number of threads.
AttentionPlan PlanForCpu(const PlanShape& shape, const Execution& execution = {});

// Synchronous. Without a plan, the call makes one. For a given isa and decode_isa, a token's result
// has the same bits in every batch, on any number of threads, and wherever its blocks lie. With
// kAvx512Bf16 and pools of bf16 or 8 bits, queries and weights are rounded to bf16 before they are
// multiplied. They are not rounded with pools of fp16 or fp32, or in a decode that uses another
// decode_isa. All sums are fp32. Errors: those of CheckHostArguments, and InvalidArgument for a
// plan that was made for other lengths or KV heads.
absl::Status PagedAttention(const PagedAttentionParams& params, const AttentionPlan* plan = nullptr,
                            const Execution& execution = {});

// Synchronous. Errors: those of CheckShapes.
absl::Status MergeAttention(const AttentionMergeParams& params, const Execution& execution = {});

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_H_
