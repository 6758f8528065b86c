#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention_checks.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_unit.h"

namespace pagoda::kernels::cpu {
namespace {

// Query tokens per item. Times the group, these are enough rows that packing K and V once for all
// of them is cheap, and few enough that their sums stay in the second cache.
constexpr uint32_t kQueryTokens = 128;
// With larger pieces, short prompts and single tokens would not fill many cores.
constexpr uint32_t kSplitTokens = 512;
constexpr uint32_t kSplitQueryTokens = 4;

// The tiles for this call, or null if only the portable loops support its shape.
const TileKernels* ChooseKernels(const PagedAttentionParams& params, Isa isa) {
  constexpr uint32_t kGranule = 16;  // The elements of a register.
  const KvLayer& kv = params.kv;
  if (kv.head_dim % kGranule != 0 || kv.value_elements() % kGranule != 0) return nullptr;
  const auto type = static_cast<size_t>(kv.type);
  switch (isa) {
    case Isa::kAvx512Bf16:
      if (kAvx512Bf16Kernels[type].prefill != nullptr) return &kAvx512Bf16Kernels[type];
      [[fallthrough]];
    case Isa::kAvx512:
      return &kAvx512Kernels[type];
    case Isa::kAvx2:
      return &kAvx2Kernels[type];
    case Isa::kPortable:
      break;
  }
  return nullptr;
}

// The same with other functions of decode.
TileKernels WithDecode(TileKernels kernels, const Float8Decode& decode) {
  std::copy_n(decode.decode, std::size(decode.decode), kernels.decode);
  kernels.query_step = decode.query_step;
  kernels.query_order = decode.query_order;
  kernels.sum_order = decode.sum_order;
  return kernels;
}

TileKernels WithDecode(TileKernels kernels, const AmxDecode& decode) {
  kernels.amx = &decode;
  kernels.bf16 = true;
  kernels.query_order = decode.query_order;
  kernels.sum_order = decode.sum_order;
  return kernels;
}

// Decode by AMX, or null if it does not support the call, or is not faster: for few heads, nearly
// all of its time goes into preparing keys and values.
const TileKernels* ChooseAmxKernels(const PagedAttentionParams& params,
                                    const Execution& execution) {
  const KvLayer& kv = params.kv;
  if (execution.matrices != MatrixUnit::kAmx || execution.isa < Isa::kAvx512) return nullptr;
  if (params.num_heads / kv.num_kv_heads <= kFewHeads) return nullptr;
  const auto divides = [&](uint32_t granule) {
    return kv.head_dim % granule == 0 && kv.value_elements() % granule == 0;
  };
  if (IsFloat8(kv.type)) {
    static const TileKernels kFloat8 =
        WithDecode(kAvx512Kernels[static_cast<size_t>(ElementType::kFloat8E4M3)], kAmxFloat8Decode);
    return HasVbmi() && divides(kAmxFloat8Decode.granule) ? &kFloat8 : nullptr;
  }
  static const TileKernels kBFloat16 =
      WithDecode(kAvx512Kernels[static_cast<size_t>(ElementType::kBFloat16)], kAmxBFloat16Decode);
  const bool supported = kv.type == ElementType::kBFloat16 && divides(kAmxBFloat16Decode.granule);
  return supported ? &kBFloat16 : nullptr;
}

// The tiles of decode, for this isa. Pools of 8 bits use look-ups where the processor has them.
const TileKernels* ChooseDecodeKernels(const PagedAttentionParams& params, Isa isa) {
  const TileKernels* const kernels = ChooseKernels(params, isa);
  if (kernels == nullptr || isa < Isa::kAvx512 || !IsFloat8(params.kv.type) || !HasVbmi()) {
    return kernels;
  }
  // Those of prefill are the same for both types, except for packing, which decode does not use.
  static const TileKernels kFloat = WithDecode(
      kAvx512Kernels[static_cast<size_t>(ElementType::kFloat8E4M3)], kAvx512Float8Decode);
  if (!kernels->bf16) return &kFloat;
  static const TileKernels kBf16 = WithDecode(
      kAvx512Bf16Kernels[static_cast<size_t>(ElementType::kFloat8E4M3)], kAvx512Bf16Float8Decode);
  return &kBf16;
}

template <class T>
constexpr Float8Table MakeTable() {
  Float8Table table = {};
  for (uint32_t bits = 0; bits < 128; ++bits) {
    const uint16_t number = ToBFloat16(ToFloat(T{static_cast<uint8_t>(bits)})).bits;  // Exact.
    table.upper[bits] = static_cast<uint8_t>(number >> 8);
    table.lower[bits] = static_cast<uint8_t>(number);
  }
  return table;
}

const Float8Table* TableFor(ElementType type) {
  static constexpr Float8Table kE4M3 = MakeTable<Float8E4M3>();
  static constexpr Float8Table kE5M2 = MakeTable<Float8E5M2>();
  if (!IsFloat8(type)) return nullptr;
  return type == ElementType::kFloat8E4M3 ? &kE4M3 : &kE5M2;
}

// The isa of decode's tiles. Decode uses tiles if prefill does.
Isa DecodeIsa(const PagedAttentionParams& params, const Execution& execution) {
  const uint32_t group = params.num_heads / params.kv.num_kv_heads;
  if (group > kFewHeads || params.kv.type != ElementType::kBFloat16) return execution.isa;
  return std::min(execution.isa, std::max(execution.decode_isa, Isa::kAvx2));
}

const TileKernels* DecodeKernels(const PagedAttentionParams& params, const Execution& execution) {
  const TileKernels* const amx = ChooseAmxKernels(params, execution);
  return amx != nullptr ? amx : ChooseDecodeKernels(params, DecodeIsa(params, execution));
}

QueryConversions ConversionsOf(ElementType query_type, Isa isa) {
  constexpr Stores kThrough = Stores::kThroughCaches;
  return {.to_float = FindConversion(query_type, ElementType::kFloat32, isa, kThrough),
          .to_bf16 = FindConversion(query_type, ElementType::kBFloat16, isa, kThrough),
          .from_float = FindConversion(ElementType::kFloat32, query_type, isa, kThrough)};
}

struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes Allocate(size_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
}

// Hands out the units: to each worker first its units of the plan in order, then units left by
// others.
class UnitQueue {
 public:
  explicit UnitQueue(const AttentionPlan& plan)
      : plan_(plan), ranges_(plan.worker_starts.size() - 1) {
    for (size_t range = 0; range < ranges_.size(); ++range) {
      ranges_[range].next = plan.worker_starts[range];
    }
  }

  // Worker w of num_workers. The plan can have another number of workers.
  class Worker {
   public:
    Worker(UnitQueue& queue, uint32_t w, uint32_t num_workers)
        : queue_(queue), first_(uint64_t{w} * queue.ranges_.size() / num_workers) {}

    // Returns a unit without item if no unit is left.
    AttentionUnit Next() {
      for (; visited_ < queue_.ranges_.size(); ++visited_) {
        const uint64_t unit = queue_.ranges_[range()].next.fetch_add(1, std::memory_order_relaxed);
        if (unit < queue_.plan_.worker_starts[range() + 1]) return queue_.Unit(unit);
      }
      return {};
    }

    // The unit that Next returns if no other worker takes it first.
    AttentionUnit Peek() const {
      if (visited_ == queue_.ranges_.size()) return {};
      const uint64_t unit = queue_.ranges_[range()].next.load(std::memory_order_relaxed);
      if (unit < queue_.plan_.worker_starts[range() + 1]) return queue_.Unit(unit);
      return {};
    }

   private:
    size_t range() const { return (first_ + visited_) % queue_.ranges_.size(); }

    UnitQueue& queue_;
    const size_t first_;
    size_t visited_ = 0;  // The number of empty ranges.
  };

 private:
  AttentionUnit Unit(uint64_t unit) const {
    return {.item = &plan_.items[unit / plan_.num_kv_heads],
            .kv_head = static_cast<uint32_t>(unit % plan_.num_kv_heads)};
  }

  struct alignas(64) Range {
    std::atomic<uint64_t> next = 0;
  };
  const AttentionPlan& plan_;
  std::vector<Range> ranges_;
};

class Attention {
 public:
  Attention(const PagedAttentionParams& params, const AttentionPlan& plan,
            const Execution& execution)
      : call_{.params = params,
              .plan = plan,
              .kernels = ChooseKernels(params, execution.isa),
              .decode_kernels = DecodeKernels(params, execution),
              .float8 = TableFor(params.kv.type),
              .fetch = execution.fetch,
              .conversions = ConversionsOf(params.query_type, execution.isa)},
        queue_(plan),
        merge_of_item_(plan.merges.empty() ? 0 : plan.items.size()),
        finished_parts_(plan.merges.size() * plan.num_kv_heads) {
    AllocatePartials();
    // The items of a merge are neighbours.
    uint32_t merge = 0;
    for (size_t i = 0; i < merge_of_item_.size(); ++i) {
      const uint32_t partial = plan.items[i].partial;
      if (partial == AttentionItem::kWhole) continue;
      if (merge + 1 < plan.merges.size() && partial >= plan.merges[merge + 1].partial) ++merge;
      merge_of_item_[i] = merge;
    }
  }

  size_t scratch_bytes() const {
    return MergeBytes() +
           (call_.kernels == nullptr ? PortableScratchBytes(call_) : TileScratchBytes(call_));
  }

  // The work of worker w of num_workers.
  void Work(uint32_t w, uint32_t num_workers, absl::Span<std::byte> scratch) {
    auto* merge_sums = reinterpret_cast<float*>(scratch.data());
    const absl::Span<std::byte> unit_scratch = scratch.subspan(MergeBytes());
    UnitQueue::Worker worker(queue_, w, num_workers);
    AttentionUnit fetched;
    for (AttentionUnit unit = worker.Next(); unit.item != nullptr; unit = worker.Next()) {
      if (call_.kernels == nullptr) {
        RunPortableUnit(call_, unit, unit_scratch);
      } else {
        const AttentionUnit next = worker.Peek();
        const bool all = RunTileUnit(call_, unit, next, fetched == unit, unit_scratch);
        fetched = all ? next : AttentionUnit{};
      }
      if (unit.item->partial != AttentionItem::kWhole) FinishPart(unit, merge_sums);
    }
  }

 private:
  size_t MergeBytes() const { return (call_.value_dim() * sizeof(float) + 63) / 64 * 64; }

  void AllocatePartials() {
    const uint64_t rows = call_.plan.num_partials * call_.params.num_heads;
    if (rows == 0) return;
    partials_ = Allocate(rows * (call_.value_dim() + 2) * sizeof(float));
    auto* numbers = reinterpret_cast<float*>(partials_.get());
    call_.partials = {.sums = numbers,
                      .largest = numbers + rows * call_.value_dim(),
                      .weight_sums = numbers + rows * (call_.value_dim() + 1)};
  }

  // The worker that finishes the last part merges all parts, in the order of their keys.
  void FinishPart(const AttentionUnit& unit, float* merge_sums) {
    const auto item = static_cast<size_t>(unit.item - call_.plan.items.data());
    const uint32_t m = merge_of_item_[item];
    const AttentionMerge& merge = call_.plan.merges[m];
    std::atomic<uint32_t>& finished =
        finished_parts_[uint64_t{m} * call_.plan.num_kv_heads + unit.kv_head];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < merge.num_parts) return;
    MergeParts(call_, merge, unit.kv_head, merge_sums);
  }

  AttentionCall call_;
  UnitQueue queue_;
  AlignedBytes partials_;
  std::vector<uint32_t> merge_of_item_;
  std::vector<std::atomic<uint32_t>> finished_parts_;  // [merges][num_kv_heads]
};

}  // namespace

AttentionPlan PlanForCpu(const PlanShape& shape, const Execution& execution) {
  const uint32_t workers = execution.threads == nullptr ? 1 : execution.threads->num_threads();
  return PlanAttention(shape, {.num_workers = workers,
                               .query_tokens = kQueryTokens,
                               .split_tokens = kSplitTokens,
                               .split_query_tokens = kSplitQueryTokens});
}

absl::Status PagedAttention(const PagedAttentionParams& params, const AttentionPlan* plan,
                            const Execution& execution) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  AttentionPlan made;
  if (plan == nullptr) {
    made = PlanForCpu({.query_starts = params.query_starts,
                       .context_lengths = params.context_lengths,
                       .mask = params.mask,
                       .num_kv_heads = params.kv.num_kv_heads},
                      execution);
    plan = &made;
  } else if (absl::Status status = CheckPlan(*plan, params); !status.ok()) {
    return status;
  }

  Attention attention(params, *plan, execution);
  const size_t scratch_bytes = attention.scratch_bytes();
  if (execution.threads == nullptr) {
    const AlignedBytes scratch = Allocate(scratch_bytes);
    attention.Work(0, 1, {scratch.get(), scratch_bytes});
  } else {
    ThreadPool& threads = *execution.threads;
    threads.RunWithScratch(scratch_bytes, [&](uint32_t w, absl::Span<std::byte> scratch) {
      attention.Work(w, threads.num_threads(), scratch);
    });
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
