#include "engine/model/cuda/self_test/self_test_model_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/cuda/self_test/self_test_rotation.h"
#include "engine/model/cuda/self_test/self_test_rows.h"

namespace pagoda::cuda {
namespace {

// Two heads per row.
double ErrorOfRotation(TestBed& bed, const TestedKernels& kernels, const ModelConfig& config,
                       const Rotation& rotation) {
  const uint32_t head_dim = rotation.heads.head_dim;
  const uint64_t cols = 2 * head_dim;
  TestNumbers numbers(5);
  const std::vector<int32_t> positions = {0, 1, 17, 1000, 5};
  // The rotated elements are those of config.head_dim, like in the backend.
  const std::vector<float> frequencies = RotaryFrequencies(rotation.rotary, config.head_dim);
  const std::vector<float> input = numbers.Many(positions.size() * cols, 3);
  const std::vector<float> weights = numbers.Many(head_dim, 2);
  const int32_t* const device_positions = bed.Bring(positions);
  const float* const device_frequencies = bed.Bring(frequencies);
  const float* const device_weights = bed.Bring(weights);
  const AnglesView angles = {.cosines = bed.Allocate<float>(positions.size() * frequencies.size()),
                             .sines = bed.Allocate<float>(positions.size() * frequencies.size()),
                             .half_dim = static_cast<uint32_t>(frequencies.size())};
  const RowsView rows = BringRows(bed, input, cols);
  bed.Run("angles", [&] {
    return kernels.angles(device_positions, positions.size(), device_frequencies,
                          rotation.rotary.attention_factor, angles, bed.stream());
  });
  bed.Run("rotation", [&] {
    return kernels.rotate(rotation.heads, angles, rotation.normed ? device_weights : nullptr,
                          config.rms_norm_eps, rows, bed.stream());
  });
  std::vector<double> expected = Doubles(input);
  for (uint64_t first = 0; first < expected.size(); first += head_dim) {
    const auto head = absl::MakeSpan(expected).subspan(first, head_dim);
    if (rotation.normed) Norm(head, weights, config.rms_norm_eps);
    Rotate(rotation, frequencies, positions[first / cols], head);
  }
  return NumberError(TakeRowsOf(bed, rows), expected);
}

// Also in place.
double ErrorOfLayerNorm(TestBed& bed, const TestedKernels& kernels, float eps, uint64_t cols) {
  TestNumbers numbers(11);
  std::vector<float> input = numbers.Many(kTestRows * cols, 3);
  for (float& number : input) number += 5;  // A mean that matters.
  const std::vector<float> weights = numbers.Many(cols, 2);
  const std::vector<float> bias = numbers.Many(cols, 2);
  const float* const device_weights = bed.Bring(weights);
  const float* const device_bias = bed.Bring(bias);
  const RowsView rows = BringRows(bed, input, cols);
  const RowsView apart = EmptyRows(bed, kTestRows, cols);
  for (const RowsView& output : {apart, rows}) {
    bed.Run("layer norm", [&] {
      return kernels.layer_norm(device_weights, device_bias, eps, rows, output, bed.stream());
    });
  }
  std::vector<double> expected = Doubles(input);
  for (uint64_t r = 0; r < kTestRows; ++r) {
    const auto row = absl::MakeSpan(expected).subspan(r * cols, cols);
    double mean = 0;
    for (const double number : row) mean += number / static_cast<double>(cols);
    for (double& number : row) number -= mean;
    Norm(row, weights, eps);
    for (uint64_t c = 0; c < cols; ++c) row[c] += bias[c];
  }
  return std::max(NumberError(TakeRowsOf(bed, apart), expected),
                  NumberError(TakeRowsOf(bed, rows), expected));
}

double ErrorOfClampedGate(TestBed& bed, const TestedKernels& kernels, const ModelConfig& config,
                          uint64_t cols) {
  const double alpha = config.activation_alpha;
  const double limit = config.activation_limit;
  // Beyond the limit on both sides.
  const std::vector<float> input =
      TestNumbers(12).Many(kTestRows * 2 * cols, 2 * config.activation_limit);
  const RowsView gate_up = BringRows(bed, input, 2 * cols);
  const RowsView output = EmptyRows(bed, kTestRows, cols);
  bed.Run("clamped gate", [&] {
    return kernels.gate({.kind = GateKind::kClampedSilu,
                         .alpha = config.activation_alpha,
                         .limit = config.activation_limit},
                        gate_up, output, bed.stream());
  });
  std::vector<double> expected;
  for (uint64_t r = 0; r < kTestRows; ++r) {
    for (uint64_t c = 0; c < cols; ++c) {
      const uint64_t i = r * 2 * cols + c;
      const double gate = std::min<double>(input[i], limit);
      const double up = std::clamp<double>(input[i + cols], -limit, limit);
      expected.push_back((up + 1) * gate / (1 + std::exp(-alpha * gate)));
    }
  }
  return NumberError(TakeRowsOf(bed, output), expected);
}

double ErrorOfGelu(TestBed& bed, const TestedKernels& kernels, uint64_t cols) {
  const std::vector<float> input = TestNumbers(13).Many(kTestRows * cols, 8);
  const RowsView rows = BringRows(bed, input, cols);
  bed.Run("gelu", [&] { return kernels.gelu_tanh(rows, bed.stream()); });
  std::vector<double> expected;
  for (const double x : input) {
    expected.push_back(0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))));
  }
  return NumberError(TakeRowsOf(bed, rows), expected);
}

// Clears rows, and adds to them rows of lists of no addend, one and several.
double ErrorOfRowLists(TestBed& bed, const TestedKernels& kernels, uint64_t cols) {
  // By addend: the row of the sum.
  const std::vector<uint32_t> targets = {3, 0, 3, 4, 3, 2, 0};
  TestNumbers numbers(14);
  const std::vector<float> factors = numbers.Many(targets.size(), 2);
  const std::vector<float> addend = numbers.Many(targets.size() * cols, 3);
  std::vector<uint32_t> first(kTestRows, kNoAddend);
  std::vector<uint32_t> next(targets.size());
  for (size_t i = targets.size(); i-- > 0;) {
    next[i] = first[targets[i]];
    first[targets[i]] = static_cast<uint32_t>(i);
  }
  const AddendLists lists = {
      .first_of_row = bed.Bring(first), .next = bed.Bring(next), .factors = bed.Bring(factors)};
  const RowsView device_addend = BringRows(bed, addend, cols);
  const RowsView sum = EmptyRows(bed, kTestRows, cols);
  bed.Run("clearing", [&] { return kernels.clear(sum, bed.stream()); });
  // Twice: the first result is added to.
  for (int i = 0; i < 2; ++i) {
    bed.Run("addition of rows",
            [&] { return kernels.add_rows(lists, device_addend, sum, bed.stream()); });
  }
  std::vector<double> expected(kTestRows * cols);
  for (size_t i = 0; i < targets.size(); ++i) {
    for (uint64_t c = 0; c < cols; ++c) {
      expected[targets[i] * cols + c] += 2 * double{factors[i]} * addend[i * cols + c];
    }
  }
  return NumberError(TakeRowsOf(bed, sum), expected);
}

// Copies the rotated elements of the queries, as for latents.
double ErrorOfCopyHeads(TestBed& bed, const TestedKernels& kernels,
                        const LatentAttentionConfig& latent) {
  constexpr uint32_t kHeads = 3;
  const uint32_t count = latent.rotary_dim;
  const uint32_t from_dim = latent.plain_dim + count;
  const uint32_t to_dim = latent.latent_dim + count;
  TestNumbers numbers(15);
  const std::vector<float> input = numbers.Many(kTestRows * kHeads * from_dim, 3);
  const std::vector<float> before = numbers.Many(kTestRows * kHeads * to_dim, 3);
  const RowsView from = BringRows(bed, input, kHeads * from_dim);
  const RowsView to = BringRows(bed, before, kHeads * to_dim);
  bed.Run("copy of heads", [&] {
    return kernels.copy_heads(
        kHeads, count, {from.Columns(latent.plain_dim, from.cols - latent.plain_dim), from_dim},
        {to.Columns(latent.latent_dim, to.cols - latent.latent_dim), to_dim}, bed.stream());
  });
  std::vector<double> expected = Doubles(before);
  for (uint64_t head = 0; head < kTestRows * kHeads; ++head) {
    for (uint32_t i = 0; i < count; ++i) {
      expected[head * to_dim + latent.latent_dim + i] =
          input[head * from_dim + latent.plain_dim + i];
    }
  }
  return NumberError(TakeRowsOf(bed, to), expected);
}

}  // namespace

std::vector<SelfTestItem> ModelLayerItems(const GpuSelfTestRequest& request,
                                          const TestedKernels& kernels) {
  const ModelConfig& config = request.config;
  std::vector<SelfTestItem> items;
  if (const std::vector<Rotation> rotations = RotationsOf(config); !rotations.empty()) {
    items.push_back({.part = "rotary",
                     .family = "portable",
                     .tolerance = kRotaryTolerance,
                     .test = [&config, &kernels, rotations](TestBed& bed) {
                       Measured measured;
                       for (const Rotation& rotation : rotations) {
                         measured.error = std::max(measured.error,
                                                   ErrorOfRotation(bed, kernels, config, rotation));
                       }
                       return measured;
                     }});
  }
  if (config.layer_norms) {
    items.push_back(
        RowsItem("layer_norm", kLayerTolerance, [&config, &kernels](TestBed& bed, uint64_t cols) {
          return ErrorOfLayerNorm(bed, kernels, config.rms_norm_eps, cols);
        }));
  }
  if (config.activation == Activation::kClampedSilu) {
    items.push_back(
        RowsItem("clamped_gate", kLayerTolerance, [&config, &kernels](TestBed& bed, uint64_t cols) {
          return ErrorOfClampedGate(bed, kernels, config, cols);
        }));
  }
  if (!config.gated_mlp) {
    items.push_back(RowsItem("gelu", kLayerTolerance, [&kernels](TestBed& bed, uint64_t cols) {
      return ErrorOfGelu(bed, kernels, cols);
    }));
  }
  // For mixtures of experts, and for adapters, which any model can get.
  items.push_back(RowsItem("row_lists", kLayerTolerance, [&kernels](TestBed& bed, uint64_t cols) {
    return ErrorOfRowLists(bed, kernels, cols);
  }));
  if (config.latent.has_value()) {
    items.push_back({.part = "head_copy",
                     .family = "portable",
                     .tolerance = 0,
                     .test = [&config, &kernels](TestBed& bed) {
                       return Measured{.error = ErrorOfCopyHeads(bed, kernels, *config.latent)};
                     }});
  }
  return items;
}

}  // namespace pagoda::cuda
