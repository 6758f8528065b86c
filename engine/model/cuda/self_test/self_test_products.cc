#include "engine/model/cuda/self_test/self_test_products.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/cuda/kernels/fused_products.h"
#include "engine/model/cuda/self_test/self_test_kv.h"
#include "engine/model/cuda/self_test/self_test_rows.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// A factor in the middle between two numbers of 16 bits can become either; outputs of a gate are
// rounded to bf16 once more.
constexpr double kFusedProductTolerance = 4e-3;

using MultiplyFunction = std::function<absl::Status(const FusedProductArgs& args)>;

DeviceProduct LibraryProduct(const FusedProductArgs& args, const RowsView& input,
                             const RowsView& output) {
  return {.type = args.type,
          .rows = input.rows,
          .inputs = args.inputs,
          .outputs = args.outputs,
          .input = input.data,
          .input_stride = input.stride,
          .weights = args.weights,
          .bias = args.bias,
          .output = output.data,
          .output_stride = output.stride};
}

// The library's product and the kernels of the small layers. An addition is done with the norm
// behind it. Their numbers are tested by other parts.
class SeparateProducts {
 public:
  // For products of one row, and up to so many inputs and outputs. The parameters outlive it.
  SeparateProducts(TestBed& bed, DeviceProducts& products, const TestedKernels& kernels,
                   uint64_t inputs, uint64_t outputs)
      : bed_(bed),
        products_(products),
        kernels_(kernels),
        factors_(bed.Allocate<float>(inputs)),
        product_(bed.Allocate<float>(outputs)) {}

  absl::Status Run(const FusedProductArgs& args) {
    RowsView input = args.input;
    if (args.norm != nullptr) {
      input = {.data = factors_, .stride = args.inputs, .rows = 1, .cols = args.inputs};
      input = input.As(args.type);
      absl::Status status = kernels::cuda::StatusOf("norm", Norm(args, input));
      if (!status.ok()) return status;
    }
    const RowsView product = {
        .data = product_, .stride = args.outputs, .rows = 1, .cols = args.outputs};
    absl::Status status = products_.Multiply(LibraryProduct(args, input, product), bed_.stream());
    if (status.ok() && args.end == ProductEnd::kGate) {
      return kernels::cuda::StatusOf("gate",
                                     kernels_.gate(args.gate, product, args.output, bed_.stream()));
    }
    if (!status.ok() || args.end != ProductEnd::kActivate) return status;
    status = kernels::cuda::StatusOf("gelu", kernels_.gelu_tanh(product, bed_.stream()));
    if (!status.ok()) return status;
    return kernels::cuda::StatusOf(
        "rounding", kernels_.round(args.output.type, product, args.output.data, bed_.stream()));
  }

 private:
  int Norm(const FusedProductArgs& args, const RowsView& normed) {
    if (args.norm_bias != nullptr) {
      return kernels_.layer_norm(args.norm, args.norm_bias, args.eps, args.input, normed,
                                 bed_.stream());
    }
    return kernels_.add_norm({.norm = args.norm,
                              .eps = args.eps,
                              .addend = args.input,
                              .sum = args.input,
                              .output = normed},
                             bed_.stream());
  }

  TestBed& bed_;
  DeviceProducts& products_;
  const TestedKernels& kernels_;
  float* const factors_;
  float* const product_;
};

GateArgs GateOf(const ModelConfig& config) {
  const GateKind kind = config.activation == Activation::kSilu       ? GateKind::kSilu
                        : config.activation == Activation::kGeluTanh ? GateKind::kGeluTanh
                                                                     : GateKind::kClampedSilu;
  return {.kind = kind, .alpha = config.activation_alpha, .limit = config.activation_limit};
}

double ActivationOf(const GateArgs& gate, double x) {
  if (gate.kind == GateKind::kSilu) return x / (1 + std::exp(-x));
  if (gate.kind == GateKind::kClampedSilu) return x / (1 + std::exp(-gate.alpha * x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GatedNumber(const GateArgs& gate, double x, double up) {
  if (gate.kind == GateKind::kClampedSilu) {
    x = std::min<double>(x, gate.limit);
    up = std::clamp<double>(up, -gate.limit, gate.limit) + 1;
  }
  return ActivationOf(gate, x) * up;
}

// The numbers as bytes of the type; they become what the bytes say.
std::vector<std::byte> BytesOf(ElementType type, std::vector<float>& numbers) {
  const uint64_t bytes = kernels::ElementBytes(type);
  std::vector<std::byte> rounded(numbers.size() * bytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = Store(type, rounded.data() + i * bytes, numbers[i]);
  }
  return rounded;
}

// A norm's rows: of RMSNorm, or of LayerNorm.
void NormRow(absl::Span<double> row, const std::vector<float>& weights,
             const std::vector<float>& bias, const FusedProductArgs& args) {
  if (args.norm == nullptr) return;
  if (args.norm_bias != nullptr) {
    double mean = 0;
    for (const double number : row) mean += number / static_cast<double>(row.size());
    for (double& number : row) number -= mean;
  }
  Norm(row, weights, args.eps);
  if (args.norm_bias == nullptr) return;
  for (size_t i = 0; i < row.size(); ++i) row[i] += bias[i];
}

enum class ProductInput : uint8_t { kRounded, kFloats, kNormed };

// What goes into a product, and what its outputs hold before.
struct ProductNumbers {
  std::vector<float> input;
  std::vector<float> weights;
  std::vector<float> bias;
  std::vector<float> norm;
  std::vector<float> norm_bias;
  std::vector<float> output;
};

// Row `r` of the input behind the norm, rounded to the product's type.
std::vector<float> FactorsOf(const ProductNumbers& numbers, const FusedProductArgs& args,
                             uint64_t r) {
  const auto from = numbers.input.begin() + static_cast<std::ptrdiff_t>(r * args.inputs);
  std::vector<double> normed(from, from + static_cast<std::ptrdiff_t>(args.inputs));
  NormRow(absl::MakeSpan(normed), numbers.norm, numbers.norm_bias, args);
  std::vector<float> factors(normed.begin(), normed.end());
  BytesOf(args.type, factors);
  return factors;
}

double ProductSum(const ProductNumbers& numbers, const std::vector<float>& factors, uint64_t o) {
  double sum = numbers.bias[o];
  for (uint64_t i = 0; i < factors.size(); ++i) {
    sum += double{factors[i]} * numbers.weights[o * factors.size() + i];
  }
  return sum;
}

std::vector<double> ExpectedOutputs(const ProductNumbers& numbers, const FusedProductArgs& args) {
  const uint64_t cols = args.output.cols;
  std::vector<double> expected;
  for (uint64_t r = 0; r < args.output.rows; ++r) {
    const std::vector<float> factors = FactorsOf(numbers, args, r);
    for (uint64_t c = 0; c < cols; ++c) {
      const double sum = ProductSum(numbers, factors, c);
      switch (args.end) {
        case ProductEnd::kStore:
          expected.push_back(sum);
          break;
        case ProductEnd::kAdd:
          expected.push_back(numbers.output[r * cols + c] + sum);
          break;
        case ProductEnd::kGate:
          expected.push_back(GatedNumber(args.gate, sum, ProductSum(numbers, factors, cols + c)));
          break;
        case ProductEnd::kActivate:
          expected.push_back(ActivationOf(args.gate, sum));
      }
    }
  }
  return expected;
}

// Inputs and outputs that no load and no tile divides.
double ErrorOf(TestBed& bed, const ModelConfig& config, ElementType type, uint64_t rows,
               ProductInput input_kind, ProductEnd end, const MultiplyFunction& multiply) {
  constexpr uint64_t kInputs = 1096;
  constexpr uint64_t kOutputs = 26;
  const uint64_t cols = end == ProductEnd::kGate ? kOutputs / 2 : kOutputs;
  const bool is_rounded = end == ProductEnd::kGate || end == ProductEnd::kActivate;
  TestNumbers random(31 + static_cast<uint32_t>(end));
  ProductNumbers numbers = {.input = random.Many(rows * kInputs, 3),
                            .weights = random.Many(kOutputs * kInputs, 0.1f),
                            .bias = random.Many(kOutputs, 1),
                            .norm = random.Many(kInputs, 1),
                            .norm_bias = random.Many(kInputs, 1),
                            .output = random.Many(rows * cols, 1)};

  const ElementType input_type =
      input_kind == ProductInput::kRounded ? type : ElementType::kFloat32;
  const ElementType output_type = is_rounded ? type : ElementType::kFloat32;
  const bool is_normed = input_kind == ProductInput::kNormed;
  FusedProductArgs args = {
      .type = type,
      .weights = bed.Bring(BytesOf(type, numbers.weights)),
      .bias = bed.Bring(numbers.bias),
      .inputs = kInputs,
      .outputs = kOutputs,
      .norm = is_normed ? bed.Bring(numbers.norm) : nullptr,
      .norm_bias = is_normed && config.layer_norms ? bed.Bring(numbers.norm_bias) : nullptr,
      .eps = config.rms_norm_eps,
      .end = end,
      .gate = GateOf(config)};
  const std::byte* const device_input = bed.Bring(BytesOf(input_type, numbers.input));
  std::byte* const device_output = bed.Bring(BytesOf(output_type, numbers.output));
  const auto view = [&](const std::byte* data, uint64_t view_cols, ElementType of) {
    return RowsView{.data = reinterpret_cast<float*>(const_cast<std::byte*>(data)),
                    .stride = view_cols,
                    .rows = rows,
                    .cols = view_cols,
                    .type = of};
  };
  args.input = view(device_input, kInputs, input_type);
  args.output = view(device_output, cols, output_type);
  bed.Keep([&] { return multiply(args); });
  const uint64_t bytes = rows * cols * kernels::ElementBytes(output_type);
  return RowError(FloatsOf(output_type, bed.Take(device_output, bytes)),
                  ExpectedOutputs(numbers, args), cols);
}

// Each kind of product of a model, alone and in the largest step.
double ErrorOfAll(TestBed& bed, const ModelConfig& config, ElementType type,
                  const MultiplyFunction& multiply) {
  const ProductEnd up = config.gated_mlp ? ProductEnd::kGate : ProductEnd::kActivate;
  double worst = 0;
  for (const uint64_t rows : {uint64_t{1}, kMostFusedRows}) {
    for (const auto& [input, end] :
         {std::pair(ProductInput::kNormed, ProductEnd::kStore),
          std::pair(ProductInput::kNormed, up), std::pair(ProductInput::kRounded, ProductEnd::kAdd),
          std::pair(ProductInput::kFloats, ProductEnd::kAdd),
          std::pair(ProductInput::kRounded, up)}) {
      worst = std::max(worst, ErrorOf(bed, config, type, rows, input, end, multiply));
    }
  }
  return worst;
}

struct ProductShape {
  uint64_t inputs;
  uint64_t outputs;
  ProductInput input;
  ProductEnd end;
};

// The products that a layer of the model fuses.
std::vector<ProductShape> ShapesOf(const ModelConfig& config) {
  const LayerConfig& layer = config.layers.front();
  const uint64_t hidden = config.hidden_size;
  const uint64_t middle = config.intermediate_size;
  const uint64_t keys = uint64_t{2} * layer.num_kv_heads * config.head_dim;
  uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const ProductEnd up = config.gated_mlp ? ProductEnd::kGate : ProductEnd::kActivate;
  const uint64_t up_outputs = config.gated_mlp ? 2 * middle : middle;
  if (config.post_norms) return {{hidden, up_outputs, ProductInput::kRounded, up}};
  std::vector<ProductShape> shapes;
  if (config.latent.has_value()) {
    queries = uint64_t{config.num_heads} * config.latent->value_dim;
  } else {
    shapes.push_back({hidden, queries + keys, ProductInput::kNormed, ProductEnd::kStore});
  }
  shapes.push_back({queries, hidden, ProductInput::kRounded, ProductEnd::kAdd});
  if (layer.has_experts) return shapes;
  shapes.push_back({hidden, up_outputs, ProductInput::kNormed, up});
  shapes.push_back({middle, hidden, ProductInput::kRounded, ProductEnd::kAdd});
  return shapes;
}

// The time of the fused products of a layer, with one row. The weights are as many as the request
// gives for timing, so that they come from memory: those of some layers, or a part of each product.
double SecondsOfLayers(
    TestBed& bed, const GpuSelfTestRequest& request, ElementType type,
    const std::function<MultiplyFunction(TestBed& bed, uint64_t inputs, uint64_t outputs)>& make) {
  constexpr uint64_t kMostTimedLayers = 8;
  constexpr uint64_t kOutputStep = 16;
  const ModelConfig& config = request.config;
  std::vector<ProductShape> shapes = ShapesOf(config);
  uint64_t all = 0, inputs = 0, outputs = 0;
  for (const ProductShape& shape : shapes) all += shape.inputs * shape.outputs * sizeof(uint16_t);
  if (all == 0) return 0;
  for (ProductShape& shape : shapes) {
    const double share = std::min(1.0, static_cast<double>(request.timing_bytes) / double(all));
    const auto some = static_cast<uint64_t>(static_cast<double>(shape.outputs) * share);
    shape.outputs =
        std::min(shape.outputs, std::max(some / kOutputStep, uint64_t{1}) * kOutputStep);
    inputs = std::max(inputs, shape.inputs);
    outputs = std::max(outputs, shape.outputs);
  }
  all = 0;
  for (const ProductShape& shape : shapes) all += shape.inputs * shape.outputs * sizeof(uint16_t);
  const uint64_t layers = std::clamp(request.timing_bytes / all, uint64_t{1}, kMostTimedLayers);

  std::byte* const weights = bed.Allocate<std::byte>(layers * all);
  float* const input = bed.Allocate<float>(inputs);
  float* const output = bed.Allocate<float>(outputs);
  float* const norm = bed.Allocate<float>(inputs);
  std::vector<FusedProductArgs> products;
  uint64_t at = 0;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (const auto& [from, to, kind, end] : shapes) {
      const uint64_t cols = end == ProductEnd::kGate ? to / 2 : to;
      const bool is_rounded = end == ProductEnd::kGate || end == ProductEnd::kActivate;
      const ElementType input_type = kind == ProductInput::kRounded ? type : ElementType::kFloat32;
      products.push_back(
          {.type = type,
           .weights = weights + at,
           .inputs = from,
           .outputs = to,
           .input = {.data = input, .stride = from, .rows = 1, .cols = from, .type = input_type},
           .norm = kind == ProductInput::kNormed ? norm : nullptr,
           .norm_bias = kind == ProductInput::kNormed && config.layer_norms ? norm : nullptr,
           .eps = config.rms_norm_eps,
           .end = end,
           .gate = GateOf(config),
           .output = {.data = output,
                      .stride = cols,
                      .rows = 1,
                      .cols = cols,
                      .type = is_rounded ? type : ElementType::kFloat32}});
      at += from * to * sizeof(uint16_t);
      if (!CanLaunchFusedProduct(products.back())) products.pop_back();
    }
  }
  if (products.empty() || !bed.status().ok()) return 0;
  const MultiplyFunction multiply = make(bed, inputs, outputs);
  return bed.SecondsOf([&] {
    absl::Status status;
    for (const FusedProductArgs& args : products) {
      if (status.ok()) status = multiply(args);
    }
    return status;
  });
}

}  // namespace

std::vector<SelfTestItem> FusedProductItems(const GpuSelfTestRequest& request,
                                            DeviceProducts& products,
                                            const TestedKernels& kernels) {
  std::vector<ElementType> types = {ElementType::kBFloat16};
  if (request.compute == ComputeType::kFloat32) return {};
  if (request.compute == ComputeType::kAuto) types.push_back(ElementType::kFloat16);
  const auto fused = [&kernels](TestBed& bed, uint64_t, uint64_t) -> MultiplyFunction {
    return [&bed, &kernels](const FusedProductArgs& args) {
      return kernels::cuda::StatusOf(
          "fused product",
          kernels.fused_product(args, bed.device().num_multiprocessors(), bed.stream()));
    };
  };
  const auto separate = [&products, &kernels](TestBed& bed, uint64_t inputs,
                                              uint64_t outputs) -> MultiplyFunction {
    const auto them = std::make_shared<SeparateProducts>(bed, products, kernels, inputs, outputs);
    return [them](const FusedProductArgs& args) { return them->Run(args); };
  };
  SelfTestItem item = {
      .part = kFusedProducts, .needed = false, .tolerance = kFusedProductTolerance};
  std::vector<SelfTestItem> items;
  item.family = kFamilySm80;
  item.test = [&request, types, fused](TestBed& bed) {
    Measured measured;
    for (const ElementType type : types) {
      measured.error =
          std::max(measured.error, ErrorOfAll(bed, request.config, type, fused(bed, 0, 0)));
    }
    measured.seconds = SecondsOfLayers(bed, request, types.front(), fused);
    return measured;
  };
  items.push_back(item);
  item.family = kFamilyCublasLt;
  item.test = [&request, &products, types, separate](TestBed& bed) {
    // The other kernels are tested by their own parts.
    const auto multiply = [&](const FusedProductArgs& args) {
      return products.Multiply(LibraryProduct(args, args.input, args.output), bed.stream());
    };
    return Measured{.error = ErrorOf(bed, request.config, types.front(), /*rows=*/1,
                                     ProductInput::kRounded, ProductEnd::kStore, multiply),
                    .seconds = SecondsOfLayers(bed, request, types.front(), separate)};
  };
  items.push_back(item);
  return items;
}

}  // namespace pagoda::cuda
