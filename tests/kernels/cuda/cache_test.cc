// The GPU's cache writes, reads and block copies, compared with the same on plain host memory.
#include "kernels/cuda/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cache/cache.h"
#include "kernels/cuda/copy.h"
#include "kernels/numeric.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::kernels::cuda {
namespace {

using ::testing::HasSubstr;

class CudaCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

struct CacheShape {
  ElementType rows = ElementType::kBFloat16;
  ElementType pool = ElementType::kBFloat16;
  uint32_t heads = 3;
  uint32_t dim = 64;
  uint32_t value_dim = 64;  // The elements of values, which have the keys' strides.
  bool scales = false;
};

constexpr uint32_t kBlock = 8;
constexpr uint32_t kSlots = 10;

void Store(ElementType type, std::byte* at, float value) {
  VisitElementType(type, [&]<class T>() {
    const T element = FromFloat<T>(value);
    std::memcpy(at, &element, sizeof(element));
  });
}
float Load(ElementType type, const std::byte* at) {
  return VisitElementType(type, [&]<class T>() {
    T element;
    std::memcpy(&element, at, sizeof(element));
    return ToFloat(element);
  });
}

// Rows with every kind of number: large ones that saturate, subnormals, zeros.
class CacheData {
 public:
  CacheData(const CacheShape& shape, uint32_t num_tokens) : shape_(shape), num_tokens_(num_tokens) {
    std::mt19937 random(num_tokens);
    std::normal_distribution<float> normal;
    const uint64_t row_bytes = ElementBytes(shape.rows);
    for (int part = 0; part < 2; ++part) {
      rows_[part].resize(uint64_t{num_tokens} * row_elements(part) * row_bytes);
      for (uint64_t i = 0; i < uint64_t{num_tokens} * row_elements(part); ++i) {
        float value = normal(random);
        if (random() % 16 == 0) value *= 1e4f;
        if (random() % 16 == 0) value *= 1e-5f;
        if (random() % 32 == 0) value = 0;
        std::byte* element = rows_[part].data() + i * row_bytes;
        Store(shape.rows, element, value);
        // A signalling NaN: a conversion would make it quiet, a copy keeps its bits.
        if (shape.rows == shape.pool && random() % 64 == 0) {
          std::memset(element, 0xff, row_bytes);
          const bool half = shape.rows == ElementType::kFloat16;
          element[row_bytes - 2] = half ? std::byte{0x01} : std::byte{0x81};
          element[row_bytes - 1] = half ? std::byte{0x7d} : std::byte{0x7f};
        }
      }
    }
    for (uint32_t h = 0; h < shape.heads; ++h) scales_.push_back(0.5f + 0.37f * h);
    kv_.type = shape.pool;
    kv_.num_slots = kSlots;
    kv_.num_kv_heads = shape.heads;
    kv_.tokens_per_block = kBlock;
    kv_.head_dim = shape.dim;
    kv_.value_dim = shape.value_dim;
    kv_.token_stride_bytes = shape.dim * ElementBytes(shape.pool);
    kv_.head_stride_bytes = kv_.token_stride_bytes * kBlock;
    kv_.slot_stride_bytes = 2 * kv_.head_stride_bytes * shape.heads;
    pool_.assign(kv_.slot_stride_bytes * kSlots, std::byte{0xff});
  }

  uint32_t dim(int part) const { return part == 0 ? shape_.dim : shape_.value_dim; }
  uint64_t row_elements(int part) const { return uint64_t{shape_.heads} * dim(part); }
  uint64_t values_offset() const { return kv_.head_stride_bytes * shape_.heads; }
  const std::vector<std::byte>& rows(int part) const { return rows_[part]; }
  const std::vector<float>& scales() const { return scales_; }
  const KvLayer& kv() const { return kv_; }
  std::vector<std::byte>& pool() { return pool_; }

  // The position of a token slot's element in the pool.
  uint64_t PoolOffset(int part, int64_t token_slot, uint32_t head, uint32_t i) const {
    return (part == 1 ? values_offset() : 0) +
           kv_.offset_bytes(static_cast<uint32_t>(token_slot / kBlock), head,
                            static_cast<uint32_t>(token_slot % kBlock)) +
           i * ElementBytes(shape_.pool);
  }
  // Applies a write of token n to the token slot to the model's pool.
  void Expect(uint32_t n, int64_t token_slot) {
    for (int part = 0; part < 2; ++part) {
      for (uint32_t h = 0; h < shape_.heads; ++h) {
        for (uint32_t i = 0; i < dim(part); ++i) {
          const std::byte* element =
              rows_[part].data() +
              (n * row_elements(part) + h * dim(part) + i) * ElementBytes(shape_.rows);
          std::byte* target = pool_.data() + PoolOffset(part, token_slot, h, i);
          if (shape_.rows == shape_.pool) {
            std::memcpy(target, element, ElementBytes(shape_.rows));
          } else {
            Store(shape_.pool, target,
                  Load(shape_.rows, element) / (shape_.scales ? scales_[h] : 1.0f));
          }
        }
      }
    }
  }

 private:
  CacheShape shape_;
  uint32_t num_tokens_;
  std::vector<std::byte> rows_[2];
  std::vector<float> scales_;
  KvLayer kv_;
  std::vector<std::byte> pool_;
};

KvLayer OnDevice(const CacheData& data, const CacheShape& shape, std::byte* pool,
                 const float* scales) {
  KvLayer kv = data.kv();
  kv.keys = pool;
  kv.values = pool + data.values_offset();
  if (shape.scales) kv.scales = {.keys = scales, .values = scales, .per_head = true};
  return kv;
}

std::vector<CacheShape> Shapes() {
  std::vector<CacheShape> shapes;
  for (const int rows : {0, 1, 2}) {
    for (const int pool : {0, 1, 2, 3, 4}) {
      for (const uint32_t dim : {64u, 20u}) {
        shapes.push_back({.rows = static_cast<ElementType>(rows),
                          .pool = static_cast<ElementType>(pool),
                          .dim = dim,
                          .value_dim = dim,
                          .scales = pool >= 3 && dim == 64});
      }
      // Separate values, shorter than keys: once in whole vectors, once not.
      for (const uint32_t value_dim : {40u, 20u}) {
        shapes.push_back({.rows = static_cast<ElementType>(rows),
                          .pool = static_cast<ElementType>(pool),
                          .value_dim = value_dim});
      }
    }
  }
  return shapes;
}

TEST_F(CudaCacheTest, WritesByTokenSlots) {
  const std::vector<int64_t> token_slots = {5, -1, 79, 0, 33, -7, 8, 7};
  for (const CacheShape& shape : Shapes()) {
    CacheData data(shape, 8);
    DeviceArray<std::byte> pool(data.pool());
    DeviceArray<std::byte> keys(data.rows(0));
    DeviceArray<std::byte> values(data.rows(1));
    DeviceArray<float> scales(data.scales());
    DeviceArray<int64_t> slots(token_slots);
    ASSERT_TRUE(WriteCache({.rows = {.keys = keys.data(),
                                     .values = values.data(),
                                     .type = shape.rows,
                                     .key_token_stride = data.row_elements(0),
                                     .value_token_stride = data.row_elements(1)},
                            .token_slots = slots.span(),
                            .kv = OnDevice(data, shape, pool.data(), scales.data())},
                           nullptr)
                    .ok());
    FinishDevice();
    for (uint32_t n = 0; n < token_slots.size(); ++n) {
      if (token_slots[n] >= 0) data.Expect(n, token_slots[n]);
    }
    EXPECT_TRUE(pool.Get() == data.pool())
        << "rows " << int(shape.rows) << " pool " << int(shape.pool) << " dim " << shape.dim << " "
        << shape.value_dim;
  }
}

// A pool whose slots have scales, on the host and on the device. Its blocks fill by chunks.
class ScaledSlots {
 public:
  struct Kind {
    ElementType type;
    bool latent;
    bool per_head;
  };

  explicit ScaledSlots(const Kind& kind)
      : kind_(kind), data_({.rows = ElementType::kFloat32, .pool = kind.type, .dim = kDim}, 1) {}

  // Writes a chunk of tokens with numbers of many sizes, on both sides. False: all are written, or
  // a write failed.
  bool WriteNext(std::mt19937& random, std::normal_distribution<float>& normal);
  // The scales and the pool are those of the CPU's kernels, to the bit.
  void ExpectSame() const;

 private:
  static constexpr uint32_t kHeads = 3;
  static constexpr uint32_t kDim = 20;
  static constexpr uint64_t kRow = kHeads * kDim;

  std::vector<int64_t> NextTokenSlots(std::mt19937& random);
  KvLayer Layer(std::byte* pool, const float* scales) const;
  CacheWriteParams Params(const KvLayer& kv, const float* keys, const float* values,
                          absl::Span<const int64_t> token_slots) const {
    return {.rows = {.keys = keys,
                     .values = kind_.latent ? nullptr : values,
                     .key_token_stride = kRow,
                     .value_token_stride = kRow},
            .token_slots = token_slots,
            .kv = kv};
  }

  const Kind kind_;
  CacheData data_;
  std::vector<std::byte> pool_ = data_.pool();
  std::vector<float> scales_ = std::vector<float>(kSlots * 2 * kHeads, std::nanf(""));
  const DeviceArray<std::byte> device_pool_{pool_};
  const DeviceArray<float> device_scales_{scales_};
  int64_t done_ = 0;  // Tokens.
};

// Blocks 7, 2 and 4 in steps of 1 to 6 tokens, and block 9 next to them. The last one is outside:
// only the device skips it.
std::vector<int64_t> ScaledSlots::NextTokenSlots(std::mt19937& random) {
  constexpr int64_t kBlocks[] = {7, 2, 4};
  std::vector<int64_t> token_slots = {-1};
  for (uint32_t left = 1 + random() % 6; left > 0 && done_ < 3 * kBlock; --left, ++done_) {
    token_slots.push_back(kBlocks[done_ / kBlock] * kBlock + done_ % kBlock);
  }
  if (done_ % 3 == 0) token_slots.push_back(9 * kBlock);
  token_slots.push_back(kSlots * kBlock + 3);
  return token_slots;
}

KvLayer ScaledSlots::Layer(std::byte* pool, const float* scales) const {
  KvLayer kv = data_.kv();
  kv.value_dim = kind_.latent ? 12 : kDim;
  kv.keys = pool;
  kv.values = kind_.latent ? pool : pool + data_.values_offset();
  kv.scales = {.keys = scales,
               .values = kind_.latent ? scales : scales + kHeads,
               .per_head = kind_.per_head,
               .slot_stride = 2 * kHeads};
  return kv;
}

bool ScaledSlots::WriteNext(std::mt19937& random, std::normal_distribution<float>& normal) {
  if (done_ >= 3 * kBlock) return false;
  const std::vector<int64_t> token_slots = NextTokenSlots(random);
  std::vector<float> keys, values;
  for (uint64_t n = 0; n < token_slots.size(); ++n) {
    const float size = std::exp2(static_cast<float>(random() % 24) - 12.0f);
    for (uint64_t i = 0; i < kRow; ++i) keys.push_back(size * normal(random));
    for (uint64_t i = 0; i < kRow; ++i) values.push_back(normal(random) / size);
    if (random() % 4 == 0) keys.back() = std::nanf("");
  }
  const CacheWriteParams on_host =
      Params(Layer(pool_.data(), scales_.data()), keys.data(), values.data(),
             absl::MakeConstSpan(token_slots).first(token_slots.size() - 1));
  EXPECT_TRUE(cpu::FitScales(on_host).ok());
  EXPECT_TRUE(cpu::WriteCache(on_host).ok());
  DeviceArray<float> device_keys(keys);
  DeviceArray<float> device_values(values);
  DeviceArray<int64_t> slots(token_slots);
  const CacheWriteParams on_device = Params(Layer(device_pool_.data(), device_scales_.data()),
                                            device_keys.data(), device_values.data(), slots.span());
  EXPECT_TRUE(FitScales(on_device, nullptr).ok());
  EXPECT_TRUE(WriteCache(on_device, nullptr).ok());
  FinishDevice();
  return !testing::Test::HasFailure();
}

void ScaledSlots::ExpectSame() const {
  EXPECT_TRUE(device_pool_.Get() == pool_);
  const std::vector<float> fitted = device_scales_.Get();
  for (size_t i = 0; i < fitted.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(fitted[i]), std::bit_cast<uint32_t>(scales_[i]));
  }
}

// Sequences grow by chunks, so that scales are set and raised.
TEST_F(CudaCacheTest, FitsTheScalesOfSlots) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const ElementType type : {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2}) {
    for (const bool latent : {false, true}) {
      for (const bool per_head : {true, false}) {
        ScaledSlots slots({.type = type, .latent = latent, .per_head = per_head});
        while (slots.WriteNext(random, normal)) {
        }
        slots.ExpectSame();
      }
    }
  }
}

// Sequences of 0, 11, 1, 0 and 5 new tokens from the positions 0, 3, 15, 0 and 0 on.
const std::vector<int32_t> kFillStarts = {0, 0, 11, 12, 12, 17};
const std::vector<int32_t> kFillFirst = {0, 3, 15, 0, 0};
const std::vector<int32_t> kFillTables = {-1, -1, 4, 9, 1, 0, -1, -1, 7, -1};

int64_t FilledTokenSlot(size_t s, int32_t position) {
  return int64_t{kFillTables[2 * s + position / kBlock]} * kBlock + position % kBlock;
}

// Fills the device's pool and the model's with the tokens of all sequences.
void FillByTables(const CacheShape& shape, CacheData& data, const KvLayer& kv) {
  DeviceArray<std::byte> keys(data.rows(0));
  DeviceArray<std::byte> values(data.rows(1));
  DeviceArray<int32_t> starts(kFillStarts);
  DeviceArray<int32_t> first(kFillFirst);
  DeviceArray<int32_t> tables(kFillTables);
  ASSERT_TRUE(FillCache({.rows = {.keys = keys.data(),
                                  .values = values.data(),
                                  .type = shape.rows,
                                  .key_token_stride = data.row_elements(0),
                                  .value_token_stride = data.row_elements(1)},
                         .starts = starts.span(),
                         .first_positions = first.span(),
                         .block_tables = tables.span(),
                         .block_table_stride = 2,
                         .kv = kv},
                        17, nullptr)
                  .ok());
  FinishDevice();
  for (size_t s = 0; s < kFillFirst.size(); ++s) {
    for (int32_t n = kFillStarts[s]; n < kFillStarts[s + 1]; ++n) {
      data.Expect(n, FilledTokenSlot(s, kFillFirst[s] + n - kFillStarts[s]));
    }
  }
}

// Gathers the values of the last sequence, and expects them as the model's pool has them.
void ExpectGathered(const CacheShape& shape, CacheData& data, const KvLayer& kv) {
  const std::vector<int32_t> gathered = {0, 0, 0, 0, 0, 5};
  DeviceArray<int32_t> starts(gathered);
  DeviceArray<int32_t> tables(kFillTables);
  DeviceArray<std::byte> out(5 * data.row_elements(1) * ElementBytes(shape.rows));
  ASSERT_TRUE(GatherCache({.keys = nullptr,
                           .values = out.data(),
                           .type = shape.rows,
                           .starts = starts.span(),
                           .block_tables = tables.span(),
                           .block_table_stride = 2,
                           .kv = kv},
                          5, nullptr)
                  .ok());
  FinishDevice();
  const std::vector<std::byte> rows = out.Get();
  for (uint32_t t = 0; t < 5; ++t) {
    for (uint32_t e = 0; e < data.row_elements(1); ++e) {
      const uint32_t head = e / shape.value_dim;
      const std::byte* stored =
          data.pool().data() + data.PoolOffset(1, FilledTokenSlot(4, static_cast<int32_t>(t)), head,
                                               e % shape.value_dim);
      const float scale = shape.scales ? data.scales()[head] : 1.0f;
      std::byte expected[4];
      Store(shape.rows, expected, Load(shape.pool, stored) * scale);
      if (shape.rows == shape.pool) std::memcpy(expected, stored, ElementBytes(shape.rows));
      const std::byte* got =
          rows.data() + (t * data.row_elements(1) + e) * ElementBytes(shape.rows);
      ASSERT_EQ(std::memcmp(got, expected, ElementBytes(shape.rows)), 0) << t << " " << e;
    }
  }
}

TEST_F(CudaCacheTest, FillsByTablesAndGathersThemBack) {
  for (const CacheShape& shape : Shapes()) {
    SCOPED_TRACE(testing::Message() << "rows " << int(shape.rows) << " pool " << int(shape.pool)
                                    << " dim " << shape.dim << " " << shape.value_dim);
    CacheData data(shape, 17);
    DeviceArray<std::byte> pool(data.pool());
    DeviceArray<float> scales(data.scales());
    const KvLayer kv = OnDevice(data, shape, pool.data(), scales.data());
    ASSERT_NO_FATAL_FAILURE(FillByTables(shape, data, kv));
    EXPECT_TRUE(pool.Get() == data.pool());
    ASSERT_NO_FATAL_FAILURE(ExpectGathered(shape, data, kv));
  }
}

TEST_F(CudaCacheTest, CopiesBlocksAndTheirFirstTokens) {
  for (const uint64_t token_bytes : {32u, 12u, 5u}) {
    // 6 runs of 8 tokens, in slots with some unused bytes.
    const TokenRuns runs = {
        .num_runs = 6, .run_bytes = 8 * token_bytes, .token_bytes = token_bytes};
    const uint64_t slot_bytes = runs.num_runs * runs.run_bytes + 4 * token_bytes;
    std::vector<std::byte> host(slot_bytes * kSlots);
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i * 7 + i / 251);
    const std::vector<SlotCopy> pairs = {{1, 4}, {9, 0}, {1, 6}};
    DeviceArray<SlotCopy> copies(pairs);
    for (const bool whole : {true, false}) {
      DeviceArray<std::byte> pool(host);
      const BlockCopyParams params = {.source = pool.data(),
                                      .target = pool.data(),
                                      .source_slots = kSlots,
                                      .target_slots = kSlots,
                                      .slot_bytes = slot_bytes,
                                      .copies = copies.span()};
      ASSERT_TRUE(
          (whole ? CopyBlocks(params, nullptr) : CopyBlockTokens(params, runs, 3, nullptr)).ok());
      FinishDevice();
      std::vector<std::byte> expected = host;
      for (const SlotCopy& copy : pairs) {
        const auto from = host.begin() + copy.source * slot_bytes;
        const auto to = expected.begin() + copy.target * slot_bytes;
        if (whole) {
          std::copy_n(from, slot_bytes, to);
          continue;
        }
        for (uint64_t r = 0; r < runs.num_runs; ++r) {
          std::copy_n(from + r * runs.run_bytes, 3 * token_bytes, to + r * runs.run_bytes);
        }
      }
      EXPECT_TRUE(pool.Get() == expected) << token_bytes << " " << whole;
    }
  }
}

TEST_F(CudaCacheTest, CopiesLargeBlocks) {
  constexpr uint64_t kSlotBytes = 100'000;  // A slot of several pieces, the last of which is short.
  std::vector<std::byte> host(kSlotBytes * 4);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i * 31 + i / 255);
  DeviceArray<std::byte> source(host);
  DeviceArray<std::byte> target(std::vector<std::byte>(host.size()));
  DeviceArray<SlotCopy> copies(std::vector<SlotCopy>{{3, 0}, {0, 2}});
  ASSERT_TRUE(CopyBlocks({.source = source.data(),
                          .target = target.data(),
                          .source_slots = 4,
                          .target_slots = 4,
                          .slot_bytes = kSlotBytes,
                          .copies = copies.span()},
                         nullptr)
                  .ok());
  FinishDevice();
  std::vector<std::byte> expected(host.size());
  std::copy_n(host.begin() + 3 * kSlotBytes, kSlotBytes, expected.begin());
  std::copy_n(host.begin(), kSlotBytes, expected.begin() + 2 * kSlotBytes);
  EXPECT_TRUE(target.Get() == expected);
}

TEST_F(CudaCacheTest, CopiesAcrossTiersAndBack) {
  constexpr uint64_t kSlotBytes = 4096;
  std::vector<std::byte> host(kSlotBytes * 12);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i * 13 + i / 253);
  std::vector<std::byte> back(host.size());
  DeviceArray<std::byte> device(std::vector<std::byte>(host.size()));
  // Neighbours, in order and out of it, and single ones.
  const std::vector<SlotCopy> down = {{3, 7}, {2, 6}, {4, 8}, {9, 1}, {0, 11}, {11, 0}};
  std::vector<SlotCopy> up;
  for (const SlotCopy& copy : down) up.push_back({copy.target, copy.source});
  BlockCopyParams params = {.source = host.data(),
                            .target = device.data(),
                            .source_slots = 12,
                            .target_slots = 12,
                            .slot_bytes = kSlotBytes,
                            .copies = down};
  ASSERT_TRUE(CopyBlocksAcross(params, nullptr).ok());
  FinishDevice();
  params.source = device.data();
  params.target = back.data();
  params.copies = up;
  ASSERT_TRUE(CopyBlocksAcross(params, nullptr).ok());
  FinishDevice();
  for (const SlotCopy& copy : down) {
    EXPECT_EQ(std::memcmp(back.data() + copy.source * kSlotBytes,
                          host.data() + copy.source * kSlotBytes, kSlotBytes),
              0);
  }
  for (const std::vector<SlotCopy>& wrong :
       std::vector<std::vector<SlotCopy>>{{{12, 0}}, {{0, 12}}, {{0, 3}, {1, 3}}}) {
    params.copies = wrong;
    EXPECT_EQ(CopyBlocksAcross(params, nullptr).code(), absl::StatusCode::kInvalidArgument);
  }
}

// These functions refuse the same pointers and shapes as the calls on the host.
TEST_F(CudaCacheTest, RefusesWhatTheHostsChecksRefuse) {
  const CacheShape shape;
  CacheData data(shape, 1);
  DeviceArray<std::byte> pool(data.pool());
  DeviceArray<std::byte> rows(data.rows(0));
  DeviceArray<int32_t> starts(std::vector<int32_t>{0, 1});
  DeviceArray<int32_t> tables(std::vector<int32_t>{0, 1});
  const auto refused = [](const absl::Status& status, const char* name) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  const KvLayer kv = OnDevice(data, shape, pool.data(), nullptr);
  const CacheGatherParams gather = {.keys = rows.data(),
                                    .type = shape.rows,
                                    .starts = starts.span(),
                                    .block_tables = tables.span(),
                                    .block_table_stride = 2,
                                    .kv = kv};
  CacheGatherParams bad_gather = gather;
  bad_gather.keys = nullptr;
  refused(GatherCache(bad_gather, 1, nullptr), "keys and values are null");
  (bad_gather = gather).kv.scales = {.per_head = true, .slot_stride = 1};
  refused(GatherCache(bad_gather, 1, nullptr), "kv.scales.slot_stride is 1; a slot has 3 scales");
  (bad_gather = gather).keys = rows.data() + 1;
  refused(GatherCache(bad_gather, 1, nullptr), "keys");
  // A product of sequences and stride that wraps around.
  (bad_gather = gather).block_tables = {};
  bad_gather.starts = absl::Span<const int32_t>(starts.data(), 5);
  bad_gather.block_table_stride = uint64_t{1} << 62;
  refused(GatherCache(bad_gather, 1, nullptr), "block_tables");
  CacheFillParams fill = {.rows = {.keys = rows.data(),
                                   .values = rows.data(),
                                   .type = shape.rows,
                                   .key_token_stride = data.row_elements(0),
                                   .value_token_stride = data.row_elements(1)},
                          .starts = starts.span(),
                          .first_positions = starts.span().first(1),
                          .block_tables = tables.span(),
                          .block_table_stride = 1,
                          .kv = kv};
  refused(FillCache(fill, 1, nullptr), "block_tables");

  BlockCopyParams copy = {.source = pool.data(),
                          .target = pool.data() + 64,
                          .source_slots = 1,
                          .target_slots = 1,
                          .slot_bytes = 128};
  refused(CopyBlocks(copy, nullptr), "overlap");
  refused(CopyBlockTokens(copy, {.num_runs = 1, .run_bytes = 64, .token_bytes = 8}, 1, nullptr),
          "overlap");
  refused(CopyBlocksAcross(copy, nullptr), "overlap");
  copy.target = pool.data();
  refused(CopyBlockTokens(copy, {.num_runs = 1, .run_bytes = 64, .token_bytes = 8}, 9, nullptr),
          "num_tokens is 9");
}

}  // namespace
}  // namespace pagoda::kernels::cuda
