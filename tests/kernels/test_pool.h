// A pool of one layer in ordinary memory. Every byte that no test wrote is NaN.
#ifndef PAGODA_TESTS_KERNELS_TEST_POOL_H_
#define PAGODA_TESTS_KERNELS_TEST_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cache_write.h"
#include "kernels/numeric.h"
#include "kernels/types.h"

namespace pagoda::kernels {

struct PoolShape {
  ElementType type = ElementType::kFloat32;
  uint32_t num_slots = 8;
  uint32_t num_kv_heads = 2;
  uint32_t tokens_per_block = 16;
  uint32_t head_dim = 32;
};

class TestPool {
 public:
  // All bits set is NaN in each element type.
  explicit TestPool(const PoolShape& shape) {
    kv_.type = shape.type;
    kv_.num_slots = shape.num_slots;
    kv_.num_kv_heads = shape.num_kv_heads;
    kv_.tokens_per_block = shape.tokens_per_block;
    kv_.head_dim = shape.head_dim;
    kv_.token_stride_bytes = shape.head_dim * ElementBytes(shape.type);
    kv_.head_stride_bytes = kv_.token_stride_bytes * shape.tokens_per_block;
    const uint64_t kv_stride_bytes = kv_.head_stride_bytes * shape.num_kv_heads;
    kv_.slot_stride_bytes = 2 * kv_stride_bytes;
    bytes_.assign(kv_.slot_stride_bytes * shape.num_slots, std::byte{0xff});
    kv_.keys = bytes_.data();
    kv_.values = bytes_.data() + kv_stride_bytes;
  }
  TestPool(const TestPool&) = delete;
  TestPool& operator=(const TestPool&) = delete;

  const KvLayer& kv() const { return kv_; }
  std::vector<std::byte>& bytes() { return bytes_; }

  float Read(const std::byte* base, int64_t token_slot, uint32_t head, uint32_t element) const {
    const auto slot = static_cast<uint32_t>(token_slot / kv_.tokens_per_block);
    const auto token = static_cast<uint32_t>(token_slot % kv_.tokens_per_block);
    const std::byte* bytes = base + kv_.offset_bytes(slot, head, token);
    return VisitElementType(
        kv_.type, [&]<class T>() { return ToFloat(reinterpret_cast<const T*>(bytes)[element]); });
  }

 private:
  KvLayer kv_;
  std::vector<std::byte> bytes_;
};

inline std::vector<float> RandomFloats(uint64_t size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// The slots 0 to count - 1 in random order.
inline std::vector<int32_t> ShuffledSlots(uint32_t count, std::mt19937& random) {
  std::vector<int32_t> slots(count);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  return slots;
}

}  // namespace pagoda::kernels

#endif  // PAGODA_TESTS_KERNELS_TEST_POOL_H_
