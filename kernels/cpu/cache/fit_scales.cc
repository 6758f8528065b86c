// Raises the scales of float8 blocks before a cache write. Each thread has whole heads, so that two
// threads never touch one scale.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cache_checks.h"
#include "kernels/cpu/cache/cache.h"
#include "kernels/cpu/cache/token_runs.h"
#include "kernels/execution/parallel.h"
#include "kernels/float8_scales.h"

namespace pagoda::kernels::cpu {
namespace {

// The largest finite magnitude of `count` numbers, as its bits.
template <class T>
uint32_t LargestMagnitude(const T* __restrict numbers, uint64_t count) {
  // Independent maxima, which a compiler keeps in registers.
  constexpr uint32_t kLanes = 16;
  uint32_t largest[kLanes] = {};
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = std::max(largest[lane], FiniteMagnitude(ToFloat(numbers[i + lane])));
    }
  }
  for (; i < count; ++i) largest[0] = std::max(largest[0], FiniteMagnitude(ToFloat(numbers[i])));
  return *std::max_element(largest, largest + kLanes);
}

// What each byte becomes if its block's scale is multiplied by `factor`.
class RescaledBytes {
 public:
  explicit RescaledBytes(ElementType type) : type_(type) {}

  const std::array<uint8_t, 256>& For(float factor) {
    if (factor == factor_) return bytes_;
    factor_ = factor;
    for (uint32_t byte = 0; byte < bytes_.size(); ++byte) {
      const auto bits = static_cast<uint8_t>(byte);
      bytes_[byte] = type_ == ElementType::kFloat8E4M3 ? Rescaled(Float8E4M3{bits}, factor).bits
                                                       : Rescaled(Float8E5M2{bits}, factor).bits;
    }
    return bytes_;
  }

 private:
  const ElementType type_;
  float factor_ = 1.0f;
  std::array<uint8_t, 256> bytes_;  // Each byte rescaled by factor_. Unset at first.
};

// K or V of a call.
struct Part {
  const std::byte* rows;
  uint64_t row_stride;  // In elements.
  std::byte* pool;
  uint32_t head_elements;
  const float* scales;  // Null: the part has none.
};

class Fitter {
 public:
  explicit Fitter(const CacheWriteParams& params)
      : params_(params),
        kv_(params.kv),
        parts_{{static_cast<const std::byte*>(params.rows.keys), params.rows.key_token_stride,
                kv_.keys, kv_.head_dim, kv_.scales.keys},
               {static_cast<const std::byte*>(params.rows.values), params.rows.value_token_stride,
                kv_.values, kv_.value_elements(), kv_.scales.values}} {}

  // A slot's scales of one part.
  uint32_t part_scales() const { return kv_.scales.per_head ? kv_.num_kv_heads : 1; }
  // A unit is a scale in every slot: first those of K, then those of V.
  uint64_t units() const { return (params_.rows.values == nullptr ? 1u : 2u) * part_scales(); }

  void Run(uint64_t unit) const {
    const Part& part = parts_[unit / part_scales()];
    if (part.scales == nullptr) return;
    const auto index = static_cast<uint32_t>(unit % part_scales());
    const uint32_t heads = kv_.num_kv_heads / part_scales();
    RescaledBytes rescaled(kv_.type);
    ForRunsOfSlots(params_.token_slots, kv_.tokens_per_block, 0, params_.token_slots.size(),
                   [&](const TokenRun& run) { Fit(part, index, heads, run, rescaled); });
  }

 private:
  // Fits the scale of the heads from index * heads on to the tokens of a run.
  void Fit(const Part& part, uint32_t index, uint32_t heads, const TokenRun& run,
           RescaledBytes& rescaled) const {
    const uint64_t first_element = uint64_t{index} * heads * part.head_elements;
    float fitted = FittedScale(kv_.type, Largest(part, first_element, heads, run));
    if (run.first_token == 0) {
      TokenRun first = run;
      first.num_tokens = 1;
      fitted =
          std::max(fitted, StartingScale(kv_.type, Largest(part, first_element, heads, first)));
    }
    // Kernels only read scales, so the pointers are const. The header requires writable ones.
    float* const scale = const_cast<float*>(kv_.scales.At(part.scales, run.slot, index));
    const float before = *scale;
    if (run.first_token > 0 && IsScale(before)) {
      if (fitted <= before) return;
      const std::array<uint8_t, 256>& bytes = rescaled.For(fitted / before);
      for (uint32_t head = index * heads; head < (index + 1) * heads; ++head) {
        for (uint32_t token = 0; token < run.first_token; ++token) {
          std::byte* row = part.pool + kv_.offset_bytes(run.slot, head, token);
          for (uint32_t i = 0; i < part.head_elements; ++i) {
            row[i] = std::byte{bytes[std::to_integer<uint8_t>(row[i])]};
          }
        }
      }
    }
    *scale = fitted;
  }

  uint32_t Largest(const Part& part, uint64_t first_element, uint32_t heads,
                   const TokenRun& run) const {
    return VisitElementType(params_.rows.type, [&]<class T>() {
      const T* row = reinterpret_cast<const T*>(part.rows) + run.first_row * part.row_stride;
      uint32_t largest = 0;
      for (uint32_t t = 0; t < run.num_tokens; ++t, row += part.row_stride) {
        largest = std::max(
            largest, LargestMagnitude(row + first_element, uint64_t{heads} * part.head_elements));
      }
      return largest;
    });
  }

  const CacheWriteParams& params_;
  const KvLayer& kv_;
  const Part parts_[2];
};

}  // namespace

absl::Status FitScales(const CacheWriteParams& params, const Execution& execution) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  if (!params.kv.scales.per_slot()) return absl::OkStatus();
  const Fitter fitter(params);
  const uint64_t unit_bytes = params.token_slots.size() * ElementBytes(params.rows.type) *
                              params.kv.head_dim * (params.kv.num_kv_heads / fitter.part_scales());
  InPieces(execution, fitter.units(), unit_bytes, [&](uint64_t begin, uint64_t end) {
    for (uint64_t unit = begin; unit < end; ++unit) fitter.Run(unit);
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
