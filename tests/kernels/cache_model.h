// A model of the cache's writes and reads, element by element. The tests compare with it.
#ifndef PAGODA_TESTS_KERNELS_CACHE_MODEL_H_
#define PAGODA_TESTS_KERNELS_CACHE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"
#include "kernels/numeric.h"

namespace pagoda::kernels {

inline float ReadElement(ElementType type, const void* elements, uint64_t i) {
  return VisitElementType(type, [&]<class T>() {
    T element;
    std::memcpy(&element, static_cast<const std::byte*>(elements) + i * sizeof(T), sizeof(T));
    return ToFloat(element);
  });
}

inline void WriteElement(ElementType type, void* elements, uint64_t i, float value) {
  VisitElementType(type, [&]<class T>() {
    const T element = FromFloat<T>(value);
    std::memcpy(static_cast<std::byte*>(elements) + i * sizeof(T), &element, sizeof(T));
  });
}

// Normally distributed, and sometimes larger than the largest number of any 8-bit type.
inline std::vector<std::byte> RandomElements(ElementType type, uint64_t count,
                                             std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> elements(count * ElementBytes(type));
  for (uint64_t i = 0; i < count; ++i) {
    WriteElement(type, elements.data(), i, normal(random) * (random() % 50 == 0 ? 3e4f : 1.0f));
  }
  return elements;
}

inline float ScaleOf(const KvScales& scales, const float* part, uint32_t slot, uint32_t head) {
  if (part == nullptr) return 1.0f;
  return part[slot * scales.slot_stride + (scales.per_head ? head : 0)];
}

// Writes K and V (if present) of row n of `rows` to a token slot.
inline void ModelWrite(const CacheRows& rows, uint64_t n, const KvLayer& kv, int64_t token_slot) {
  const auto slot = static_cast<uint32_t>(token_slot / kv.tokens_per_block);
  const auto token = static_cast<uint32_t>(token_slot % kv.tokens_per_block);
  const auto write = [&](const void* part, uint64_t stride, std::byte* pool, uint32_t elements,
                         const float* scales) {
    for (uint32_t head = 0; head < kv.num_kv_heads; ++head) {
      for (uint32_t i = 0; i < elements; ++i) {
        const float value = ReadElement(rows.type, part, n * stride + head * elements + i);
        WriteElement(kv.type, pool + kv.offset_bytes(slot, head, token), i,
                     value / ScaleOf(kv.scales, scales, slot, head));
      }
    }
  };
  write(rows.keys, rows.key_token_stride, kv.keys, kv.head_dim, kv.scales.keys);
  if (rows.values == nullptr) return;
  write(rows.values, rows.value_token_stride, kv.values, kv.value_elements(), kv.scales.values);
}

// The row of a token slot in one part: [num_kv_heads][elements] of `type`.
inline void ModelGather(const KvLayer& kv, const std::byte* pool, uint32_t elements,
                        const float* scales, int64_t token_slot, ElementType type, void* row) {
  const auto slot = static_cast<uint32_t>(token_slot / kv.tokens_per_block);
  const auto token = static_cast<uint32_t>(token_slot % kv.tokens_per_block);
  for (uint32_t head = 0; head < kv.num_kv_heads; ++head) {
    for (uint32_t i = 0; i < elements; ++i) {
      const float value = ReadElement(kv.type, pool + kv.offset_bytes(slot, head, token), i);
      WriteElement(type, row, uint64_t{head} * elements + i,
                   value * ScaleOf(kv.scales, scales, slot, head));
    }
  }
}

}  // namespace pagoda::kernels

#endif  // PAGODA_TESTS_KERNELS_CACHE_MODEL_H_
