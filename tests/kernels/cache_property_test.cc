// Random writes, fills and reads of random pools against the model, on every path. The whole pool
// is compared: bytes that no token slot owns must not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/cache/cache.h"
#include "tests/kernels/cache_model.h"

namespace pagoda::kernels {
namespace {

constexpr ElementType kRowTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                     ElementType::kBFloat16};
constexpr ElementType kPoolTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                      ElementType::kBFloat16, ElementType::kFloat8E4M3,
                                      ElementType::kFloat8E5M2};

// A pool of random shape and layout with random bytes, and a batch of tokens for it.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    kv_.type = kPoolTypes[Pick(5)];
    kv_.num_slots = 4 + Pick(12);
    kv_.num_kv_heads = 1 + Pick(4);
    kv_.tokens_per_block = 1 + Pick(20);
    kv_.head_dim = Pick(2) == 0 ? 16 * (1 + Pick(12)) : 1 + Pick(140);
    if (Pick(4) == 0) kv_.value_dim = 1 + Pick(kv_.head_dim);
    const uint64_t element = ElementBytes(kv_.type);
    const uint64_t slack = Pick(2) * 3 * element;
    const uint64_t token_bytes = kv_.head_dim * element + slack;
    if (Pick(2) == 0) {  // [head][token]
      kv_.token_stride_bytes = token_bytes;
      kv_.head_stride_bytes = token_bytes * kv_.tokens_per_block + slack;
      kv_.slot_stride_bytes = 2 * kv_.head_stride_bytes * kv_.num_kv_heads;
    } else {  // [token][head]
      kv_.head_stride_bytes = token_bytes;
      kv_.token_stride_bytes = token_bytes * kv_.num_kv_heads + slack;
      kv_.slot_stride_bytes = 2 * kv_.token_stride_bytes * kv_.tokens_per_block;
    }
    pool_.resize(kv_.slot_stride_bytes * kv_.num_slots);
    for (std::byte& byte : pool_) byte = static_cast<std::byte>(random_());
    const uint32_t parts = Pick(6);  // 0: K only. 1: latents.
    has_values_ = parts > 1;
    Point(kv_, pool_, parts);
    if (IsFloat8(kv_.type) && Pick(3) > 0) {
      kv_.scales.per_head = Pick(2) == 0;
      const bool per_slot = Pick(2) == 0;
      if (per_slot) kv_.scales.slot_stride = 2 * kv_.num_kv_heads + Pick(2);
      const uint64_t more = kv_.scales.slot_stride * (kv_.num_slots - 1);
      for (uint64_t i = 0; i < 2 * kv_.num_kv_heads + more; ++i) {
        scales_.push_back(Pick(2) == 0 ? 0.5f : 0.01f * static_cast<float>(1 + Pick(300)));
      }
      kv_.scales.keys = scales_.data();
      kv_.scales.values = scales_.data() + kv_.num_kv_heads;
    }
    parts_ = parts;
  }

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  const KvLayer& kv() const { return kv_; }
  std::vector<std::byte>& pool() { return pool_; }
  bool has_values() const { return has_values_; }

  // The same layer in a copy of the pool.
  KvLayer In(std::vector<std::byte>& copy) const {
    KvLayer kv = kv_;
    Point(kv, copy, parts_);
    return kv;
  }

  // Memory of `count` elements; one more is allocated, so that no pointer is null.
  CacheRows Rows(uint64_t count) {
    CacheRows rows{.type = kRowTypes[Pick(3)],
                   .key_token_stride = uint64_t{kv_.num_kv_heads} * kv_.head_dim + Pick(5)};
    keys_ = RandomElements(rows.type, (count + 1) * rows.key_token_stride, random_);
    rows.keys = keys_.data();
    if (!has_values_) return rows;
    rows.value_token_stride = uint64_t{kv_.num_kv_heads} * kv_.value_elements() + Pick(5);
    values_ = RandomElements(rows.type, (count + 1) * rows.value_token_stride, random_);
    rows.values = values_.data();
    return rows;
  }

  // Distinct token slots in runs of neighbours, with padding among them.
  std::vector<int64_t> TokenSlots() {
    std::vector<int64_t> slots;
    const int64_t capacity = int64_t{kv_.num_slots} * kv_.tokens_per_block;
    for (int64_t next = 0; next < capacity;) {
      if (Pick(3) == 0) slots.push_back(-1 - int64_t{Pick(3)});
      const int64_t run = 1 + Pick(30);
      for (int64_t i = 0; i < run && next < capacity; ++i) slots.push_back(next++);
      next += Pick(9);
    }
    if (Pick(2) == 0) std::shuffle(slots.begin(), slots.end(), random_);
    return slots;
  }

  cpu::Execution AnyExecution() {
    static cpu::ThreadPool three(3);
    const auto best = static_cast<uint32_t>(cpu::BestIsa());
    return {.threads = Pick(2) == 0 ? &three : nullptr,
            .isa = static_cast<cpu::Isa>(Pick(best + 1))};
  }

  // Sequences with tables of distinct slots, followed by -1.
  struct Sequences {
    std::vector<int32_t> starts = {0};
    std::vector<int32_t> first_positions;
    std::vector<int32_t> tables;
    uint64_t stride = 0;

    int64_t TokenSlot(uint32_t tokens_per_block, size_t sequence, int64_t position) const {
      const int64_t block = position / tokens_per_block;
      return int64_t{tables[sequence * stride + static_cast<uint64_t>(block)]} * tokens_per_block +
             position % tokens_per_block;
    }
  };
  Sequences AnySequences(bool from_zero) {
    Sequences s;
    s.stride = 1 + Pick(6);
    std::vector<int32_t> free(kv_.num_slots);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random_);
    while (!free.empty()) {
      const uint64_t blocks =
          std::min<uint64_t>(Pick(static_cast<uint32_t>(s.stride) + 1), free.size());
      const auto room = static_cast<uint32_t>(blocks * kv_.tokens_per_block);
      const uint32_t first = from_zero || room == 0 ? 0 : Pick(room);
      const uint32_t tokens = room == first ? 0 : Pick(room - first + 1);
      s.first_positions.push_back(static_cast<int32_t>(first));
      s.starts.push_back(s.starts.back() + static_cast<int32_t>(tokens));
      for (uint64_t i = 0; i < s.stride; ++i) {
        // Entries that hold no position of the call are not read.
        const bool used = tokens > 0 && i >= first / kv_.tokens_per_block &&
                          i <= (first + tokens - 1) / kv_.tokens_per_block;
        s.tables.push_back(used ? free.back() : -1);
        if (i < blocks) free.pop_back();
      }
    }
    return s;
  }

  std::string Describe() const {
    std::ostringstream text;
    text << "type " << static_cast<int>(kv_.type) << ", slots " << kv_.num_slots << ", heads "
         << kv_.num_kv_heads << ", tokens " << kv_.tokens_per_block << ", dim " << kv_.head_dim
         << "/" << kv_.value_dim << ", parts " << parts_;
    return text.str();
  }

 private:
  static void Point(KvLayer& kv, std::vector<std::byte>& pool, uint32_t parts) {
    kv.keys = pool.data();
    kv.values = parts == 0   ? nullptr
                : parts == 1 ? pool.data()
                             : pool.data() + kv.slot_stride_bytes / 2;
  }

  std::mt19937 random_;
  KvLayer kv_;
  uint32_t parts_ = 0;
  bool has_values_ = false;
  std::vector<std::byte> pool_;
  std::vector<float> scales_;
  std::vector<std::byte> keys_;
  std::vector<std::byte> values_;
};

constexpr uint32_t kSeeds = 300;

TEST(CachePropertyTest, AWriteIsTheModelsAndNothingElseChanges) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed);
    const std::vector<int64_t> slots = world.TokenSlots();
    const CacheRows rows = world.Rows(slots.size());
    std::vector<std::byte> expected = world.pool();
    const KvLayer model = world.In(expected);
    for (size_t n = 0; n < slots.size(); ++n) {
      if (slots[n] >= 0) ModelWrite(rows, n, model, slots[n]);
    }
    const absl::Status status = cpu::WriteCache(
        {.rows = rows, .token_slots = slots, .kv = world.kv()}, world.AnyExecution());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(world.pool() == expected) << "seed " << seed << ": " << world.Describe();
  }
}

TEST(CachePropertyTest, AFillIsTheModelsAndNothingElseChanges) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed);
    const World::Sequences s = world.AnySequences(/*from_zero=*/false);
    const CacheRows rows = world.Rows(static_cast<uint64_t>(s.starts.back()));
    std::vector<std::byte> expected = world.pool();
    const KvLayer model = world.In(expected);
    for (size_t i = 0; i < s.first_positions.size(); ++i) {
      for (int32_t row = s.starts[i]; row < s.starts[i + 1]; ++row) {
        const int64_t position = s.first_positions[i] + row - s.starts[i];
        ModelWrite(rows, static_cast<uint64_t>(row), model,
                   s.TokenSlot(model.tokens_per_block, i, position));
      }
    }
    const absl::Status status = cpu::FillCache({.rows = rows,
                                                .starts = s.starts,
                                                .first_positions = s.first_positions,
                                                .block_tables = s.tables,
                                                .block_table_stride = s.stride,
                                                .kv = world.kv()},
                                               world.AnyExecution());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(world.pool() == expected) << "seed " << seed << ": " << world.Describe();
  }
}

TEST(CachePropertyTest, AGatherIsTheModels) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed);
    const KvLayer& kv = world.kv();
    // Numbers of the pool's type. Random bits would sometimes be NaN, whose bits may differ.
    std::mt19937 random(seed);
    const std::vector<std::byte> numbers =
        RandomElements(kv.type, world.pool().size() / ElementBytes(kv.type), random);
    std::copy(numbers.begin(), numbers.end(), world.pool().begin());
    const World::Sequences s = world.AnySequences(/*from_zero=*/true);
    const auto tokens = static_cast<uint64_t>(s.starts.back());
    const ElementType type = kRowTypes[world.Pick(3)];
    const uint64_t key_row = uint64_t{kv.num_kv_heads} * kv.head_dim * ElementBytes(type);
    const uint64_t value_row = uint64_t{kv.num_kv_heads} * kv.value_elements() * ElementBytes(type);
    constexpr std::byte kUntouched{0x77};
    std::vector<std::byte> keys((tokens + 1) * key_row, kUntouched), expected_keys = keys;
    std::vector<std::byte> values((tokens + 1) * value_row, kUntouched), expected_values = values;
    const bool want_keys = kv.values == nullptr || world.Pick(4) > 0;
    const bool want_values = kv.values != nullptr && (!want_keys || world.Pick(4) > 0);
    for (size_t i = 0; i + 1 < s.starts.size(); ++i) {
      for (int32_t row = s.starts[i]; row < s.starts[i + 1]; ++row) {
        const int64_t slot = s.TokenSlot(kv.tokens_per_block, i, row - s.starts[i]);
        const auto r = static_cast<uint64_t>(row);
        if (want_keys) {
          ModelGather(kv, kv.keys, kv.head_dim, kv.scales.keys, slot, type,
                      expected_keys.data() + r * key_row);
        }
        if (want_values) {
          ModelGather(kv, kv.values, kv.value_elements(), kv.scales.values, slot, type,
                      expected_values.data() + r * value_row);
        }
      }
    }
    const absl::Status status = cpu::GatherCache({.keys = want_keys ? keys.data() : nullptr,
                                                  .values = want_values ? values.data() : nullptr,
                                                  .type = type,
                                                  .starts = s.starts,
                                                  .block_tables = s.tables,
                                                  .block_table_stride = s.stride,
                                                  .kv = kv},
                                                 world.AnyExecution());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(keys == expected_keys) << "seed " << seed << ": " << world.Describe();
    ASSERT_TRUE(values == expected_values) << "seed " << seed << ": " << world.Describe();
  }
}

}  // namespace
}  // namespace pagoda::kernels
