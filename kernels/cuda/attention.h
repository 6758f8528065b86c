// Paged attention and its merge on NVIDIA GPUs (sm_80 and newer).
//
// PlanForCuda plans on the host, from the lengths only, which keys meet which queries. The plan
// lies in device memory while kernels run. All launches are asynchronous on a stream, allocate
// nothing and wait for nothing, so they can be captured in a graph. A graph that was captured with
// some capacity can run again with other lengths, tables and queries at the same addresses, after
// CopyPlan has overwritten the plan.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::cuda {

// The properties of a GPU that a plan depends on. The defaults are those of the H200.
struct DeviceLimits {
  uint32_t num_multiprocessors = 132;
};

// The plan for the GPU kernels. Decode and short chunks are cut into pieces that fill the GPU once,
// by equal counts of keys; the longest pieces come first. `num_heads` is the number of query heads.
// The partial rows of a plan, times `num_heads`, are at most 512 per multiprocessor (or num_heads).
// REQUIRES: lengths that PagedAttention accepts; num_heads is a multiple of shape.num_kv_heads.
AttentionPlan PlanForCuda(const PlanShape& shape, uint32_t num_heads,
                          const DeviceLimits& device = {});

// The maxima for a plan's memory and for a captured graph.
struct PlanCapacity {
  uint32_t items = 0;
  uint32_t merged_rows = 0;  // Query tokens whose keys are cut.
  uint32_t partials = 0;     // AttentionPlan::num_partials.
  // Items of few rows (query tokens x query heads per KV head, at most kShortRows) and items of
  // more rows have separate kernels. A kernel is launched if the capacity allows such items.
  uint32_t short_rows = 0;  // The most rows of a short item; 0: there is no short item.
  bool long_items = false;
  friend bool operator==(const PlanCapacity&, const PlanCapacity&) = default;
};

inline constexpr uint32_t kShortRows = 16;

// The smallest capacity for the plan.
PlanCapacity CapacityFor(const AttentionPlan& plan, uint32_t num_heads);

// The smallest capacity that holds everything that fits either one.
PlanCapacity Widest(const PlanCapacity& a, const PlanCapacity& b);

// Bytes of a plan in device memory, aligned to 16.
uint64_t PlanBytes(const PlanCapacity& capacity);

// Writes the plan in the kernels' format; `bytes` has PlanBytes(capacity) bytes. For callers that
// copy it from pinned memory. Errors: ResourceExhausted for a plan that exceeds the capacity;
// InvalidArgument for a wrong size of `bytes`, or a num_heads that is not a multiple of the plan's
// num_kv_heads.
absl::Status EncodePlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                        absl::Span<std::byte> bytes);

// Calls EncodePlan and copies the result to `device_plan`, in the stream's order. Returns when the
// plan can be destroyed. Must not be captured in a graph. Errors: those of EncodePlan, Internal for
// CUDA's errors.
absl::Status CopyPlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                      void* device_plan, Stream stream);

// The bytes of device memory, aligned to 16, in which a call keeps partial results.
uint64_t WorkspaceBytes(const PlanCapacity& capacity, uint32_t num_heads, uint32_t value_dim);

enum class AttentionKernels : uint8_t {
  // The Hopper kernels if they are proved on this kind of GPU (the table in attention_choice.cc),
  // separately for decode and for longer items. Otherwise those of kSm80.
  kAuto,
  // Tensor cores, under these conditions:
  // - K and V are in fp16 or bf16 with queries of the same type, or in 8 bits with queries of 16
  // bits;
  // - head_dim and value_dim are at most 256;
  // - rows of tokens and strides are multiples of 16 bytes.
  // Also, where a block can have 185 KiB of shared memory (sm_90): latents of 16 bits (values ==
  // keys) with at most 576 elements and values of 512. All other calls run on kGeneric.
  kSm80,
  // The Hopper kernels (sm_90a) for calls that kSm80 runs on tensor cores, if the pool has 16 bits
  // (for short items also e4m3), its blocks are a multiple of 8 tokens, and there is no block
  // sparsity. Latents have a Hopper kernel too, under the same conditions. All other calls run like
  // with kSm80. The engine selects the Hopper kernels if its self-test has found them right and
  // fastest (engine/model/cuda/self_test/self_test.h).
  kHopper,
  // A plain kernel for every type and shape, written for readability.
  kGeneric,
};

// The stream of a call and its device memory. The caller owns the memory, which is in use until the
// call's kernels have ended. Two calls at the same time need two workspaces.
struct AttentionExecution {
  Stream stream = nullptr;
  const void* plan = nullptr;  // PlanBytes(capacity), written by CopyPlan.
  PlanCapacity capacity;
  void* workspace = nullptr;  // Can be null if WorkspaceBytes is 0.
  uint64_t workspace_bytes = 0;
  AttentionKernels kernels = AttentionKernels::kAuto;
  // If set: the kernels of long items. `kernels` then applies to short items only.
  std::optional<AttentionKernels> long_kernels;
};

// The code that computes a call. AttentionKernels is only a request: a family leaves calls that it
// does not support to another family.
enum class AttentionFamily : uint8_t { kGeneric, kSm80, kHopper, kLatent };

// The family that `kernels` leads to for the params' types, shapes, strides and alignment: for
// short items, and for long ones. Reads no memory. kLatent still runs on kGeneric if a block cannot
// have the shared memory that it needs. kAuto counts as kSm80. REQUIRES: CheckShapes is OK.
AttentionFamily FamilyOf(const PagedAttentionParams& params, AttentionKernels kernels);
AttentionFamily FamilyOfLongItems(const PagedAttentionParams& params, AttentionKernels kernels);

// The pointers and spans of `params` are device memory. Their contents are not checked: a table or
// length that PagedAttention forbids is undefined behaviour. Without context_lengths nothing is
// launched.
//
// On tensor cores, queries and weights are rounded to 16 bits before they are multiplied; sums are
// fp32. A token's result has the same bits for the same plan of its sequence, in every run and
// wherever its blocks lie. On tensor cores, rows share tiles: a NaN or infinity that one row of an
// item sees reaches the item's other rows. A NaN or infinity that no row of an item sees reaches
// none.
//
// Errors: those of CheckShapes; InvalidArgument for a missing plan or workspace, or for a head_dim
// above 4,096; FailedPrecondition for kHopper (for either kind of items) if the current device is
// not of compute capability 9.0 or the driver cannot make tensor maps; Internal for CUDA's errors,
// and for strides that a tensor map does not accept.
absl::Status PagedAttention(const PagedAttentionParams& params,
                            const AttentionExecution& execution);

// All pointers except `params.parts` are device memory. Errors: those of CheckShapes, Internal.
absl::Status MergeAttention(const AttentionMergeParams& params, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_H_
