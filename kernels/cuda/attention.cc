#include "kernels/cuda/attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention_split.h"
#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_merge_args.h"
#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cuda {
namespace {

static_assert(kWholeItem == AttentionItem::kWhole);
static_assert(kMaxCallParts == kMaxMergedParts);

// Rows per item: two of the prefill kernel's smallest tiles, or one of its largest.
constexpr uint32_t kItemRows = 128;

constexpr uint32_t kBlocksPerMultiprocessor = 2;
// The maximum of a call's partial rows: this many pieces of kItemRows rows per block. With values
// of 128 elements, a call on an H200 has at most 34 MiB of them.
constexpr uint32_t kMostPiecesPerBlock = 2;

constexpr uint32_t kMaxGenericHeadDim = 4096;

uint64_t ItemsOffset() { return sizeof(PlanHeader); }
uint64_t MergedRowsOffset(const PlanCapacity& capacity) {
  return ItemsOffset() + uint64_t{capacity.items} * sizeof(PlannedItem);
}

bool IsShort(const AttentionItem& item, uint32_t group) {
  return uint64_t{item.num_queries} * group <= kShortRows;
}

// The plan's items: first those of few rows, each kind by descending cost, so that no long item
// comes last.
std::vector<uint32_t> LaunchOrder(const AttentionPlan& plan, uint32_t group) {
  std::vector<uint32_t> order(plan.items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto cost = [&plan](uint32_t i) {
    const AttentionItem& item = plan.items[i];
    return uint64_t{item.end_key - item.first_key} * item.num_queries;
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const bool a_short = IsShort(plan.items[a], group);
    const bool b_short = IsShort(plan.items[b], group);
    if (a_short != b_short) return a_short;
    return cost(a) > cost(b);
  });
  return order;
}

std::string Describe(const PlanCapacity& capacity) {
  return absl::StrCat(capacity.items, " items, ", capacity.merged_rows, " merged rows, ",
                      capacity.partials, " partial rows, ", capacity.short_rows,
                      " rows of a short item, ", capacity.long_items ? "long items" : "none long");
}

AttentionArgs ArgsOf(const PagedAttentionParams& params, const AttentionExecution& execution) {
  const auto* plan = static_cast<const std::byte*>(execution.plan);
  AttentionArgs args = {};
  args.query = static_cast<const std::byte*>(params.query);
  args.output = static_cast<std::byte*>(params.output);
  args.lse = params.lse;
  args.query_type = params.query_type;
  args.query_token_stride = params.query_token_stride;
  args.output_token_stride = params.output_token_stride;
  args.num_heads = params.num_heads;
  args.group = params.num_heads / params.kv.num_kv_heads;
  args.scale = params.scale;
  args.soft_cap = params.soft_cap;
  args.alibi_slopes = params.alibi_slopes;
  args.sink_logits = params.sink_logits;
  args.mask = params.mask;
  args.query_starts = params.query_starts.data();
  args.context_lengths = params.context_lengths.data();
  args.block_tables = params.block_tables.data();
  args.block_table_stride = params.block_table_stride;
  args.kv = params.kv;
  args.value_dim = params.kv.value_elements();
  args.plan = reinterpret_cast<const PlanHeader*>(plan);
  args.items = reinterpret_cast<const PlannedItem*>(plan + ItemsOffset());
  args.merged_rows =
      reinterpret_cast<const MergedRow*>(plan + MergedRowsOffset(execution.capacity));
  args.partial_outputs = static_cast<float*>(execution.workspace);
  args.partial_log_sums = args.partial_outputs +
                          uint64_t{execution.capacity.partials} * params.num_heads * args.value_dim;
  return args;
}

AttentionKernels KernelsOf(ItemKind kind, const AttentionExecution& execution) {
  return kind == ItemKind::kLong ? execution.long_kernels.value_or(execution.kernels)
                                 : execution.kernels;
}

bool IsAskedFor(const AttentionExecution& execution, AttentionKernels kernels) {
  return KernelsOf(ItemKind::kShort, execution) == kernels ||
         KernelsOf(ItemKind::kLong, execution) == kernels;
}

// Computes the plan's items of one kind with the kernel for that kind.
absl::Status AttendItems(const AttentionArgs& args, ItemKind kind,
                         const AttentionExecution& execution, const HopperDevice& device) {
  const PlanCapacity& capacity = execution.capacity;
  const bool is_short = kind == ItemKind::kShort;
  if (is_short ? capacity.short_rows == 0 : !capacity.long_items) return absl::OkStatus();
  const char* const name = is_short ? "attention of short items" : "attention of long items";
  const Stream stream = execution.stream;
  const AttentionLaunch launch = {.args = args, .kind = kind};
  const AttentionKernels asked = KernelsOf(kind, execution);
  const bool generic = asked == AttentionKernels::kGeneric;
  const HopperChoice choice = ChooseHopper(asked, device, AllProved());
  const uint64_t units = uint64_t{capacity.items} * args.kv.num_kv_heads;
  if (!generic && HasLatentKernel(args)) {
    if (!choice.latent || !HasHopperLatent(args)) {
      return StatusOf(name, LaunchLatent(launch, capacity.items, stream));
    }
    HopperLaunch hopper;
    if (absl::Status status = MakeHopperLatentLaunch(args, kind, &hopper); !status.ok())
      return status;
    return StatusOf(name, LaunchHopperLatent(hopper, units, device.num_multiprocessors, stream));
  }
  if (generic || !HasTensorKernels(args)) {
    return StatusOf(name, LaunchGeneric(launch, capacity.items, stream));
  }
  const bool decode = IsFloat8(args.kv.type) ? choice.decode_float8 : choice.decode;
  if ((is_short ? decode : choice.prefill) && HasHopperKernels(args, kind)) {
    HopperLaunch hopper;
    if (absl::Status status = MakeHopperLaunch(args, kind, &hopper); !status.ok()) return status;
    return StatusOf(
        name, is_short ? LaunchHopperDecode(hopper, units, capacity.short_rows,
                                            device.num_multiprocessors, stream)
                       : LaunchHopperPrefill(hopper, units, device.num_multiprocessors, stream));
  }
  return StatusOf(name, is_short ? LaunchDecode(launch, capacity.items, capacity.short_rows, stream)
                                 : LaunchPrefill(launch, capacity.items, stream));
}

AttentionFamily FamilyOfItems(const PagedAttentionParams& params, AttentionKernels kernels,
                              ItemKind kind) {
  if (kernels == AttentionKernels::kGeneric) return AttentionFamily::kGeneric;
  const PlanHeader no_plan = {};
  const AttentionArgs args = ArgsOf(params, {.plan = &no_plan});
  const bool hopper = kernels == AttentionKernels::kHopper;
  if (HasLatentKernel(args)) {
    return hopper && HasHopperLatent(args) ? AttentionFamily::kHopper : AttentionFamily::kLatent;
  }
  if (!HasTensorKernels(args)) return AttentionFamily::kGeneric;
  return hopper && HasHopperKernels(args, kind) ? AttentionFamily::kHopper : AttentionFamily::kSm80;
}

}  // namespace

AttentionPlan PlanForCuda(const PlanShape& shape, uint32_t num_heads, const DeviceLimits& device) {
  const uint32_t group = std::max(1u, num_heads / shape.num_kv_heads);
  PlanOptions options = {.num_workers = device.num_multiprocessors * kBlocksPerMultiprocessor,
                         .query_tokens = std::max(1u, kItemRows / group),
                         .split_query_tokens = std::max(1u, kShortRows / group)};
  // A batch with too few chunks to fill the GPU is cut like decode.
  uint64_t units = 0;
  for (size_t s = 0; s < shape.context_lengths.size(); ++s) {
    const auto queries = static_cast<uint64_t>(shape.query_starts[s + 1] - shape.query_starts[s]);
    units += (queries + options.query_tokens - 1) / options.query_tokens * shape.num_kv_heads;
  }
  if (units < device.num_multiprocessors) options.split_query_tokens = options.query_tokens;
  const uint64_t most_rows = uint64_t{options.num_workers} * kMostPiecesPerBlock * kItemRows;
  options.split_tokens = BalancedSplitTokens(
      shape, options,
      {.short_query_tokens = std::max(1u, kShortRows / group),
       .group = group,
       .most_partials = std::max<uint64_t>(1, most_rows / std::max(1u, num_heads))});
  return PlanAttention(shape, options);
}

PlanCapacity CapacityFor(const AttentionPlan& plan, uint32_t num_heads) {
  const uint32_t group = plan.num_kv_heads == 0 ? 1 : num_heads / plan.num_kv_heads;
  PlanCapacity capacity = {.items = static_cast<uint32_t>(plan.items.size()),
                           .partials = static_cast<uint32_t>(plan.num_partials)};
  for (const AttentionMerge& merge : plan.merges) capacity.merged_rows += merge.num_queries;
  for (const AttentionItem& item : plan.items) {
    if (IsShort(item, group)) {
      capacity.short_rows = std::max(capacity.short_rows, item.num_queries * group);
    } else {
      capacity.long_items = true;
    }
  }
  return capacity;
}

PlanCapacity Widest(const PlanCapacity& a, const PlanCapacity& b) {
  return {.items = std::max(a.items, b.items),
          .merged_rows = std::max(a.merged_rows, b.merged_rows),
          .partials = std::max(a.partials, b.partials),
          .short_rows = std::max(a.short_rows, b.short_rows),
          .long_items = a.long_items || b.long_items};
}

uint64_t PlanBytes(const PlanCapacity& capacity) {
  return MergedRowsOffset(capacity) + uint64_t{capacity.merged_rows} * sizeof(MergedRow);
}

absl::Status EncodePlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                        absl::Span<std::byte> bytes) {
  if (bytes.size() != PlanBytes(capacity)) {
    return InvalidArgument("bytes has ", bytes.size(), "; the capacity's plan has ",
                           PlanBytes(capacity));
  }
  if (num_heads == 0 || (plan.num_kv_heads != 0 && num_heads % plan.num_kv_heads != 0)) {
    return InvalidArgument("num_heads is ", num_heads, ", not a positive multiple of the plan's ",
                           plan.num_kv_heads, " KV heads");
  }
  const PlanCapacity needed = CapacityFor(plan, num_heads);
  if (Widest(needed, capacity) != capacity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the plan has ", Describe(needed), "; the capacity is ", Describe(capacity)));
  }
  const uint32_t group = plan.num_kv_heads == 0 ? 1 : num_heads / plan.num_kv_heads;
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  PlanHeader header = {};
  std::byte* next = bytes.data() + ItemsOffset();
  for (const uint32_t i : LaunchOrder(plan, group)) {
    const AttentionItem& item = plan.items[i];
    ++(IsShort(item, group) ? header.num_short_items : header.num_long_items);
    const PlannedItem planned = {.sequence = item.sequence,
                                 .first_query = item.first_query,
                                 .num_queries = item.num_queries,
                                 .first_key = item.first_key,
                                 .end_key = item.end_key,
                                 .partial = item.partial,
                                 .unused = {}};
    std::memcpy(next, &planned, sizeof(planned));
    next += sizeof(planned);
  }
  next = bytes.data() + MergedRowsOffset(capacity);
  for (const AttentionMerge& merge : plan.merges) {
    for (uint32_t r = 0; r < merge.num_queries; ++r) {
      const MergedRow row = {.query = merge.first_query + r,
                             .partial = merge.partial + r,
                             .step = merge.num_queries,
                             .num_parts = merge.num_parts};
      std::memcpy(next, &row, sizeof(row));
      next += sizeof(row);
      ++header.num_merged_rows;
    }
  }
  std::memcpy(bytes.data(), &header, sizeof(header));
  return absl::OkStatus();
}

absl::Status CopyPlan(const AttentionPlan& plan, uint32_t num_heads, const PlanCapacity& capacity,
                      void* device_plan, Stream stream) {
  if (device_plan == nullptr) return InvalidArgument("device_plan is null");
  std::vector<std::byte> bytes(PlanBytes(capacity));
  absl::Status status = EncodePlan(plan, num_heads, capacity, absl::MakeSpan(bytes));
  if (!status.ok()) return status;
  status =
      CopyMemory({{.target = device_plan, .source = bytes.data(), .bytes = bytes.size()}}, stream);
  // Waits, because the bytes are freed with this call: a device that reads host memory by itself
  // can still be reading them.
  if (absl::Status ended = WaitForStream(stream); status.ok()) status = ended;
  return status;
}

uint64_t WorkspaceBytes(const PlanCapacity& capacity, uint32_t num_heads, uint32_t value_dim) {
  const uint64_t bytes = uint64_t{capacity.partials} * num_heads * (value_dim + 1) * sizeof(float);
  return (bytes + 15) / 16 * 16;
}

AttentionFamily FamilyOf(const PagedAttentionParams& params, AttentionKernels kernels) {
  return FamilyOfItems(params, kernels, ItemKind::kShort);
}
AttentionFamily FamilyOfLongItems(const PagedAttentionParams& params, AttentionKernels kernels) {
  return FamilyOfItems(params, kernels, ItemKind::kLong);
}

absl::Status PagedAttention(const PagedAttentionParams& params,
                            const AttentionExecution& execution) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const PlanCapacity& capacity = execution.capacity;
  if (params.kv.head_dim > kMaxGenericHeadDim) {
    return InvalidArgument("kv.head_dim is ", params.kv.head_dim, ", above ", kMaxGenericHeadDim);
  }
  if (execution.plan == nullptr || reinterpret_cast<uintptr_t>(execution.plan) % 16 != 0) {
    return InvalidArgument("plan is null or not aligned to 16 bytes");
  }
  const uint64_t workspace = WorkspaceBytes(capacity, params.num_heads, params.kv.value_elements());
  if (execution.workspace_bytes < workspace || (workspace > 0 && execution.workspace == nullptr) ||
      reinterpret_cast<uintptr_t>(execution.workspace) % 16 != 0) {
    return InvalidArgument("workspace has ", execution.workspace_bytes, " bytes at 0x",
                           absl::Hex(reinterpret_cast<uintptr_t>(execution.workspace)),
                           "; the capacity needs ", workspace, ", aligned to 16");
  }
  if (params.context_lengths.empty()) return absl::OkStatus();

  const AttentionArgs args = ArgsOf(params, execution);
  HopperDevice device;
  const bool asks_hopper = IsAskedFor(execution, AttentionKernels::kHopper);
  if (asks_hopper || (IsAskedFor(execution, AttentionKernels::kAuto) && !AllProved().empty())) {
    if (absl::Status status = FindHopper(&device); !status.ok()) return status;
  }
  if (asks_hopper && !device.present) {
    return absl::FailedPreconditionError(
        "kernels is kHopper, and the device is not of compute capability 9.0");
  }
  const Stream stream = execution.stream;
  for (const ItemKind kind : {ItemKind::kShort, ItemKind::kLong}) {
    if (absl::Status status = AttendItems(args, kind, execution, device); !status.ok()) {
      return status;
    }
  }
  return StatusOf("merge of partial results",
                  LaunchPartialMerge(args, capacity.merged_rows, stream));
}

absl::Status MergeAttention(const AttentionMergeParams& params, Stream stream) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  CallMergeArgs args = {};
  for (size_t k = 0; k < params.parts.size(); ++k) {
    args.output_of[k] = static_cast<const std::byte*>(params.parts[k].output);
    args.lse_of[k] = params.parts[k].lse;
  }
  args.num_parts = static_cast<uint32_t>(params.parts.size());
  args.type = params.type;
  args.output = static_cast<std::byte*>(params.output);
  args.output_token_stride = params.output_token_stride;
  args.lse = params.lse;
  args.num_tokens = params.num_tokens;
  args.num_heads = params.num_heads;
  args.value_dim = params.value_dim;
  return StatusOf("merge of attention", LaunchCallMerge(args, stream));
}

}  // namespace pagoda::kernels::cuda
