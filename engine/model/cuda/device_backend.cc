#include "engine/model/cuda/device_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/cuda/device_weights.h"
#include "engine/model/cuda/row_kernels.h"
#include "engine/model/cuda/step_upload.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/runtime.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementBytes;
using kernels::ElementType;

struct DeviceEmbedding : EmbeddingWeights {
  ElementType type = ElementType::kFloat32;
  std::shared_ptr<DeviceBuffer> table;  // Shared with the head if they are tied.
};

struct DeviceVector : VectorWeights {
  std::shared_ptr<DeviceBuffer> values;
};

class DeviceLinear : public LinearWeights {
 public:
  DeviceLinear(uint64_t inputs, uint64_t outputs) : inputs_(inputs), outputs_(outputs) {}
  uint64_t inputs() const override { return inputs_; }
  uint64_t outputs() const override { return outputs_; }

  ElementType type = ElementType::kFloat32;
  std::shared_ptr<DeviceBuffer> matrix;  // [outputs][inputs]; shared if it is tied.
  std::shared_ptr<DeviceBuffer> bias;    // [outputs], or null.

 private:
  const uint64_t inputs_;
  const uint64_t outputs_;
};

const float* ValuesOf(const VectorWeights& weights) {
  return static_cast<const DeviceVector&>(weights).values->as<float>();
}

bool IsOf16Bits(ElementType type) {
  return type == ElementType::kFloat16 || type == ElementType::kBFloat16;
}

class DeviceBackend : public Backend {
 public:
  DeviceBackend(std::unique_ptr<ComputeDevice> device, std::unique_ptr<DeviceProducts> products,
                ComputeType compute, const AttentionChoice& attention)
      : compute_(compute),
        attention_(attention),
        device_(std::move(device)),
        products_(std::move(products)),
        weights_(device_.get()),
        step_(device_.get()),
        frequencies_(device_.get(), MemorySide::kDevice),
        angles_(device_.get(), MemorySide::kDevice),
        workspace_(device_.get(), MemorySide::kDevice),
        rounded_(device_.get(), MemorySide::kDevice),
        logits_(device_.get(), MemorySide::kPinned) {}

  std::string description() const override {
    std::string types;
    for (const auto& [type, name] :
         {std::pair(ElementType::kBFloat16, "bf16"), std::pair(ElementType::kFloat16, "fp16"),
          std::pair(ElementType::kFloat32, "fp32")}) {
      if (!multiplies_[static_cast<size_t>(type)]) continue;
      absl::StrAppend(&types, types.empty() ? "" : " and ", name);
    }
    return absl::StrCat(device_->description(), ", products of ", types.empty() ? "none" : types,
                        " by ", products_->name());
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    uint64_t outputs = 0;
    for (const TensorInfo& matrix : matrices) outputs += matrix.shape[0];
    auto made = std::make_unique<DeviceLinear>(matrices.front().shape[1], outputs);
    made->type = FactorTypeOf(matrices);
    absl::StatusOr<std::shared_ptr<DeviceBuffer>> matrix = weights_.Matrix(matrices, made->type);
    if (!matrix.ok()) return matrix.status();
    made->matrix = *std::move(matrix);
    if (!bias.empty()) {
      absl::StatusOr<std::shared_ptr<DeviceBuffer>> values = weights_.Floats(bias);
      if (!values.ok()) return values.status();
      made->bias = *std::move(values);
    }
    multiplies_[static_cast<size_t>(made->type)] = true;
    return made;
  }

  absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) override {
    auto made = std::make_unique<DeviceEmbedding>();
    made->type = ExactTypeOf(matrix.type);
    absl::StatusOr<std::shared_ptr<DeviceBuffer>> table = weights_.Matrix({&matrix, 1}, made->type);
    if (!table.ok()) return table.status();
    made->table = *std::move(table);
    return made;
  }

  absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) override {
    auto made = std::make_unique<DeviceVector>();
    absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer = weights_.Floats(values);
    if (!buffer.ok()) return buffer.status();
    made->values = *std::move(buffer);
    return made;
  }

  absl::StatusOr<FloatMemory> Allocate(uint64_t elements) override {
    const absl::StatusOr<std::byte*> memory =
        device_->Allocate(MemorySide::kDevice, std::max<uint64_t>(elements, 1) * sizeof(float));
    if (!memory.ok()) return memory.status();
    return FloatMemory(reinterpret_cast<float*>(*memory), [device = device_.get()](float* data) {
      if (data != nullptr) device->Free(MemorySide::kDevice, reinterpret_cast<std::byte*>(data));
    });
  }

  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    input_ = &input;
    half_dim_ = config.head_dim / 2;
    status_ = device_->MakeCurrent();
    Keep("upload", [&] { return step_.Upload(input, config); });
    Keep("angles", [&] { return MakeAngles(config); });
    uint64_t workspace_bytes = 0;
    for (const StepUpload::Plan& plan : step_.plans()) {
      workspace_bytes =
          std::max(workspace_bytes,
                   kernels::cuda::WorkspaceBytes(plan.capacity, config.num_heads, config.head_dim));
    }
    Keep("workspace", [&] { return workspace_.Grow(workspace_bytes); });
  }

  void Embed(const EmbeddingWeights& weights, float scale, const RowsView& output) override {
    const auto& embedding = static_cast<const DeviceEmbedding&>(weights);
    Run("embedding", [&] {
      return LaunchEmbed(embedding.type, embedding.table->data(), step_.tokens().data(), scale,
                         output, device_->stream());
    });
  }

  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override {
    const auto& linear = static_cast<const DeviceLinear&>(weights);
    DeviceProduct product = {.type = linear.type,
                             .rows = input.rows,
                             .inputs = linear.inputs(),
                             .outputs = linear.outputs(),
                             .input = input.data,
                             .input_stride = input.stride,
                             .weights = linear.matrix->data(),
                             .output = output.data,
                             .output_stride = output.stride};
    if (linear.type != ElementType::kFloat32) {
      product.input = Rounded(linear.type, input);
      product.input_stride = input.cols;
    }
    Keep("product", [&] { return products_->Multiply(product, device_->stream()); });
    if (linear.bias == nullptr) return;
    Run("bias", [&] { return LaunchAddBias(linear.bias->as<float>(), output, device_->stream()); });
  }

  void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
               const RowsView& output) override {
    Run("norm",
        [&] { return LaunchRmsNorm(ValuesOf(weights), eps, input, output, device_->stream()); });
  }

  void Rotate(uint32_t rotary, const VectorWeights* norm, float eps, uint32_t head_dim,
              const RowsView& heads) override {
    PAGODA_CHECK(head_dim == 2 * half_dim_, "all heads of a model have one size");
    Run("rotation", [&] {
      return LaunchRotate(Angles(rotary), norm == nullptr ? nullptr : ValuesOf(*norm), eps, heads,
                          device_->stream());
    });
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    Keep("cache write", [&] {
      return kernels::cuda::WriteCache({.rows = {.keys = keys.data,
                                                 .values = values.data,
                                                 .key_token_stride = keys.stride,
                                                 .value_token_stride = values.stride},
                                        .token_slots = step_.token_slots(window_index),
                                        .kv = kv},
                                       device_->stream());
    });
  }

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    if (!status_.ok()) return;
    const StepUpload::Plan& plan = PlanFor(shape.window_index, kv.num_kv_heads);
    kernels::PagedAttentionParams params = {
        .query = queries.data,
        .output = output.data,
        .query_token_stride = queries.stride,
        .output_token_stride = output.stride,
        .num_heads = shape.num_heads,
        .scale = shape.scale,
        .soft_cap = shape.soft_cap,
        .mask = plan.mask,
        .query_starts = step_.query_starts(),
        .context_lengths = step_.context_lengths(),
        .block_tables = step_.block_tables(shape.window_index),
        .block_table_stride = input_->windows[shape.window_index].block_table_stride,
        .kv = kv};
    const bool rounds = IsOf16Bits(kv.type);
    if (rounds) {
      // The outputs overwrite the queries.
      params.query = params.output = Rounded(kv.type, queries);
      params.query_type = kv.type;
      params.query_token_stride = params.output_token_stride = queries.cols;
    }
    Keep("paged attention", [&] {
      return kernels::cuda::PagedAttention(params, {.stream = device_->stream(),
                                                    .plan = step_.Encoded(plan),
                                                    .capacity = plan.capacity,
                                                    .workspace = workspace_.data(),
                                                    .workspace_bytes = workspace_.bytes(),
                                                    .kernels = attention_.decode,
                                                    .long_kernels = attention_.prefill});
    });
    if (!rounds) return;
    Run("attention's output",
        [&] { return LaunchWiden(kv.type, params.output, output, device_->stream()); });
  }

  void Gate(Activation activation, const RowsView& gate_up, const RowsView& output) override {
    const GateKind kind = activation == Activation::kSilu ? GateKind::kSilu : GateKind::kGeluTanh;
    Run("gate", [&] { return LaunchGate(kind, gate_up, output, device_->stream()); });
  }

  void Add(const RowsView& addend, const RowsView& sum) override {
    Run("addition", [&] { return LaunchAdd(addend, sum, device_->stream()); });
  }

  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    Run("choice of rows",
        [&] { return LaunchTakeRows(rows.data(), input, output, device_->stream()); });
  }

  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    const uint64_t elements = logits.rows * logits.cols;
    if (elements > 0) {
      if (soft_cap != 0.0f) {
        Run("soft cap", [&] { return LaunchSoftCap(soft_cap, logits, device_->stream()); });
      }
      Keep("logits", [&] { return logits_.Grow(elements * sizeof(float)); });
      Keep("logits",
           [&] { return device_->Copy(logits_.data(), logits.data, elements * sizeof(float)); });
    }
    // Waits even after a failure, because the next step writes memory that kernels of this one
    // could still read.
    const absl::Status ended = device_->Wait();
    Keep("step", [&] { return ended; });
    if (!status_.ok()) return status_;
    return absl::Span<const float>(logits_.as<float>(), elements);
  }

 private:
  ElementType FactorTypeOf(absl::Span<const TensorInfo> matrices) const {
    if (compute_ == ComputeType::kFloat32) return ElementType::kFloat32;
    if (compute_ == ComputeType::kBFloat16) return ElementType::kBFloat16;
    const ElementType first = ExactTypeOf(matrices.front().type);
    const bool same = std::all_of(matrices.begin(), matrices.end(), [&](const TensorInfo& matrix) {
      return ExactTypeOf(matrix.type) == first;
    });
    return same ? first : ElementType::kFloat32;
  }

  // Keeps the first failure, and does nothing after it. A refusal of the engine's arguments is the
  // engine's fault, not its caller's; a lack of memory is not.
  template <class Work>
  void Keep(const char* operation, const Work& work) {
    if (!status_.ok()) return;
    const absl::Status status = work();
    if (status.ok()) return;
    const std::string message = absl::StrCat(operation, ": ", status.message());
    status_ = ReasonOf(status) == Reason::kOutOfMemory ? MakeError(Reason::kOutOfMemory, message)
                                                       : absl::InternalError(message);
  }
  // The same for a launch.
  template <class Launch>
  void Run(const char* operation, const Launch& launch) {
    if (status_.ok()) status_ = kernels::cuda::StatusOf(operation, launch());
  }

  // The rows rounded to 16 bits, contiguous, valid until the next call. Null after a failure.
  void* Rounded(ElementType type, const RowsView& rows) {
    Keep("rounding", [&] { return rounded_.Grow(rows.rows * rows.cols * ElementBytes(type)); });
    Run("rounding", [&] { return LaunchRound(type, rows, rounded_.data(), device_->stream()); });
    return rounded_.data();
  }

  // The angles of all rotary embeddings: [rotaries][cosines, sines][N][half_dim].
  absl::Status MakeAngles(const ModelConfig& config) {
    const uint64_t elements = 2 * input_->tokens.size() * half_dim_;
    absl::Status status = angles_.Grow(config.rotaries.size() * elements * sizeof(float));
    if (status.ok() && !has_frequencies_) status = BringFrequencies(config);
    for (uint32_t r = 0; r < config.rotaries.size() && status.ok(); ++r) {
      status = kernels::cuda::StatusOf(
          "angles",
          LaunchAngles(step_.positions().data(), input_->tokens.size(),
                       frequencies_.as<float>() + r * half_dim_, Angles(r), device_->stream()));
    }
    return status;
  }

  AnglesView Angles(uint32_t rotary) const {
    const uint64_t elements = input_->tokens.size() * half_dim_;
    float* const cosines = angles_.as<float>() + 2 * rotary * elements;
    return {.cosines = cosines, .sines = cosines + elements, .half_dim = half_dim_};
  }

  // Called once. The frequencies are [rotaries][half_dim].
  absl::Status BringFrequencies(const ModelConfig& config) {
    std::vector<float> all;
    for (const RotaryConfig& rotary : config.rotaries) {
      const std::vector<float> frequencies = RotaryFrequencies(rotary, config.head_dim);
      all.insert(all.end(), frequencies.begin(), frequencies.end());
    }
    const absl::Status status = weights_.FloatsInto(all, frequencies_);
    has_frequencies_ = status.ok();
    return status;
  }

  const StepUpload::Plan& PlanFor(uint32_t window_index, uint32_t num_kv_heads) const {
    const auto plan = std::find_if(step_.plans().begin(), step_.plans().end(), [&](const auto& p) {
      return p.window_index == window_index && p.num_kv_heads == num_kv_heads;
    });
    PAGODA_CHECK(plan != step_.plans().end(), "the step has a plan for each of its layers");
    return *plan;
  }

  const ComputeType compute_;
  const AttentionChoice attention_;
  const std::unique_ptr<ComputeDevice> device_;  // Before everything in its memory.
  const std::unique_ptr<DeviceProducts> products_;
  WeightUpload weights_;
  bool multiplies_[3] = {};  // By ElementType: whether a matrix has that type.

  // Kept from step to step.
  StepUpload step_;
  DeviceBuffer frequencies_;
  bool has_frequencies_ = false;
  DeviceBuffer angles_;
  DeviceBuffer workspace_;  // For attention.
  DeviceBuffer rounded_;
  DeviceBuffer logits_;
  uint32_t half_dim_ = 0;

  // Of the current step.
  const ModelInput* input_ = nullptr;
  absl::Status status_;
};

}  // namespace

std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<ComputeDevice> device,
                                           std::unique_ptr<DeviceProducts> products,
                                           ComputeType compute, const AttentionChoice& attention) {
  return std::make_unique<DeviceBackend>(std::move(device), std::move(products), compute,
                                         attention);
}

}  // namespace pagoda::cuda
