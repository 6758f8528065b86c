// The fused kernels compared with plain loops in fp64, in each type of their outputs.
#include "engine/model/cuda/kernels/fused_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/numeric.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;
using kernels::cuda::DeviceArray;
using kernels::cuda::FinishDevice;

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                  ElementType::kBFloat16};
constexpr std::byte kUntouched{0xff};

// By 4 elements at a time and by 1; one run of a block's threads, and several.
struct Shape {
  uint64_t rows;
  uint64_t cols;
  uint64_t stride;
};
const Shape kShapes[] = {{1, 4, 4}, {3, 64, 72}, {2, 2056, 2064}, {5, 33, 33}, {4, 130, 131}};

std::vector<float> Numbers(uint64_t size, float range, std::mt19937& random) {
  std::uniform_real_distribution<float> numbers(-range, range);
  std::vector<float> values(size);
  for (float& value : values) value = numbers(random);
  return values;
}

// Rows of a type in device memory, of bytes that are no number.
class TypedRows {
 public:
  TypedRows(ElementType type, uint64_t rows, uint64_t cols, uint64_t stride)
      : type_(type),
        memory_(std::vector<std::byte>(rows * stride * kernels::ElementBytes(type), kUntouched)),
        view_({.data = reinterpret_cast<float*>(memory_.data()),
               .stride = stride,
               .rows = rows,
               .cols = cols,
               .type = type}) {}

  const RowsView& view() const { return view_; }

  // Whether each number is the expected one: to 2e-6, and to the type's rounding.
  template <class Expected>
  void Expect(const Expected& expected) const {
    FinishDevice();
    const std::vector<std::byte> bytes = memory_.Get();
    const double rounding = type_ == ElementType::kFloat32   ? 0
                            : type_ == ElementType::kFloat16 ? 0x1p-11
                                                             : 0x1p-8;
    kernels::VisitElementType(type_, [&]<class T>() {
      for (uint64_t i = 0; i < view_.rows * view_.stride; ++i) {
        const std::byte* const at = bytes.data() + i * sizeof(T);
        const uint64_t col = i % view_.stride;
        if (col >= view_.cols) {
          ASSERT_TRUE(std::all_of(at, at + sizeof(T), [](auto b) { return b == kUntouched; }));
          continue;
        }
        T element;
        std::memcpy(&element, at, sizeof(T));
        const double wanted = expected(i / view_.stride, col);
        ASSERT_NEAR(kernels::ToFloat(element), wanted,
                    2e-6 * (1 + std::abs(wanted)) + rounding * std::abs(wanted))
            << "row " << i / view_.stride << ", " << col;
      }
    });
  }

 private:
  const ElementType type_;
  const DeviceArray<std::byte> memory_;
  const RowsView view_;
};

class AddNormTest : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AddNormTest, testing::ValuesIn(kShapes), [](const auto& shape) {
  return std::to_string(shape.param.rows) + "x" + std::to_string(shape.param.cols);
});

void Norm(std::vector<double>& row, const std::vector<float>& weights, double eps) {
  double squares = 0;
  for (const double number : row) squares += number * number;
  const double root = std::sqrt(squares / static_cast<double>(row.size()) + eps);
  for (size_t c = 0; c < row.size(); ++c) row[c] *= weights[c] / root;
}

TEST_P(AddNormTest, AddsAndNormsAlsoANormedAddend) {
  const auto& [rows, cols, stride] = GetParam();
  std::mt19937 random(static_cast<uint32_t>(cols));
  const std::vector<float> addend = Numbers(rows * stride, 3, random);
  const std::vector<float> before = Numbers(rows * stride, 3, random);
  const std::vector<float> weights = Numbers(cols, 2, random);
  const std::vector<float> addend_weights = Numbers(cols, 2, random);
  const DeviceArray<float> device_addend(addend), device_weights(weights),
      device_addend_weights(addend_weights);
  for (uint32_t schedule = 0; schedule < 2; ++schedule) {
    kernels::cuda::ShuffleSchedule(schedule);
    for (const ElementType type : kTypes) {
      for (float* const addend_norm :
           {static_cast<float*>(nullptr), device_addend_weights.data()}) {
        const DeviceArray<float> sum(before);
        const TypedRows output(type, rows, cols, stride);
        const auto view = [&](const DeviceArray<float>& memory) {
          return RowsView{.data = memory.data(), .stride = stride, .rows = rows, .cols = cols};
        };
        ASSERT_EQ(LaunchAddNorm({.addend_norm = addend_norm,
                                 .addend_eps = 0.5f,
                                 .norm = device_weights.data(),
                                 .eps = 0.25f,
                                 .addend = view(device_addend),
                                 .sum = view(sum),
                                 .output = output.view()},
                                nullptr),
                  0);
        FinishDevice();
        const std::vector<float> now = sum.Get();
        std::vector<std::vector<double>> normed;
        for (uint64_t r = 0; r < rows; ++r) {
          const auto from = addend.begin() + static_cast<ptrdiff_t>(r * stride);
          std::vector<double> row(from, from + static_cast<ptrdiff_t>(cols));
          if (addend_norm != nullptr) Norm(row, addend_weights, 0.5);
          for (uint64_t c = 0; c < cols; ++c) {
            row[c] += before[r * stride + c];
            ASSERT_NEAR(now[r * stride + c], row[c], 2e-6 * (1 + std::abs(row[c])));
          }
          Norm(row, weights, 0.25);
          normed.push_back(row);
        }
        output.Expect([&](uint64_t r, uint64_t c) { return normed[r][c]; });
      }
    }
  }
  kernels::cuda::ShuffleSchedule(0);
}

struct HeadsCase {
  uint32_t head_dim;
  uint32_t first_element;
  uint32_t half_dim;  // 0: no rotation.
  bool neighbours;
  bool normed;
};

// Whole heads, pairs of neighbours, some elements of a head, and no rotation.
const HeadsCase kHeads[] = {{64, 0, 32, false, true},
                            {64, 0, 32, true, false},
                            {48, 4, 18, false, true},
                            {32, 0, 0, false, false}};

class PlaceHeadsTest : public testing::TestWithParam<HeadsCase> {};
INSTANTIATE_TEST_SUITE_P(Heads, PlaceHeadsTest, testing::ValuesIn(kHeads), [](const auto& heads) {
  return std::to_string(2 * heads.param.half_dim) + "of" + std::to_string(heads.param.head_dim) +
         (heads.param.neighbours ? "InNeighbours" : "");
});

// Rows of queries, keys and values, and what places them.
class HeadsToPlace {
 public:
  HeadsToPlace(const HeadsCase& heads, uint64_t tokens, uint64_t queries, uint64_t keys)
      : heads_(heads), tokens_(tokens), queries_(queries), keys_(keys) {}

  const std::vector<float>& input() const { return input_; }
  // What becomes of the element `i` of a head: queries come first, then keys, then values.
  double Placed(uint64_t token, uint64_t head, uint64_t i) const;
  // `rows` is a copy of the input in device memory.
  PlaceHeadsArgs Args(float* rows, const RowsView& placed, const int64_t* slots,
                      const kernels::KvLayer& kv) const;

 private:
  const HeadsCase heads_;
  const uint64_t tokens_, queries_, keys_;
  const uint64_t dim_ = heads_.head_dim, half_ = heads_.half_dim;
  const uint64_t cols_ = (queries_ + 2 * keys_) * dim_;
  std::mt19937 random_{heads_.head_dim + heads_.half_dim};
  const std::vector<float> input_ = Numbers(tokens_ * cols_, 3, random_);
  const std::vector<float> query_norm_ = Numbers(dim_, 2, random_);
  const std::vector<float> key_norm_ = Numbers(dim_, 2, random_);
  const std::vector<float> cosines_ = Numbers(tokens_ * half_ + 1, 1, random_);
  const std::vector<float> sines_ = Numbers(tokens_ * half_ + 1, 1, random_);
  const DeviceArray<float> device_query_norm_{query_norm_}, device_key_norm_{key_norm_};
  const DeviceArray<float> device_cosines_{cosines_}, device_sines_{sines_};
};

double HeadsToPlace::Placed(uint64_t token, uint64_t head, uint64_t i) const {
  const auto from = input_.begin() + static_cast<ptrdiff_t>(token * cols_ + head * dim_);
  std::vector<double> row(from, from + static_cast<ptrdiff_t>(dim_));
  if (head >= queries_ + keys_) return row[i];
  if (heads_.normed) Norm(row, head < queries_ ? query_norm_ : key_norm_, 0.25);
  if (i < heads_.first_element || i >= heads_.first_element + 2 * half_) return row[i];
  const uint64_t k = i - heads_.first_element;
  const uint64_t pair = heads_.neighbours ? k / 2 : k % half_;
  const uint64_t low = heads_.first_element + (heads_.neighbours ? 2 * pair : pair);
  const uint64_t high = low + (heads_.neighbours ? 1 : half_);
  const double cosine = cosines_[token * half_ + pair], sine = sines_[token * half_ + pair];
  return i == low ? row[low] * cosine - row[high] * sine : row[high] * cosine + row[low] * sine;
}

PlaceHeadsArgs HeadsToPlace::Args(float* rows, const RowsView& placed, const int64_t* slots,
                                  const kernels::KvLayer& kv) const {
  const RowsView all = {.data = rows, .stride = cols_, .rows = tokens_, .cols = cols_};
  return {.rotation = {.head_dim = heads_.head_dim,
                       .first_element = heads_.first_element,
                       .neighbours = heads_.neighbours},
          .angles = {.cosines = device_cosines_.data(),
                     .sines = device_sines_.data(),
                     .half_dim = heads_.half_dim},
          .query_norm = heads_.normed ? device_query_norm_.data() : nullptr,
          .key_norm = heads_.normed ? device_key_norm_.data() : nullptr,
          .eps = 0.25f,
          .queries = all.Columns(0, queries_ * dim_),
          .keys = all.Columns(queries_ * dim_, keys_ * dim_),
          .values = all.Columns((queries_ + keys_) * dim_, keys_ * dim_),
          .placed = placed,
          .token_slots = slots,
          .kv = kv};
}

// Expects the heads from `first_head` on, of K and then of V, in the place of the token, and leaves
// it as if it had never been written.
void ExpectAndForget(const HeadsToPlace& heads, uint64_t first_head, uint64_t token, int64_t place,
                     const kernels::KvLayer& kv, std::vector<std::byte>& pool) {
  kernels::VisitElementType(kv.type, [&]<class T>() {
    const uint64_t slot = static_cast<uint64_t>(place) / kv.tokens_per_block;
    const uint64_t in_slot = static_cast<uint64_t>(place) % kv.tokens_per_block;
    for (uint64_t i = 0; i < 2 * kv.num_kv_heads * kv.head_dim; ++i) {
      std::byte* const at = pool.data() + slot * kv.slot_stride_bytes +
                            i / kv.head_dim * kv.head_stride_bytes +
                            in_slot * kv.token_stride_bytes + i % kv.head_dim * sizeof(T);
      T element;
      std::memcpy(&element, at, sizeof(T));
      const double wanted = heads.Placed(token, first_head + i / kv.head_dim, i % kv.head_dim);
      const double rounding = sizeof(T) == 4 ? 0 : 0x1p-8;
      ASSERT_NEAR(kernels::ToFloat(element), wanted, (2e-6 + rounding) * (1 + std::abs(wanted)))
          << "token " << token << ", " << i;
      std::fill_n(at, sizeof(T), kUntouched);
    }
  });
}

TEST_P(PlaceHeadsTest, NormsRotatesAndWritesWhatBelongsToTokens) {
  constexpr uint64_t kTokens = 4, kQueries = 6, kKeys = 3, kBlock = 4, kSlots = 5;
  const uint64_t dim = GetParam().head_dim;
  const HeadsToPlace heads(GetParam(), kTokens, kQueries, kKeys);
  const DeviceArray<float> rows(heads.input());
  // In a block, padding, behind the pool, and the first place.
  const std::vector<int64_t> slots = {3 * kBlock + 2, -1, kSlots * kBlock, 0};
  const DeviceArray<int64_t> device_slots(slots);
  for (const ElementType type : kTypes) {
    const uint64_t head_bytes = kBlock * dim * kernels::ElementBytes(type);
    // A row of the pool is a block of a head; a slot has those of K, then those of V.
    const TypedRows pool(type, kSlots * 2 * kKeys, kBlock * dim, kBlock * dim);
    auto* const bytes = reinterpret_cast<std::byte*>(pool.view().data);
    const kernels::KvLayer kv = {.keys = bytes,
                                 .values = bytes + kKeys * head_bytes,
                                 .type = type,
                                 .num_slots = kSlots,
                                 .num_kv_heads = kKeys,
                                 .tokens_per_block = kBlock,
                                 .head_dim = GetParam().head_dim,
                                 .slot_stride_bytes = 2 * kKeys * head_bytes,
                                 .head_stride_bytes = head_bytes,
                                 .token_stride_bytes = dim * kernels::ElementBytes(type)};
    const TypedRows placed(type, kTokens, kQueries * dim, kQueries * dim + 8);
    ASSERT_EQ(
        LaunchPlaceHeads(heads.Args(rows.data(), placed.view(), device_slots.data(), kv), nullptr),
        0);
    placed.Expect(
        [&](uint64_t token, uint64_t c) { return heads.Placed(token, c / dim, c % dim); });
    FinishDevice();
    std::vector<std::byte> now(kSlots * kv.slot_stride_bytes);
    kernels::cuda::CopyFromDevice(now.data(), bytes, now.size());
    for (const size_t token : {size_t{0}, size_t{3}}) {
      ExpectAndForget(heads, kQueries, token, slots[token], kv, now);
    }
    EXPECT_TRUE(std::all_of(now.begin(), now.end(), [](auto b) { return b == kUntouched; }));
  }
}

// Without a pool, the queries leave their rows, the keys change in theirs, and the values stay.
TEST_P(PlaceHeadsTest, KeysStayInTheirRowsWithoutAPool) {
  constexpr uint64_t kTokens = 3, kQueries = 4, kKeys = 2;
  const uint64_t dim = GetParam().head_dim, cols = (kQueries + 2 * kKeys) * dim;
  const HeadsToPlace heads(GetParam(), kTokens, kQueries, kKeys);
  const std::vector<float>& input = heads.input();
  const DeviceArray<float> pool(2 * kTokens * kKeys * dim);
  std::vector<int64_t> places;
  for (int64_t token = 0; token < int64_t{kTokens}; ++token) places.push_back(token);
  const DeviceArray<int64_t> slots(places);
  // The same with a pool of fp32, which the test above compares with plain loops.
  const auto place = [&](const DeviceArray<float>& memory, const TypedRows& placed,
                         std::byte* keys) {
    const kernels::KvLayer kv = {
        .keys = keys,
        .values = keys == nullptr ? nullptr : keys + kTokens * kKeys * dim * sizeof(float),
        .num_slots = kTokens,
        .num_kv_heads = kKeys,
        .tokens_per_block = 1,
        .head_dim = GetParam().head_dim,
        .slot_stride_bytes = kKeys * dim * sizeof(float),
        .head_stride_bytes = dim * sizeof(float),
        .token_stride_bytes = dim * sizeof(float)};
    return LaunchPlaceHeads(heads.Args(memory.data(), placed.view(), slots.data(), kv), nullptr);
  };
  const DeviceArray<float> apart(input);
  const TypedRows exact(ElementType::kFloat32, kTokens, kQueries * dim, kQueries * dim);
  ASSERT_EQ(place(apart, exact, reinterpret_cast<std::byte*>(pool.data())), 0);
  FinishDevice();
  EXPECT_EQ(apart.Get(), input);
  const std::vector<float> written = pool.Get();
  std::vector<float> queries(kTokens * kQueries * dim);
  kernels::cuda::CopyFromDevice(queries.data(), exact.view().data, queries.size() * sizeof(float));

  const DeviceArray<float> in_rows(input);
  const TypedRows placed(ElementType::kBFloat16, kTokens, kQueries * dim, kQueries * dim + 8);
  ASSERT_EQ(place(in_rows, placed, nullptr), 0);
  placed.Expect([&](uint64_t token, uint64_t c) { return queries[token * kQueries * dim + c]; });
  std::vector<float> expected = input;
  for (uint64_t token = 0; token < kTokens; ++token) {
    const auto from = written.begin() + static_cast<ptrdiff_t>(token * kKeys * dim);
    std::copy(from, from + static_cast<ptrdiff_t>(kKeys * dim),
              expected.begin() + static_cast<ptrdiff_t>(token * cols + kQueries * dim));
  }
  EXPECT_EQ(in_rows.Get(), expected);
}

// In fp32, queries can be rotated in place.
TEST(PlaceHeadsInPlaceTest, QueriesCanBeRotatedWhereTheyAre) {
  constexpr uint64_t kDim = 8;
  std::mt19937 random(3);
  const std::vector<float> input = Numbers(3 * kDim, 3, random);
  const std::vector<float> norm = Numbers(kDim, 2, random);
  const std::vector<float> cosines = Numbers(kDim / 2, 1, random),
                           sines = Numbers(kDim / 2, 1, random);
  const DeviceArray<float> apart(input), in_place(input), target(kDim), pool(2 * kDim),
      device_norm(norm), device_cosines(cosines), device_sines(sines);
  const DeviceArray<int64_t> slots(std::vector<int64_t>{0});
  for (const auto* const memory : {&apart, &in_place}) {
    const RowsView all = {.data = memory->data(), .stride = 3 * kDim, .rows = 1, .cols = 3 * kDim};
    RowsView placed = all.Columns(0, kDim);
    if (memory == &apart) placed.data = target.data();
    auto* const bytes = reinterpret_cast<std::byte*>(pool.data());
    ASSERT_EQ(LaunchPlaceHeads({.rotation = {.head_dim = kDim},
                                .angles = {.cosines = device_cosines.data(),
                                           .sines = device_sines.data(),
                                           .half_dim = kDim / 2},
                                .query_norm = device_norm.data(),
                                .key_norm = device_norm.data(),
                                .queries = all.Columns(0, kDim),
                                .keys = all.Columns(kDim, kDim),
                                .values = all.Columns(2 * kDim, kDim),
                                .placed = placed,
                                .token_slots = slots.data(),
                                .kv = {.keys = bytes,
                                       .values = bytes + kDim * sizeof(float),
                                       .num_slots = 1,
                                       .num_kv_heads = 1,
                                       .tokens_per_block = 1,
                                       .head_dim = kDim,
                                       .slot_stride_bytes = 2 * kDim * sizeof(float),
                                       .head_stride_bytes = kDim * sizeof(float),
                                       .token_stride_bytes = kDim * sizeof(float)}},
                               nullptr),
              0);
  }
  FinishDevice();
  const std::vector<float> now = in_place.Get();
  EXPECT_EQ(std::vector<float>(now.begin(), now.begin() + kDim), target.Get());
  EXPECT_EQ(std::vector<float>(now.begin() + kDim, now.end()),
            std::vector<float>(input.begin() + kDim, input.end()));
}

}  // namespace
}  // namespace pagoda::cuda
