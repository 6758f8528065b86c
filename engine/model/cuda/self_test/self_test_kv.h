// The pools of the self-test: their layout, numbers and scales.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_KV_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_KV_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/checkpoint/config/model_config.h"
#include "kernels/numeric.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// The number of KV heads that are tested. Kernels depend on the number of query heads per KV head,
// not on the number of KV heads.
inline constexpr uint32_t kMostKvHeads = 2;
// A slot has the parts (K and V, or K) of two layers. The second one is used.
inline constexpr uint64_t kLayersOfSlot = 2;

// Writes the number in the type, and returns it as rounded.
inline float Store(kernels::ElementType type, std::byte* at, float number) {
  return kernels::VisitElementType(type, [&]<class T>() {
    const T element = kernels::FromFloat<T>(number);
    std::memcpy(at, &element, sizeof(element));
    return kernels::ToFloat(element);
  });
}

inline std::vector<float> FloatsOf(kernels::ElementType type, const std::vector<std::byte>& bytes) {
  std::vector<float> numbers(bytes.size() / kernels::ElementBytes(type));
  kernels::VisitElementType(type, [&]<class T>() {
    for (size_t i = 0; i < numbers.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      numbers[i] = kernels::ToFloat(element);
    }
  });
  return numbers;
}

// How many parts the slots have for each layer.
inline uint64_t PartsOf(const LayerConfig& layer) { return layer.kind == KvKind::kKeyOnly ? 1 : 2; }

// The layer's KV in a pool of this type, without pointers.
inline kernels::KvLayer MakeKv(const LayerConfig& layer, kernels::ElementType type,
                               uint32_t num_kv_heads, uint32_t head_dim, uint32_t block,
                               uint32_t num_slots) {
  kernels::KvLayer kv = {.type = type,
                         .num_slots = num_slots,
                         .num_kv_heads = num_kv_heads,
                         .tokens_per_block = block,
                         .head_dim = head_dim,
                         .value_dim = layer.value_dim};
  kv.token_stride_bytes = head_dim * kernels::ElementBytes(type);
  kv.head_stride_bytes = block * kv.token_stride_bytes;
  kv.slot_stride_bytes = kLayersOfSlot * PartsOf(layer) * num_kv_heads * kv.head_stride_bytes;
  return kv;
}

// Points `kv` at the second layer of the slots of a pool at this address.
inline void PlaceKv(const LayerConfig& layer, std::byte* pool, kernels::KvLayer& kv) {
  kv.keys = pool + kv.slot_stride_bytes / kLayersOfSlot;
  kv.values = kv.keys + (PartsOf(layer) - 1) * kv.num_kv_heads * kv.head_stride_bytes;
}

// Scales of float8, [slot][part][kv_head]; none for other types. They differ, and are powers of
// two.
inline std::vector<float> MakeScales(const LayerConfig& layer, const kernels::KvLayer& kv) {
  if (!kernels::IsFloat8(kv.type)) return {};
  std::vector<float> scales(kv.num_slots * PartsOf(layer) * kv.num_kv_heads);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = std::ldexp(0.25f, static_cast<int>(i % 5));
  return scales;
}
// Does nothing for other types.
inline void PlaceScales(const LayerConfig& layer, const float* scales, kernels::KvLayer& kv) {
  if (!kernels::IsFloat8(kv.type)) return;
  kv.scales = {.keys = scales,
               .values = scales + (PartsOf(layer) - 1) * kv.num_kv_heads,
               .per_head = true,
               .slot_stride = PartsOf(layer) * kv.num_kv_heads};
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_KV_H_
