// Plain attention: one warp per row (a query head of a query token), one key after another, with
// the online softmax (Milakov and Gimelshein, 2018). Supports every type, shape and mask. The fast
// kernels compute the same in other orders.
#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

struct GenericKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = AttentionLaunch;

  // A warp keeps its row's query and weighted values in fp32. A lane has elements lane, lane + 32
  // and so on, and touches no others.
  static PAGODA_DEVICE uint32_t RowWords(const AttentionArgs& args) {
    return args.kv.head_dim + args.value_dim;
  }

  static PAGODA_DEVICE void Run(const AttentionLaunch& launch) {
    const AttentionArgs& args = launch.args;
    for (uint64_t u = BlockIndex(); u < NumUnits(args, launch.kind); u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
      for (uint32_t row = WarpIndex(); row < unit.num_rows; row += kWarps) Attend(args, unit, row);
    }
  }

  static PAGODA_DEVICE void Attend(const AttentionArgs& args, const Unit& unit, uint32_t row) {
    const uint32_t head_dim = args.kv.head_dim;
    const uint32_t token = row / args.group;
    const uint32_t head = unit.kv_head * args.group + row % args.group;
    const uint64_t query = uint64_t{unit.item.first_query} + token;
    const int64_t position = unit.first_position + token;
    const uint32_t queries = SharedBase() + WarpIndex() * RowWords(args) * 4;
    const uint32_t values = queries + head_dim * 4;
    for (uint32_t i = LaneIndex(); i < head_dim; i += kWarpThreads) {
      StoreShared(queries + i * 4,
                  LoadElement(args.query_type, args.query,
                              query * args.query_token_stride + uint64_t{head} * head_dim + i));
    }
    for (uint32_t i = LaneIndex(); i < args.value_dim; i += kWarpThreads) {
      StoreShared(values + i * 4, 0.0f);
    }

    const float scale = args.scale * KeyScale(args, unit.kv_head);
    float largest = NegativeInfinity();
    float sum = 0;
    for (uint32_t key = unit.item.first_key; key < unit.item.end_key; ++key) {
      if (!Sees(args.mask, head, position, key)) continue;  // Its K and V can be NaN.
      const uint64_t offset = TokenOffset(args, unit, key);
      float product = 0;
      for (uint32_t i = LaneIndex(); i < head_dim; i += kWarpThreads) {
        product += LoadShared<float>(queries + i * 4) *
                   LoadElement(args.kv.type, args.kv.keys + offset, i);
      }
      TokenScales own;
      if (HasSlotScales(args)) own = ScalesOfToken(args, unit, key);
      const float score = Score2(args, scale * own.key, SumOfWarp(product), head, key - position);
      const float higher = score > largest ? score : largest;
      // Both are -infinity while no key has a weight.
      const float rescale = largest == higher ? 1.0f : Exp2(largest - higher);
      const float weight = score == NegativeInfinity() ? 0.0f : Exp2(score - higher);
      largest = higher;
      sum = sum * rescale + weight;
      for (uint32_t i = LaneIndex(); i < args.value_dim; i += kWarpThreads) {
        const float value = own.value * LoadElement(args.kv.type, args.kv.values + offset, i);
        StoreShared(values + i * 4, LoadShared<float>(values + i * 4) * rescale + weight * value);
      }
    }
    Store(args, unit, query, token, head, largest, sum, values);
  }

  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint64_t query,
                                  uint32_t token, uint32_t head, float largest, float sum,
                                  uint32_t values) {
    const bool whole = unit.item.partial == kWholeItem;
    const RowEnd end = EndRow(args, largest, sum, head, whole);
    const float factor = end.factor * ValueScale(args, unit.kv_head);
    const uint64_t partial = (uint64_t{unit.item.partial} + token) * args.num_heads + head;
    for (uint32_t i = LaneIndex(); i < args.value_dim; i += kWarpThreads) {
      // A row without keys has a factor of 0 and weighted values of 0.
      const float value = LoadShared<float>(values + i * 4) * factor;
      if (whole) {
        StoreElement(args.query_type, args.output,
                     query * args.output_token_stride + uint64_t{head} * args.value_dim + i, value);
      } else {
        args.partial_outputs[partial * args.value_dim + i] = value;
      }
    }
    if (LaneIndex() != 0) return;
    if (!whole) {
      args.partial_log_sums[partial] = end.log_sum;
    } else if (args.lse != nullptr) {
      args.lse[query * args.num_heads + head] = end.log_sum * kLn2;
    }
  }
};

}  // namespace

int LaunchGeneric(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  const AttentionArgs& args = launch.args;
  const uint32_t shared = GenericKernel::kWarps * (args.kv.head_dim + args.value_dim) * 4;
  return Launch<GenericKernel>({.blocks = max_items * args.kv.num_kv_heads, .shared_bytes = shared},
                               stream, launch);
}

}  // namespace pagoda::kernels::cuda
