// Paged attention and its merge on NVIDIA GPUs, of sm_80 and newer.
//
// Which keys meet which queries is planned on the host (PlanForCuda), from the lengths alone, and
// lies in device memory while kernels run. All launches are asynchronous on a stream, allocate
// nothing and wait for nothing: they can be captured in a graph. A graph that was captured with
// some capacity runs again with other lengths, tables and queries at the same addresses once
// CopyPlan has put the new plan where the old one was.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/stream.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cuda {

// What the plan needs to know of a GPU; the H200's numbers are the defaults.
struct DeviceLimits {
  uint32_t num_multiprocessors = 132;
};

// The cut that suits the GPU's kernels: decode and short chunks in pieces that fill it once, by
// equal counts of keys, and the longest pieces first. `num_heads` are the query's. The partial rows
// of a plan, times `num_heads`, are at most 512 for each multiprocessor (or num_heads).
// REQUIRES: lengths that PagedAttention takes; num_heads a multiple of shape.num_kv_heads.
AttentionPlan PlanForCuda(const PlanShape& shape, uint32_t num_heads,
                          const DeviceLimits& device = {});

// How much a plan's memory and a captured graph have room for.
struct PlanCapacity {
  uint32_t items = 0;
  uint32_t merged_rows = 0;  // Query tokens whose keys are cut.
  uint32_t partials = 0;     // AttentionPlan::num_partials.
  // Items of few rows (query tokens x query heads of a KV head, at most kShortRows), and of more,
  // have a kernel each, which is launched if any may come.
  uint32_t short_rows = 0;  // Most rows of a short item; 0: none comes.
  bool long_items = false;
  friend bool operator==(const PlanCapacity&, const PlanCapacity&) = default;
};

inline constexpr uint32_t kShortRows = 16;

// Just enough for the plan.
PlanCapacity CapacityFor(const AttentionPlan& plan, uint32_t num_heads);

// Enough for whatever fits either.
PlanCapacity Widest(const PlanCapacity& a, const PlanCapacity& b);

// Bytes of a plan in device memory, aligned to 16.
uint64_t PlanBytes(const PlanCapacity& capacity);

// Writes the plan as the kernels read it; `bytes` has PlanBytes(capacity). For who copies it from
// pinned memory. Errors: ResourceExhausted for a plan that the capacity has no room for;
// InvalidArgument for another size of `bytes`, or num_heads that are no multiple of the plan's.
absl::Status EncodePlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                        absl::Span<std::byte> bytes);

// EncodePlan, and the copy to `device_plan`; in the stream's order, and returns once the plan can
// go. Not for capture in a graph. Errors: those of EncodePlan, Internal for CUDA's.
absl::Status CopyPlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                      void* device_plan, Stream stream);

// Bytes of device memory, aligned to 16, in which a call keeps partial results.
uint64_t WorkspaceBytes(const PlanCapacity& capacity, uint32_t num_heads, uint32_t value_dim);

enum class AttentionKernels : uint8_t {
  // Those for Hopper where they have been proved on this kind of GPU (attention_choice.h), for
  // decode and for longer items apart; else those of kSm80. Nothing is proved yet.
  kAuto,
  // On tensor cores where types and shapes permit it: K and V in fp16 or bf16 with queries of the
  // same type, or in 8 bits with queries of 16; head_dim and value_dim at most 256, rows of tokens
  // and strides whole numbers of 16 bytes; where a block may have the shared memory that it takes
  // (on sm_86 and sm_89 not for each head_dim). So too latents of 16 bits (values == keys) of at
  // most 576 elements with values of 512, on sm_90. Everything else on kGeneric.
  kSm80,
  // Those for Hopper (sm_90a) where they take it: of what kSm80 runs on tensor cores, pools of 16
  // bits in blocks of a multiple of 8 tokens, without block sparsity. Everything else as kSm80.
  // They are asked for by name: the engine does so where its self-test has found them right and
  // fastest (engine/model/cuda/self_test.h).
  kHopper,
  // The plain kernel, for every type and shape, written to be read.
  kGeneric,
};

// Where a call runs and what it may use. Device memory, of the caller, in use until the call's
// kernels have ended; two calls at a time need two workspaces.
struct AttentionExecution {
  Stream stream = nullptr;
  const void* plan = nullptr;  // PlanBytes(capacity), written by CopyPlan.
  PlanCapacity capacity;
  void* workspace = nullptr;  // May be null where WorkspaceBytes is 0.
  uint64_t workspace_bytes = 0;
  AttentionKernels kernels = AttentionKernels::kAuto;
  // If set: the kernels of long items, in the place of `kernels`, which are those of short ones
  // then.
  std::optional<AttentionKernels> long_kernels;
};

// The code that computes a call, where AttentionKernels is what is asked for: a family leaves to
// another one what it does not take.
enum class AttentionFamily : uint8_t { kGeneric, kSm80, kHopper, kLatent };

// The family that computes what those kernels are asked for, by types, shapes, strides and
// alignment; memory is not read. Short items may still run on kGeneric where a block may not have
// the shared memory that kSm80 takes. kAuto counts as kSm80. REQUIRES: CheckShapes.
AttentionFamily FamilyOf(const PagedAttentionParams& params, AttentionKernels kernels);

// The pointers and spans of `params` are device memory; their contents are not checked, and a table
// or length that PagedAttention forbids is undefined. Without context_lengths nothing is launched.
//
// Queries and weights are rounded to 16 bits before they are multiplied on tensor cores, sums are
// fp32. A token's result has the same bits for the same plan of its sequence, wherever its blocks
// lie and in whatever run. On tensor cores, rows share tiles: a NaN or infinity that one row of an
// item sees reaches the item's other rows; what no row of an item sees reaches none.
// Errors: those of CheckShapes; InvalidArgument for a missing plan or workspace, or for a head_dim
// past 4,096; FailedPrecondition for kHopper, of either kind of items, where the current device is
// not of compute capability 9.0 or the driver makes no tensor maps; Internal for CUDA's, and for
// strides that a tensor map does not take.
absl::Status PagedAttention(const PagedAttentionParams& params,
                            const AttentionExecution& execution);

// Pointers but `params.parts` itself are device memory. Errors: those of CheckShapes, Internal.
absl::Status MergeAttention(const AttentionMergeParams& params, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_H_
