#include "engine/model/cuda/self_test/self_test_cache.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/model/cuda/self_test/self_test_kv.h"
#include "kernels/cpu/cache/cache.h"

namespace pagoda::cuda {
namespace {

// Bytes are equal or not.
constexpr double kSame = 0;
constexpr double kDifferent = std::numeric_limits<double>::infinity();

// Writes some tokens of three blocks, or of four if the pool's type has scales. A row holds a
// token's keys, then its values if the cache has them.
class CacheWriteTest {
 public:
  explicit CacheWriteTest(const GpuSelfTestRequest& request)
      : layer_(request.config.layers.front()),
        heads_(std::min(layer_.num_kv_heads, kMostKvHeads)),
        block_(request.tokens_per_block),
        row_(uint64_t{heads_} * request.config.head_dim),
        kv_(MakeKv(layer_, request.kv_type, heads_, request.config.head_dim, block_,
                   /*num_slots=*/4)),
        scales_(MakeScales(layer_, kv_)),
        pool_(kv_.num_slots * kv_.slot_stride_bytes, std::byte{0xff}) {
    // The last token slot of a block, which keeps its block's scales, and the first ones of two
    // blocks.
    slots_ = {int64_t{3} * block_ - 1, 0, block_};
    if (!scales_.empty()) AddBlockOfSmallScales();
    numbers_ = TestNumbers(2).Many(slots_.size() * row_stride(), 3);
  }

  double Error(TestBed& bed, const TestedKernels& kernels) {
    std::byte* const pool = bed.Bring(pool_);
    const float* const rows = bed.Bring(numbers_);
    const int64_t* const slots = bed.Bring(slots_);
    float* const scales = bed.Bring(scales_);
    if (!bed.status().ok()) return kDifferent;
    const kernels::CacheWriteParams params = ParamsOf(rows, {slots, slots_.size()}, pool, scales);
    bed.Keep([&] { return kernels.fit_scales(params, bed.stream()); });
    bed.Keep([&] { return kernels.write_cache(params, bed.stream()); });
    if (!WriteOnHost()) return kDifferent;
    if (bed.Take(scales, scales_.size()) != scales_) return kDifferent;
    return bed.Take(pool, pool_.size()) == pool_ ? kSame : kDifferent;
  }

 private:
  uint64_t row_stride() const { return PartsOf(layer_) * row_; }

  // A last block has tokens, whose scales are too small for its new token: they are raised, and the
  // earlier tokens converted.
  void AddBlockOfSmallScales() {
    const uint32_t slot = kv_.num_slots - 1;
    if (block_ > 1) slots_.push_back(int64_t{kv_.num_slots} * block_ - 1);
    const uint64_t of_slot = scales_.size() / kv_.num_slots;
    for (uint64_t i = 0; i < of_slot; ++i) {
      scales_[slot * of_slot + i] = std::ldexp(1.0f, -12 - static_cast<int>(i));
    }
    PlaceKv(layer_, pool_.data(), kv_);
    TestNumbers numbers(9);
    for (uint32_t token = 0; token + 1 < block_; ++token) {
      for (uint64_t i = 0; i < row_; ++i) {
        for (std::byte* const part : {kv_.keys, kv_.values}) {
          Store(kv_.type, part + OffsetOf(slot, token, i), numbers.Next(200));
        }
      }
    }
  }

  // The offset in bytes of element `i` of a token's row.
  uint64_t OffsetOf(uint32_t slot, uint32_t token, uint64_t i) const {
    return kv_.offset_bytes(slot, static_cast<uint32_t>(i / kv_.head_dim), token) +
           i % kv_.head_dim * kernels::ElementBytes(kv_.type);
  }

  kernels::CacheWriteParams ParamsOf(const float* rows, absl::Span<const int64_t> slots,
                                     std::byte* pool, const float* scales) const {
    const bool has_values = PartsOf(layer_) == 2;
    kernels::CacheWriteParams params = {.rows = {.keys = rows,
                                                 .values = has_values ? rows + row_ : nullptr,
                                                 .key_token_stride = row_stride(),
                                                 .value_token_stride = row_stride()},
                                        .token_slots = slots,
                                        .kv = kv_};
    PlaceKv(layer_, pool, params.kv);
    PlaceScales(layer_, scales, params.kv);
    return params;
  }

  // Does the same with the host's copies of the pool and the scales.
  bool WriteOnHost() {
    const kernels::CacheWriteParams params =
        ParamsOf(numbers_.data(), slots_, pool_.data(), scales_.data());
    if (!kernels::cpu::FitScales(params).ok()) return false;
    const kernels::KvLayer& kv = params.kv;
    for (size_t n = 0; n < slots_.size(); ++n) {
      const auto slot = static_cast<uint32_t>(slots_[n] / block_);
      const auto token = static_cast<uint32_t>(slots_[n] % block_);
      for (uint64_t i = 0; i < row_stride(); ++i) {
        const bool is_key = i < row_;
        const float* const scales = is_key ? kv.scales.keys : kv.scales.values;
        const auto head = static_cast<uint32_t>(i % row_ / kv.head_dim);
        const float scale = scales == nullptr ? 1.0f : *kv.scales.At(scales, slot, head);
        Store(kv.type, (is_key ? kv.keys : kv.values) + OffsetOf(slot, token, i % row_),
              numbers_[n * row_stride() + i] / scale);
      }
    }
    return true;
  }

  const LayerConfig layer_;
  const uint32_t heads_;
  const uint32_t block_;
  const uint64_t row_;  // Elements of a token's keys.
  kernels::KvLayer kv_;
  std::vector<float> scales_;
  std::vector<std::byte> pool_;
  std::vector<int64_t> slots_;
  std::vector<float> numbers_;
};

double ErrorOfBlockCopy(TestBed& bed, const TestedKernels& kernels) {
  constexpr uint64_t kSlotBytes = 16 * 1024 + 64;
  constexpr uint32_t kSlots = 3;
  std::vector<std::byte> source(kSlots * kSlotBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> expected(source.size(), std::byte{0xff});
  const std::vector<kernels::SlotCopy> copies = {{.source = 2, .target = 0},
                                                 {.source = 0, .target = 2}};
  const std::byte* const from = bed.Bring(source);
  std::byte* const to = bed.Bring(expected);
  const kernels::SlotCopy* const pairs = bed.Bring(copies);
  bed.Keep([&] {
    return kernels.copy_blocks({.source = from,
                                .target = to,
                                .source_slots = kSlots,
                                .target_slots = kSlots,
                                .slot_bytes = kSlotBytes,
                                .copies = {pairs, copies.size()}},
                               bed.stream());
  });
  for (const kernels::SlotCopy& copy : copies) {
    std::copy_n(source.data() + copy.source * kSlotBytes, kSlotBytes,
                expected.data() + copy.target * kSlotBytes);
  }
  return bed.Take(to, expected.size()) == expected ? kSame : kDifferent;
}

}  // namespace

std::vector<SelfTestItem> CacheItems(const GpuSelfTestRequest& request,
                                     const TestedKernels& kernels) {
  std::vector<SelfTestItem> items;
  items.push_back({.part = "cache_write",
                   .family = "portable",
                   .tolerance = kSame,
                   .test = [&request, &kernels](TestBed& bed) {
                     return Measured{.error = CacheWriteTest(request).Error(bed, kernels)};
                   }});
  items.push_back({.part = "block_copy",
                   .family = "portable",
                   .needed = false,
                   .tolerance = kSame,
                   .test = [&kernels](TestBed& bed) {
                     return Measured{.error = ErrorOfBlockCopy(bed, kernels)};
                   }});
  return items;
}

}  // namespace pagoda::cuda
