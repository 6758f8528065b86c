#include "engine/model/cuda/self_test/self_test_fused.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/model/cuda/self_test/self_test_kv.h"
#include "engine/model/cuda/self_test/self_test_rotation.h"
#include "engine/model/cuda/self_test/self_test_rows.h"
#include "kernels/numeric.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

constexpr ElementType kRowTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                     ElementType::kBFloat16};

// The largest relative error of rounding to the nearest number of the type.
double RoundingOf(ElementType type) {
  if (type == ElementType::kFloat16) return 0x1p-11;
  return type == ElementType::kBFloat16 ? 0x1p-8 : 0;
}

// Does what NumberError does, but without the error that rounding allows.
double ErrorBeyondRounding(absl::Span<const float> actual, absl::Span<const double> expected,
                           ElementType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (actual.size() != expected.size()) return kInfinity;
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double magnitude = std::abs(expected[i]);
    const double error = std::abs(actual[i] - expected[i]) - RoundingOf(type) * magnitude;
    if (!std::isfinite(error)) return kInfinity;
    worst = std::max(worst, error / (1 + magnitude));
  }
  return worst;
}

// Contiguous rows of any type.
std::vector<float> TakeTyped(TestBed& bed, const RowsView& rows) {
  const uint64_t bytes = rows.rows * rows.cols * kernels::ElementBytes(rows.type);
  return FloatsOf(rows.type, bed.Take(reinterpret_cast<const std::byte*>(rows.data), bytes));
}

// With the addend normed and as it is. The sum is fp32, the output has each type.
double ErrorOfAddNorm(TestBed& bed, const TestedKernels& kernels, float eps, uint64_t cols) {
  double worst = 0;
  for (const ElementType type : kRowTypes) {
    for (const bool normed : {false, true}) {
      TestNumbers numbers(21);
      const std::vector<float> addend = numbers.Many(kTestRows * cols, 3);
      const std::vector<float> sum = numbers.Many(kTestRows * cols, 3);
      const std::vector<float> addend_weights = numbers.Many(cols, 2);
      const std::vector<float> weights = numbers.Many(cols, 2);
      const RowsView device_sum = BringRows(bed, sum, cols);
      const RowsView output = EmptyRows(bed, kTestRows, cols).As(type);
      const float* const device_addend_weights = bed.Bring(addend_weights);
      const AddNormArgs args = {.addend_norm = normed ? device_addend_weights : nullptr,
                                .addend_eps = eps,
                                .norm = bed.Bring(weights),
                                .eps = eps,
                                .addend = BringRows(bed, addend, cols),
                                .sum = device_sum,
                                .output = output};
      bed.Run("addition and norm", [&] { return kernels.add_norm(args, bed.stream()); });
      std::vector<double> sums = Doubles(addend);
      std::vector<double> outputs;
      for (uint64_t r = 0; r < kTestRows; ++r) {
        const auto row = absl::MakeSpan(sums).subspan(r * cols, cols);
        if (normed) Norm(row, addend_weights, eps);
        for (uint64_t c = 0; c < cols; ++c) row[c] += sum[r * cols + c];
        std::vector<double> of_row(row.begin(), row.end());
        Norm(absl::MakeSpan(of_row), weights, eps);
        outputs.insert(outputs.end(), of_row.begin(), of_row.end());
      }
      worst = std::max({worst, NumberError(TakeRowsOf(bed, device_sum), sums),
                        ErrorBeyondRounding(TakeTyped(bed, output), outputs, type)});
    }
  }
  return worst;
}

// The small layers that can leave rows of 16 bits compute what they leave in fp32, rounded once;
// chosen rows keep their bits.
double ErrorOfRoundedRows(TestBed& bed, const TestedKernels& kernels, const ModelConfig& config,
                          ElementType type, uint64_t cols) {
  TestNumbers numbers(22);
  const RowsView input = BringRows(bed, numbers.Many(kTestRows * 2 * cols, 3), 2 * cols);
  const RowsView first_half = input.Columns(0, cols);
  const float* const weights = bed.Bring(numbers.Many(cols, 2));
  const float* const bias = bed.Bring(numbers.Many(cols, 2));
  const RowsView exact = EmptyRows(bed, kTestRows, cols);
  const RowsView rounded = EmptyRows(bed, kTestRows, cols).As(type);
  double worst = 0;
  const auto compare = [&](const char* what, const auto& launch) {
    bed.Run(what, [&] { return launch(exact); });
    bed.Run(what, [&] { return launch(rounded); });
    worst = std::max(
        worst, ErrorBeyondRounding(TakeTyped(bed, rounded), Doubles(TakeRowsOf(bed, exact)), type));
  };
  if (config.layer_norms) {
    compare("layer norm", [&](const RowsView& output) {
      return kernels.layer_norm(weights, bias, config.rms_norm_eps, first_half, output,
                                bed.stream());
    });
  } else {
    compare("norm", [&](const RowsView& output) {
      return kernels.rms_norm(weights, config.rms_norm_eps, first_half, output, bed.stream());
    });
  }
  std::vector<GateArgs> gates = {{.kind = GateKind::kSilu}, {.kind = GateKind::kGeluTanh}};
  if (config.activation == Activation::kClampedSilu) {
    gates = {{.kind = GateKind::kClampedSilu,
              .alpha = config.activation_alpha,
              .limit = config.activation_limit}};
  }
  for (const GateArgs& gate : gates) {
    compare("gate", [&](const RowsView& output) {
      return kernels.gate(gate, input, output, bed.stream());
    });
  }
  const std::vector<float> all = TakeTyped(bed, rounded);
  const std::vector<uint32_t> chosen = {4, 0, 2};
  const RowsView taken = EmptyRows(bed, chosen.size(), cols).As(type);
  bed.Run("choice of rows",
          [&] { return kernels.take_rows(chosen.data(), rounded, taken, bed.stream()); });
  std::vector<double> expected;
  for (const uint32_t row : chosen) {
    if (all.empty()) break;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * cols);
    expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(cols));
  }
  return std::max(worst, NumberError(TakeTyped(bed, taken), expected));
}

// Places the heads of some tokens, one of which is padding, for one kind of layer. Everything in
// the pool that belongs to no token must stay as it is.
class PlaceHeadsTest {
 public:
  PlaceHeadsTest(const GpuSelfTestRequest& request, const Rotation* rotation)
      : config_(request.config),
        layer_(config_.layers.front()),
        rotation_(rotation),
        heads_(std::min(layer_.num_kv_heads, kMostKvHeads)),
        dim_(config_.head_dim),
        block_(request.tokens_per_block),
        slots_({int64_t{3} * block_ - 1, 0, -1, block_}),
        kv_(MakeKv(layer_, request.kv_type, heads_, dim_, block_, /*num_slots=*/4)),
        pool_(kv_.num_slots * kv_.slot_stride_bytes, std::byte{0xff}) {}

  double Error(TestBed& bed, const TestedKernels& kernels) {
    const uint64_t rows = slots_.size();
    const uint64_t key_cols = uint64_t{heads_} * dim_;
    const uint64_t query_cols = 2 * key_cols;
    TestNumbers numbers(23);
    const std::vector<float> input = numbers.Many(rows * 2 * query_cols, 3);
    const std::vector<float> query_norm = numbers.Many(dim_, 2);
    const std::vector<float> key_norm = numbers.Many(dim_, 2);
    const RowsView all = BringRows(bed, input, 2 * query_cols);
    std::byte* const pool = bed.Bring(pool_);
    // Over a pool with scales, keys stay in their rows.
    const bool is_scaled = kernels::IsFloat8(kv_.type);
    const RowsView placed =
        EmptyRows(bed, rows, query_cols).As(is_scaled ? ElementType::kBFloat16 : kv_.type);
    PlaceHeadsArgs args = {.rotation = {.head_dim = dim_},
                           .eps = config_.rms_norm_eps,
                           .queries = all.Columns(0, query_cols),
                           .keys = all.Columns(query_cols, key_cols),
                           .values = all.Columns(query_cols + key_cols, key_cols),
                           .placed = placed,
                           .token_slots = bed.Bring(slots_),
                           .kv = kv_};
    PlaceKv(layer_, pool, args.kv);
    if (is_scaled) args.kv = {};
    std::vector<float> frequencies;
    if (rotation_ != nullptr) {
      frequencies = RotaryFrequencies(rotation_->rotary, dim_);
      args.rotation = rotation_->heads;
      args.angles = MakeAngles(bed, frequencies);
      if (rotation_->normed) args.query_norm = bed.Bring(query_norm);
      if (rotation_->normed) args.key_norm = bed.Bring(key_norm);
    }
    bed.Run("heads", [&] { return kernels.place_heads(args, bed.stream()); });

    std::vector<double> expected = Doubles(input);
    for (uint64_t first = 0; first < expected.size(); first += dim_) {
      const uint64_t row = first / (2 * query_cols);
      const uint64_t col = first % (2 * query_cols);
      if (rotation_ == nullptr || col >= query_cols + key_cols) continue;
      const auto head = absl::MakeSpan(expected).subspan(first, dim_);
      if (rotation_->normed) {
        Norm(head, col < query_cols ? query_norm : key_norm, config_.rms_norm_eps);
      }
      Rotate(*rotation_, frequencies, kPositions[row], head);
    }
    std::vector<double> queries;
    for (uint64_t row = 0; row < rows; ++row) {
      const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(row * 2 * query_cols);
      queries.insert(queries.end(), begin, begin + static_cast<std::ptrdiff_t>(query_cols));
    }
    const double error = ErrorBeyondRounding(TakeTyped(bed, placed), queries, placed.type);
    if (is_scaled) {
      for (size_t i = 0; i < expected.size(); ++i) {
        if (i % (2 * query_cols) < query_cols) expected[i] = input[i];
      }
      return std::max(error, NumberError(TakeRowsOf(bed, all), expected));
    }
    return std::max(error,
                    ErrorOfPool(bed.Take(pool, pool_.size()), expected, query_cols, key_cols));
  }

 private:
  static constexpr int32_t kPositions[] = {0, 1000, 3, 17};

  // By the host: their kernel is another part.
  AnglesView MakeAngles(TestBed& bed, const std::vector<float>& frequencies) const {
    std::vector<float> cosines, sines;
    for (const int32_t position : kPositions) {
      for (const float frequency : frequencies) {
        const double angle = static_cast<float>(position) * frequency;
        const double factor = rotation_->rotary.attention_factor;
        cosines.push_back(static_cast<float>(factor * std::cos(angle)));
        sines.push_back(static_cast<float>(factor * std::sin(angle)));
      }
    }
    return {.cosines = bed.Bring(cosines),
            .sines = bed.Bring(sines),
            .half_dim = static_cast<uint32_t>(frequencies.size())};
  }

  // `expected` are the rows of queries, keys and values.
  double ErrorOfPool(const std::vector<std::byte>& pool, const std::vector<double>& expected,
                     uint64_t query_cols, uint64_t key_cols) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (pool.size() != pool_.size()) return kInfinity;
    const uint64_t bytes = kernels::ElementBytes(kv_.type);
    std::vector<std::byte> untouched = pool;
    PlaceKv(layer_, untouched.data(), kv_);
    double worst = 0;
    for (size_t row = 0; row < slots_.size(); ++row) {
      if (slots_[row] < 0) continue;
      const auto slot = static_cast<uint32_t>(slots_[row] / block_);
      const auto token = static_cast<uint32_t>(slots_[row] % block_);
      for (uint64_t i = 0; i < 2 * key_cols; ++i) {
        const auto head = static_cast<uint32_t>(i % key_cols / dim_);
        std::byte* const at = (i < key_cols ? kv_.keys : kv_.values) +
                              kv_.offset_bytes(slot, head, token) + i % dim_ * bytes;
        const std::vector<float> actual = FloatsOf(kv_.type, {at, at + bytes});
        const double wanted = expected[row * 2 * query_cols + query_cols + i];
        worst = std::max(worst, ErrorBeyondRounding(actual, {wanted}, kv_.type));
        std::fill_n(at, bytes, std::byte{0xff});
      }
    }
    return untouched == pool_ ? worst : kInfinity;
  }

  const ModelConfig& config_;
  const LayerConfig layer_;
  const Rotation* const rotation_;
  const uint32_t heads_;
  const uint32_t dim_;
  const uint32_t block_;
  const std::vector<int64_t> slots_;
  kernels::KvLayer kv_;
  const std::vector<std::byte> pool_;
};

}  // namespace

std::vector<SelfTestItem> FusedItems(const GpuSelfTestRequest& request,
                                     const TestedKernels& kernels) {
  const ModelConfig& config = request.config;
  std::vector<SelfTestItem> items;
  items.push_back(
      RowsItem(kFusedRows, kLayerTolerance, [&config, &kernels](TestBed& bed, uint64_t cols) {
        double worst = 0;
        for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
          worst = std::max(worst, ErrorOfRoundedRows(bed, kernels, config, type, cols));
        }
        if (config.layer_norms) return worst;
        return std::max(worst, ErrorOfAddNorm(bed, kernels, config.rms_norm_eps, cols));
      }));
  items.back().needed = false;
  const bool has_values = config.layers.front().kind == KvKind::kKeyAndValue;
  if (!has_values) return items;
  items.push_back({.part = kFusedHeads,
                   .family = "portable",
                   .needed = false,
                   .tolerance = kRotaryTolerance,
                   .test = [&request, &kernels](TestBed& bed) {
                     std::vector<Rotation> rotations = RotationsOf(request.config);
                     double worst = rotations.empty()
                                        ? PlaceHeadsTest(request, nullptr).Error(bed, kernels)
                                        : 0;
                     for (const Rotation& rotation : rotations) {
                       worst =
                           std::max(worst, PlaceHeadsTest(request, &rotation).Error(bed, kernels));
                     }
                     return Measured{.error = worst};
                   }});
  return items;
}

}  // namespace pagoda::cuda
