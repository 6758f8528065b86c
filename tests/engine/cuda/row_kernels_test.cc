// The small layers' kernels compared with plain loops in fp64, by 4 elements at a time and by 1.
#include "engine/model/cuda/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/numeric.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::FromFloat;
using kernels::Half;
using kernels::ToFloat;
using kernels::cuda::DeviceArray;
using kernels::cuda::FinishDevice;

constexpr float kUntouched = -12345.0f;

// Rows of random numbers in device memory, with numbers between them that must not be touched.
class Rows {
 public:
  Rows(uint64_t rows, uint64_t cols, uint64_t stride, std::mt19937& random, float range = 3.0f)
      : rows_(rows), cols_(cols), stride_(stride), host_(rows * stride, kUntouched) {
    std::uniform_real_distribution<float> numbers(-range, range);
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < cols; ++c) host_[r * stride + c] = numbers(random);
    }
    device_ = std::make_unique<DeviceArray<float>>(host_);
  }

  RowsView view() const {
    return {.data = device_->data(), .stride = stride_, .rows = rows_, .cols = cols_};
  }
  // The number that the test made there.
  float before(uint64_t r, uint64_t c) const { return host_[r * stride_ + c]; }

  // Whether the device's numbers are now expected(r, c) within the tolerance, relative to 1 and to
  // themselves, and nothing else has changed.
  void Expect(const std::function<double(uint64_t, uint64_t)>& expected,
              double tolerance = 1e-6) const {
    FinishDevice();
    const std::vector<float> now = device_->Get();
    for (uint64_t r = 0; r < rows_; ++r) {
      for (uint64_t c = 0; c < stride_; ++c) {
        const float actual = now[r * stride_ + c];
        if (c >= cols_) {
          ASSERT_EQ(actual, kUntouched) << "row " << r << ", behind its end";
          continue;
        }
        const double wanted = expected(r, c);
        ASSERT_NEAR(actual, wanted, tolerance * (1 + std::abs(wanted))) << "row " << r << ", " << c;
      }
    }
  }

 private:
  const uint64_t rows_;
  const uint64_t cols_;
  const uint64_t stride_;
  std::vector<float> host_;
  std::unique_ptr<DeviceArray<float>> device_;
};

struct Shape {
  uint64_t rows;
  uint64_t cols;
  uint64_t stride;
};

// By 4: one run, several, a last run that is not full, rows apart from each other. By 1: a number
// of columns, or a stride, that is not a multiple of 4.
const Shape kShapes[] = {{1, 4, 4}, {3, 64, 64}, {2, 1024, 1040}, {5, 516, 520},
                         {1, 1, 1}, {4, 33, 33}, {3, 130, 131},   {2, 64, 66}};

class RowKernelsTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { kernels::cuda::ShuffleSchedule(GetParam().cols % 5); }
  void TearDown() override { kernels::cuda::ShuffleSchedule(0); }

  Rows Random(float range = 3.0f) {
    return Rows(GetParam().rows, GetParam().cols, GetParam().stride, random_, range);
  }
  std::vector<float> Vector(uint64_t size) {
    std::uniform_real_distribution<float> numbers(-2.0f, 2.0f);
    std::vector<float> values(size);
    for (float& value : values) value = numbers(random_);
    return values;
  }

  const uint64_t rows_ = GetParam().rows;
  const uint64_t cols_ = GetParam().cols;
  std::mt19937 random_{static_cast<uint32_t>(GetParam().cols)};
};
INSTANTIATE_TEST_SUITE_P(Shapes, RowKernelsTest, testing::ValuesIn(kShapes), [](const auto& param) {
  return std::to_string(param.param.rows) + "x" + std::to_string(param.param.cols) + "by" +
         std::to_string(param.param.stride);
});

TEST_P(RowKernelsTest, RmsNormAlsoInPlace) {
  const Rows input = Random();
  const Rows output = Random();
  const std::vector<float> weights = Vector(cols_);
  const DeviceArray<float> device_weights(weights);
  std::vector<double> factors;
  for (uint64_t r = 0; r < rows_; ++r) {
    double squares = 0;
    for (uint64_t c = 0; c < cols_; ++c) squares += std::pow(double{input.before(r, c)}, 2);
    factors.push_back(1.0 / std::sqrt(squares / static_cast<double>(cols_) + 0.25));
  }
  const auto expected = [&](uint64_t r, uint64_t c) {
    return input.before(r, c) * factors[r] * weights[c];
  };
  ASSERT_EQ(LaunchRmsNorm(device_weights.data(), 0.25f, input.view(), output.view(), nullptr), 0);
  output.Expect(expected);
  input.Expect([&](uint64_t r, uint64_t c) { return input.before(r, c); }, 0);
  ASSERT_EQ(LaunchRmsNorm(device_weights.data(), 0.25f, input.view(), input.view(), nullptr), 0);
  input.Expect(expected);
}

TEST_P(RowKernelsTest, LayerNormAlsoInPlace) {
  const Rows input = Random();
  const Rows output = Random();
  const std::vector<float> weights = Vector(cols_), bias = Vector(cols_);
  const DeviceArray<float> device_weights(weights), device_bias(bias);
  std::vector<double> means, factors;
  for (uint64_t r = 0; r < rows_; ++r) {
    double mean = 0, variance = 0;
    for (uint64_t c = 0; c < cols_; ++c) mean += input.before(r, c) / static_cast<double>(cols_);
    for (uint64_t c = 0; c < cols_; ++c) variance += std::pow(input.before(r, c) - mean, 2);
    means.push_back(mean);
    factors.push_back(1.0 / std::sqrt(variance / static_cast<double>(cols_) + 0.25));
  }
  const auto expected = [&](uint64_t r, uint64_t c) {
    return (input.before(r, c) - means[r]) * factors[r] * weights[c] + bias[c];
  };
  for (const Rows* target : {&output, &input}) {
    ASSERT_EQ(LaunchLayerNorm(device_weights.data(), device_bias.data(), 0.25f, input.view(),
                              target->view(), nullptr),
              0);
    target->Expect(expected, 2e-6);
  }
}

TEST_P(RowKernelsTest, ClampedGateAndPlainGelu) {
  const Rows gate_up(rows_, 2 * cols_, 2 * GetParam().stride, random_, 9.0f);
  const Rows output = Random();
  ASSERT_EQ(LaunchGate({.kind = GateKind::kClampedSilu, .alpha = 1.5f, .limit = 4.0f},
                       gate_up.view(), output.view(), nullptr),
            0);
  output.Expect([&](uint64_t r, uint64_t c) {
    const double g = std::min<double>(gate_up.before(r, c), 4);
    const double u = std::clamp<double>(gate_up.before(r, cols_ + c), -4, 4);
    return (u + 1) * g / (1 + std::exp(-1.5 * g));
  });
  const Rows rows = Random(6.0f);
  ASSERT_EQ(LaunchGeluTanh(rows.view(), nullptr), 0);
  rows.Expect([&](uint64_t r, uint64_t c) {
    const double x = rows.before(r, c);
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  });
}

// Rows of the sum with several addends, one and none.
TEST_P(RowKernelsTest, AddsRowsByTheirLists) {
  const Rows sum = Random();
  const Rows addend(3, cols_, GetParam().stride, random_);
  const std::vector<float> factors = {0.5f, -2.0f, 3.0f};
  // The addends 0 and 2 belong to the last row, 1 to the first one.
  std::vector<uint32_t> first(rows_, kNoAddend), next(3, kNoAddend);
  std::vector<std::vector<uint32_t>> of_row(rows_);
  const auto append = [&](uint64_t row, uint32_t i) {
    of_row[row].empty() ? first[row] = i : next[of_row[row].back()] = i;
    of_row[row].push_back(i);
  };
  append(rows_ - 1, 0);
  append(0, 1);
  append(rows_ - 1, 2);
  const DeviceArray<uint32_t> device_first(first), device_next(next);
  const DeviceArray<float> device_factors(factors);
  ASSERT_EQ(LaunchAddRows({.first_of_row = device_first.data(),
                           .next = device_next.data(),
                           .factors = device_factors.data()},
                          addend.view(), sum.view(), nullptr),
            0);
  sum.Expect([&](uint64_t r, uint64_t c) {
    double expected = sum.before(r, c);
    for (const uint32_t i : of_row[r]) expected += double{factors[i]} * addend.before(i, c);
    return expected;
  });
}

TEST_P(RowKernelsTest, ClearsRows) {
  const Rows rows = Random();
  ASSERT_EQ(LaunchClear(rows.view(), nullptr), 0);
  rows.Expect([](uint64_t, uint64_t) { return 0.0; }, 0);
}

TEST_P(RowKernelsTest, Gates) {
  const Rows gate_up(rows_, 2 * cols_, 2 * GetParam().stride, random_, 9.0f);
  const auto up = [&](uint64_t r, uint64_t c) { return double{gate_up.before(r, cols_ + c)}; };
  for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh}) {
    const Rows output = Random();
    ASSERT_EQ(LaunchGate({.kind = kind}, gate_up.view(), output.view(), nullptr), 0);
    output.Expect([&](uint64_t r, uint64_t c) {
      const double x = gate_up.before(r, c);
      if (kind == GateKind::kSilu) return x / (1 + std::exp(-x)) * up(r, c);
      const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(u)) * up(r, c);
    });
  }
}

// If exp overflows or vanishes, the gate is the number itself or 0.
TEST(RowKernelsTest, GatesOfFarNumbers) {
  const std::vector<float> far = {-1e4f, -100.0f, 100.0f, 1e4f, 1.0f, 1.0f, 1.0f, 1.0f};
  const DeviceArray<float> gate_up(far);
  for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh}) {
    const DeviceArray<float> output(4);
    ASSERT_EQ(
        LaunchGate({.kind = kind}, {.data = gate_up.data(), .stride = 8, .rows = 1, .cols = 8},
                   {.data = output.data(), .stride = 4, .rows = 1, .cols = 4}, nullptr),
        0);
    FinishDevice();
    const std::vector<float> actual = output.Get();
    EXPECT_NEAR(actual[0], 0, 1e-30);
    EXPECT_NEAR(actual[1], 0, 1e-30);
    EXPECT_EQ(actual[2], 100.0f);
    EXPECT_EQ(actual[3], 1e4f);
  }
}

TEST_P(RowKernelsTest, AddAndBias) {
  const Rows sum = Random();
  const Rows addend = Random();
  ASSERT_EQ(LaunchAdd(addend.view(), sum.view(), nullptr), 0);
  sum.Expect([&](uint64_t r, uint64_t c) { return sum.before(r, c) + addend.before(r, c); }, 1e-7);
  const std::vector<float> bias = Vector(cols_);
  const DeviceArray<float> device_bias(bias);
  ASSERT_EQ(LaunchAddBias(device_bias.data(), addend.view(), nullptr), 0);
  addend.Expect([&](uint64_t r, uint64_t c) { return addend.before(r, c) + bias[c]; }, 1e-7);
}

TEST_P(RowKernelsTest, SoftCap) {
  const Rows rows = Random(200.0f);
  ASSERT_EQ(LaunchSoftCap(30.0f, rows.view(), nullptr), 0);
  rows.Expect([&](uint64_t r, uint64_t c) { return 30.0 * std::tanh(rows.before(r, c) / 30.0); });
}

TEST_P(RowKernelsTest, TakesRowsInAnyOrderAndNumber) {
  const Rows input = Random();
  for (const uint64_t count : {uint64_t{1}, uint64_t{kMostTakenRows} + 3}) {
    std::vector<uint32_t> indices(count);
    for (uint32_t& index : indices) index = static_cast<uint32_t>(random_() % rows_);
    const Rows output(count, cols_, GetParam().stride, random_);
    ASSERT_EQ(LaunchTakeRows(indices.data(), input.view(), output.view(), nullptr), 0);
    output.Expect([&](uint64_t r, uint64_t c) { return input.before(indices[r], c); }, 0);
  }
}

template <class T>
void ExpectRoundedAndBack(ElementType type, const Rows& rows, const Rows& back) {
  const RowsView view = rows.view();
  const DeviceArray<T> rounded(view.rows * view.cols);
  ASSERT_EQ(LaunchRound(type, view, rounded.data(), nullptr), 0);
  FinishDevice();
  const std::vector<T> actual = rounded.Get();
  for (uint64_t i = 0; i < actual.size(); ++i) {
    const float number = rows.before(i / view.cols, i % view.cols);
    ASSERT_EQ(actual[i].bits, FromFloat<T>(number).bits) << number;
  }
  const RowsView view_of_rounded = {.data = reinterpret_cast<float*>(rounded.data()),
                                    .stride = view.cols,
                                    .rows = view.rows,
                                    .cols = view.cols,
                                    .type = type};
  ASSERT_EQ(LaunchWiden(view_of_rounded, back.view(), nullptr), 0);
  back.Expect([&](uint64_t r, uint64_t c) { return ToFloat(FromFloat<T>(rows.before(r, c))); }, 0);
}

TEST_P(RowKernelsTest, RoundsTo16BitsAndBack) {
  const Rows rows = Random(300.0f);
  ExpectRoundedAndBack<Half>(ElementType::kFloat16, rows, Random());
  ExpectRoundedAndBack<BFloat16>(ElementType::kBFloat16, rows, Random());
}

template <class T>
void ExpectEmbedded(ElementType type, uint64_t vocabulary, const std::vector<uint32_t>& tokens,
                    const Rows& output, std::mt19937& random) {
  const uint64_t cols = output.view().cols;
  std::uniform_real_distribution<float> numbers(-3.0f, 3.0f);
  std::vector<T> table;
  for (uint64_t i = 0; i < vocabulary * cols; ++i) table.push_back(FromFloat<T>(numbers(random)));
  const DeviceArray<T> device_table(table);
  const DeviceArray<uint32_t> device_tokens(tokens);
  ASSERT_EQ(
      LaunchEmbed(type, device_table.data(), device_tokens.data(), 1.5f, output.view(), nullptr),
      0);
  output.Expect([&](uint64_t r, uint64_t c) { return 1.5 * ToFloat(table[tokens[r] * cols + c]); },
                1e-7);
}

TEST_P(RowKernelsTest, EmbedsTokensOfEveryType) {
  std::vector<uint32_t> tokens(rows_);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random_() % 11);
  tokens.back() = 10;
  ExpectEmbedded<float>(ElementType::kFloat32, 11, tokens, Random(), random_);
  ExpectEmbedded<Half>(ElementType::kFloat16, 11, tokens, Random(), random_);
  ExpectEmbedded<BFloat16>(ElementType::kBFloat16, 11, tokens, Random(), random_);
}

struct Heads {
  uint64_t rows;
  uint64_t num_heads;
  uint32_t half_dim;
};

TEST(RowKernelsTest, RotatesHeadsWithAndWithoutTheirNorm) {
  std::mt19937 random(7);
  for (const Heads& shape :
       {Heads{1, 1, 1}, Heads{3, 2, 16}, Heads{5, 3, 33}, Heads{2, 8, 64}, Heads{2, 1, 128}}) {
    SCOPED_TRACE(testing::Message()
                 << shape.rows << " x " << shape.num_heads << " x " << 2 * shape.half_dim);
    const uint32_t half = shape.half_dim;
    std::vector<int32_t> positions;
    std::vector<float> frequencies, norm;
    for (uint64_t r = 0; r < shape.rows; ++r) {
      positions.push_back(static_cast<int32_t>(random() % 5000));
    }
    for (uint32_t i = 0; i < half; ++i) {
      frequencies.push_back(std::pow(10000.0f, -float(i) / float(half)));
    }
    for (uint32_t i = 0; i < 2 * half; ++i) norm.push_back(0.5f + 0.01f * float(i));
    const DeviceArray<int32_t> device_positions(positions);
    const DeviceArray<float> device_frequencies(frequencies), device_norm(norm);
    const DeviceArray<float> cosines(shape.rows * half), sines(shape.rows * half);
    const AnglesView angles = {.cosines = cosines.data(), .sines = sines.data(), .half_dim = half};
    ASSERT_EQ(LaunchAngles(device_positions.data(), shape.rows, device_frequencies.data(), 1.0f,
                           angles, nullptr),
              0);
    for (const bool normed : {false, true}) {
      const uint64_t cols = shape.num_heads * 2 * half;
      const Rows heads(shape.rows, cols, cols + 5, random);
      ASSERT_EQ(LaunchRotate({.head_dim = 2 * half}, angles, normed ? device_norm.data() : nullptr,
                             0.1f, heads.view(), nullptr),
                0);
      const auto value = [&](uint64_t r, uint64_t head, uint64_t i) {
        const uint64_t first = head * 2 * half;
        const double number = heads.before(r, first + i);
        if (!normed) return number;
        double squares = 0;
        for (uint64_t k = 0; k < 2 * half; ++k) {
          squares += std::pow(double{heads.before(r, first + k)}, 2);
        }
        return number * norm[i] / std::sqrt(squares / (2 * half) + double{0.1f});
      };
      heads.Expect(
          [&](uint64_t r, uint64_t c) {
            const uint64_t head = c / (2 * half);
            const uint64_t i = c % (2 * half);
            // The angle itself is rounded to fp32, as in transformers.
            const double angle = static_cast<float>(positions[r]) * frequencies[i % half];
            return i < half ? value(r, head, i) * std::cos(angle) -
                                  value(r, head, half + i) * std::sin(angle)
                            : value(r, head, i) * std::cos(angle) +
                                  value(r, head, i - half) * std::sin(angle);
          },
          2e-6);
    }
  }
}

// A part of each head, in halves and in neighbours.
TEST(RowKernelsTest, RotatesAPartOfEachHead) {
  std::mt19937 random(11);
  constexpr uint32_t kHeadDim = 24, kFirst = 6, kHalf = 5;
  constexpr uint64_t kNumHeads = 3, kRows = 4;
  const std::vector<int32_t> positions = {0, 3, 70, 1000};
  const std::vector<float> frequencies = {1.0f, 0.5f, 0.3f, 0.01f, 0.002f};
  const DeviceArray<int32_t> device_positions(positions);
  const DeviceArray<float> device_frequencies(frequencies);
  const DeviceArray<float> cosines(kRows * kHalf), sines(kRows * kHalf);
  const AnglesView angles = {.cosines = cosines.data(), .sines = sines.data(), .half_dim = kHalf};
  ASSERT_EQ(LaunchAngles(device_positions.data(), kRows, device_frequencies.data(), 1.25f, angles,
                         nullptr),
            0);
  for (const bool neighbours : {false, true}) {
    const Rows heads(kRows, kNumHeads * kHeadDim, kNumHeads * kHeadDim + 3, random);
    ASSERT_EQ(
        LaunchRotate({.head_dim = kHeadDim, .first_element = kFirst, .neighbours = neighbours},
                     angles, nullptr, 0.0f, heads.view(), nullptr),
        0);
    heads.Expect(
        [&](uint64_t r, uint64_t c) {
          const uint64_t i = c % kHeadDim;
          if (i < kFirst || i >= kFirst + 2 * kHalf) return double{heads.before(r, c)};
          const uint64_t e = i - kFirst;
          const uint64_t pair = neighbours ? e / 2 : e % kHalf;
          const bool second = neighbours ? e % 2 == 1 : e >= kHalf;
          const uint64_t distance = neighbours ? 1 : kHalf;
          const double angle = static_cast<float>(positions[r]) * frequencies[pair];
          const double partner = heads.before(r, second ? c - distance : c + distance);
          const double turned = heads.before(r, c) * std::cos(angle) +
                                (second ? partner : -partner) * std::sin(angle);
          return 1.25 * turned;
        },
        2e-6);
  }
}

TEST(RowKernelsTest, CopiesThePartsOfHeads) {
  std::mt19937 random(12);
  const Rows input(3, 4 * 10, 43, random);
  const Rows output(3, 4 * 7, 30, random);
  ASSERT_EQ(LaunchCopyHeads(4, 5, {.rows = input.view(), .head_dim = 10},
                            {.rows = output.view(), .head_dim = 7}, nullptr),
            0);
  output.Expect(
      [&](uint64_t r, uint64_t c) {
        return c % 7 < 5 ? input.before(r, c / 7 * 10 + c % 7) : output.before(r, c);
      },
      0);
}

// A row's bits depend neither on the rows next to it nor on the grid.
TEST(RowKernelsTest, ARowsNormHasTheSameBitsInEveryBatch) {
  std::mt19937 random(3);
  const Rows many(9, 700, 700, random);
  const std::vector<float> weights(700, 1.25f);
  const DeviceArray<float> device_weights(weights);
  const DeviceArray<float> all(9 * 700), one(700);
  kernels::cuda::ShuffleSchedule(1);
  ASSERT_EQ(LaunchRmsNorm(device_weights.data(), 0, many.view(),
                          {.data = all.data(), .stride = 700, .rows = 9, .cols = 700}, nullptr),
            0);
  kernels::cuda::ShuffleSchedule(0);
  RowsView last = many.view();
  last.data += 8 * 700;
  last.rows = 1;
  ASSERT_EQ(LaunchRmsNorm(device_weights.data(), 0, last,
                          {.data = one.data(), .stride = 700, .rows = 1, .cols = 700}, nullptr),
            0);
  FinishDevice();
  const std::vector<float> among = all.Get();
  EXPECT_EQ(std::vector<float>(among.end() - 700, among.end()), one.Get());
}

}  // namespace
}  // namespace pagoda::cuda
