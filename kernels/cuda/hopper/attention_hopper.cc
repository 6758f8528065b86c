#include "kernels/cuda/hopper/attention_hopper.h"

#include <algorithm>

namespace pagoda::kernels::cuda {
namespace {

// The swizzle's rows, and the fewest keys per step of a kernel.
constexpr uint32_t kFewestTokens = 8;
constexpr uint32_t kMostTokens = 64;
constexpr uint32_t kMostLatentTokens = 32;

TensorShape ShapeOf(const KvLayer& kv, const std::byte* base, uint32_t elements,
                    uint32_t box_tokens) {
  return {.base = base,
          .elements = static_cast<uint32_t>(elements * ElementBytes(kv.type) / 2),
          .tokens = kv.tokens_per_block,
          .heads = kv.num_kv_heads,
          .slots = kv.num_slots,
          .token_stride_bytes = kv.token_stride_bytes,
          .head_stride_bytes = kv.head_stride_bytes,
          .slot_stride_bytes = kv.slot_stride_bytes,
          .box_tokens = box_tokens};
}

bool HasBoxes(const AttentionArgs& args) {
  return args.kv.tokens_per_block % kFewestTokens == 0 && args.mask.sparsity.block_tokens == 0;
}

absl::Status MakeLaunch(const AttentionArgs& args, ItemKind kind, uint32_t most_tokens,
                        HopperLaunch* launch) {
  const KvLayer& kv = args.kv;
  // The lowest set bit.
  const uint32_t divisor = kv.tokens_per_block & (~kv.tokens_per_block + 1);
  launch->args = args;
  launch->kind = kind;
  launch->box_tokens = std::min(divisor, most_tokens);
  absl::Status status =
      EncodeTensorMap(ShapeOf(kv, kv.keys, kv.head_dim, launch->box_tokens), &launch->keys);
  if (!status.ok()) return status;
  return EncodeTensorMap(ShapeOf(kv, kv.values, args.value_dim, launch->box_tokens),
                         &launch->values);
}

}  // namespace

bool HasHopperKernels(const AttentionArgs& args, ItemKind kind) {
  const bool has_type = args.kv.type == args.query_type ||
                        (kind == ItemKind::kShort && args.kv.type == ElementType::kFloat8E4M3);
  return HasTensorKernels(args) && has_type && HasBoxes(args);
}

bool HasHopperLatent(const AttentionArgs& args) { return HasLatentKernel(args) && HasBoxes(args); }

absl::Status MakeHopperLaunch(const AttentionArgs& args, ItemKind kind, HopperLaunch* launch) {
  return MakeLaunch(args, kind, kMostTokens, launch);
}

absl::Status MakeHopperLatentLaunch(const AttentionArgs& args, ItemKind kind,
                                    HopperLaunch* launch) {
  return MakeLaunch(args, kind, kMostLatentTokens, launch);
}

}  // namespace pagoda::kernels::cuda
