#include "engine/model/cuda/device_backend.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/cuda/device/device_weights.h"
#include "engine/model/cuda/kernels/fused_kernels.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/products/converted_rows.h"
#include "engine/model/cuda/products/fused_product_args.h"
#include "engine/model/cuda/step/step_angles.h"
#include "engine/model/cuda/step/step_graphs.h"
#include "engine/model/cuda/step/step_lists.h"
#include "engine/model/cuda/step/step_sampling.h"
#include "engine/model/cuda/step/step_upload.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/device/launch_record.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;
using kernels::IsFloat8;

const float* ValuesOrNull(const VectorWeights* weights) {
  return weights == nullptr ? nullptr : ValuesOf(*weights);
}

class DeviceBackend : public Backend {
 public:
  DeviceBackend(std::unique_ptr<ComputeDevice> device, std::unique_ptr<DeviceProducts> products,
                ComputeType compute, const AttentionChoice& attention, const FusedChoice& fused,
                GpuGraphs graphs)
      : compute_(compute),
        attention_(attention),
        fused_(fused),
        device_(std::move(device)),
        products_(std::move(products)),
        weights_(device_.get()),
        step_(device_.get()),
        angles_(device_.get(), &weights_),
        workspace_(device_.get(), MemorySide::kDevice),
        converted_(device_.get()),
        logits_(device_.get(), MemorySide::kPinned),
        sampling_(device_.get()),
        read_back_(device_.get(), MemorySide::kPinned),
        lists_(device_.get()),
        graphs_(device_.get(), graphs) {}

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

  // Each number of rows costs cuBLASLt's choice of an algorithm, and often the load of its code. So
  // products have few: up to 8 powers of two, then multiples of 8 or of about a sixteenth.
  uint64_t RoomFor(uint64_t rows) const override {
    const uint64_t power = std::bit_ceil(rows);
    if (rows <= 8) return rows == 0 ? 0 : power;
    const uint64_t step = std::max<uint64_t>(8, power / 16);
    return (rows + step - 1) / step * step;
  }

  ElementType FactorType(const LinearWeights& weights) const override {
    return fused_.rows ? static_cast<const DeviceLinear&>(weights).type : ElementType::kFloat32;
  }
  ElementType QueryType(const kernels::KvLayer& kv) const override {
    if (!fused_.heads) return ElementType::kFloat32;
    return IsFloat8(kv.type) ? ElementType::kBFloat16 : kv.type;
  }

  uint64_t StepRows(const ModelInput& input, const ModelConfig& config) const override {
    return graphs_.on() && CanReplay(input, config) ? RoomFor(input.tokens.size())
                                                    : input.tokens.size();
  }

  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    input_ = &input;
    status_ = device_->MakeCurrent();
    replayable_ = graphs_.on() && CanReplay(input, config);
    Keep("upload", [&] {
      return replayable_ ? step_.UploadRounded(input, config, RoomFor(input.tokens.size()))
                         : step_.Upload(input, config);
    });
    Keep("angles", [&] { return angles_.Make(input, step_.positions(), config); });
    uint64_t workspace_bytes = 0;
    for (const StepUpload::Plan& plan : step_.plans()) {
      workspace_bytes =
          std::max(workspace_bytes,
                   kernels::cuda::WorkspaceBytes(plan.capacity, config.num_heads, config.head_dim));
    }
    Keep("workspace", [&] { return workspace_.Grow(workspace_bytes); });
  }

  void RunOperations(absl::Span<const kernels::KvLayer> pools,
                     const std::function<void()>& operations) override {
    if (!status_.ok() || !replayable_) return operations();
    const absl::Status ran = graphs_.Run(step_.shape(), pools, [&] {
      status_ = absl::OkStatus();
      operations();
      return status_;
    });
    status_ = ran;
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
    MultiplyFactors(linear, Converted(linear.type, input), output);
  }

  // Inputs that are columns of the same rows, as those of heads, are converted together.
  void MultiplyEach(absl::Span<const ProductOfRows> products) override {
    if (products.empty()) return;
    const RowsView& first = products.front().input;
    const ElementType type = static_cast<const DeviceLinear&>(*products.front().weights).type;
    const float* end = first.data;
    bool together = type != ElementType::kFloat32;
    for (const ProductOfRows& p : products) {
      together = together && static_cast<const DeviceLinear&>(*p.weights).type == type &&
                 p.input.type == ElementType::kFloat32 && p.input.rows == first.rows &&
                 p.input.stride == first.stride && p.input.data >= first.data &&
                 p.input.data + p.input.cols <= first.data + first.stride;
      end = std::max<const float*>(end, p.input.data + p.input.cols);
    }
    if (!together) return Backend::MultiplyEach(products);
    RowsView all = first;
    all.cols = static_cast<uint64_t>(end - first.data);
    const RowsView converted = Converted(type, all);
    for (const ProductOfRows& p : products) {
      MultiplyFactors(
          static_cast<const DeviceLinear&>(*p.weights),
          converted.Columns(static_cast<uint64_t>(p.input.data - first.data), p.input.cols),
          p.output);
    }
  }

  bool CanFuse(const FusedProduct& product) const override {
    return fused_.products && CanLaunchFusedProduct(FusedProductArgsOf(product));
  }
  void MultiplyFused(const FusedProduct& product) override {
    Run("fused product", [&] {
      return LaunchFusedProduct(FusedProductArgsOf(product), device_->num_multiprocessors(),
                                device_->stream());
    });
  }

  void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
               const RowsView& output) override {
    Run("norm",
        [&] { return LaunchRmsNorm(ValuesOf(weights), eps, input, output, device_->stream()); });
  }

  void LayerNorm(const VectorWeights& weights, const VectorWeights& bias, float eps,
                 const RowsView& input, const RowsView& output) override {
    Run("norm", [&] {
      return LaunchLayerNorm(ValuesOf(weights), ValuesOf(bias), eps, input, output,
                             device_->stream());
    });
  }

  void AddAndNorm(const NormShape* addend_norm, const RowsView& addend, const RowsView& sum,
                  const NormShape& norm, const RowsView& output) override {
    // LayerNorm has no fused kernel.
    if (!fused_.rows || norm.bias != nullptr) {
      return Backend::AddAndNorm(addend_norm, addend, sum, norm, output);
    }
    Run("addition and norm", [&] {
      return LaunchAddNorm(
          {.addend_norm = addend_norm == nullptr ? nullptr : ValuesOf(*addend_norm->weights),
           .addend_eps = addend_norm == nullptr ? 0.0f : addend_norm->eps,
           .norm = ValuesOf(*norm.weights),
           .eps = norm.eps,
           .addend = addend,
           .sum = sum,
           .output = output},
          device_->stream());
    });
  }

  void Rotate(const RotationShape& shape, const VectorWeights* norm, float eps,
              const RowsView& heads) override {
    Run("rotation", [&] {
      return LaunchRotate(angles_.RotationOf(shape), angles_.angles(shape), ValuesOrNull(norm), eps,
                          heads, device_->stream());
    });
  }

  void PlaceHeads(const LayerHeads& heads, const kernels::KvLayer& kv,
                  const RowsView& queries) override {
    if (!status_.ok()) return;
    if (!fused_.heads) return Backend::PlaceHeads(heads, kv, queries);
    // Scales are fitted before anything is written.
    const bool is_scaled = IsFloat8(kv.type);
    PlaceHeadsArgs args = {.rotation = {.head_dim = kv.head_dim},
                           .query_norm = ValuesOrNull(heads.query_norm),
                           .key_norm = ValuesOrNull(heads.key_norm),
                           .eps = heads.eps,
                           .queries = heads.queries,
                           .keys = heads.keys,
                           .values = heads.values,
                           .placed = queries,
                           .token_slots = step_.token_slots(heads.window_index).data(),
                           .kv = is_scaled ? kernels::KvLayer{} : kv};
    if (heads.rotation != nullptr) {
      args.rotation = angles_.RotationOf(*heads.rotation);
      args.angles = angles_.angles(*heads.rotation);
    }
    Run("heads", [&] { return LaunchPlaceHeads(args, device_->stream()); });
    if (is_scaled) WriteCache(heads.window_index, heads.keys, heads.values, kv);
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    const kernels::CacheWriteParams params = {.rows = {.keys = keys.data,
                                                       .values = values.data,
                                                       .key_token_stride = keys.stride,
                                                       .value_token_stride = values.stride},
                                              .token_slots = step_.token_slots(window_index),
                                              .kv = kv};
    Keep("scales", [&] { return kernels::cuda::FitScales(params, device_->stream()); });
    Keep("cache write", [&] { return kernels::cuda::WriteCache(params, device_->stream()); });
  }

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    if (!status_.ok()) return;
    const StepUpload::Plan& plan = PlanFor(shape.window_index, kv.num_kv_heads);
    // Over 8 bits too: the fast kernels take queries of 16 bits only.
    const ElementType type = IsFloat8(kv.type) ? ElementType::kBFloat16 : kv.type;
    ConvertedRows::AttentionRows rows = {queries, output};
    Keep("rounding", [&] { return converted_.ForAttention(type, &rows); });
    const kernels::PagedAttentionParams params = {
        .query = rows.queries.data,
        .output = rows.output.data,
        .query_type = type,
        .query_token_stride = rows.queries.stride,
        .output_token_stride = rows.output.stride,
        .num_heads = shape.num_heads,
        .scale = shape.scale,
        .soft_cap = shape.soft_cap,
        .alibi_slopes = ValuesOrNull(shape.alibi_slopes),
        .sink_logits = ValuesOrNull(shape.sinks),
        .mask = plan.mask,
        .query_starts = step_.query_starts(),
        .context_lengths = step_.context_lengths(),
        .block_tables = step_.block_tables(shape.window_index),
        .block_table_stride = step_.block_table_stride(shape.window_index),
        .kv = kv};
    Keep("paged attention", [&] {
      return kernels::cuda::PagedAttention(params, {.stream = device_->stream(),
                                                    .plan = step_.Encoded(plan),
                                                    .capacity = plan.capacity,
                                                    .workspace = workspace_.data(),
                                                    .workspace_bytes = workspace_.bytes(),
                                                    .kernels = attention_.decode,
                                                    .long_kernels = attention_.prefill});
    });
    if (output.type == type) return;
    Run("attention's output", [&] {
      return type == ElementType::kFloat32
                 ? LaunchRound(output.type, rows.output, output.data, device_->stream())
                 : LaunchWiden(rows.output, output, device_->stream());
    });
  }

  void Gate(const GateShape& shape, const RowsView& gate_up, const RowsView& output) override {
    Run("gate", [&] { return LaunchGate(GateArgsOf(shape), gate_up, output, device_->stream()); });
  }

  void Activate(Activation activation, const RowsView& rows) override {
    PAGODA_CHECK(activation == Activation::kGeluTanh, "a plain MLP has gelu");
    Run("activation", [&] { return LaunchGeluTanh(rows, device_->stream()); });
  }

  void AddRows(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
               const RowsView& addend, const RowsView& sum) override {
    AddendLists lists;
    Keep("lists of rows", [&] { return OutsideGraph(); });
    Keep("lists of rows", [&] { return lists_.Upload(rows, factors, sum.rows, lists); });
    Run("addition of rows", [&] { return LaunchAddRows(lists, addend, sum, device_->stream()); });
  }

  void Clear(const RowsView& output) override {
    Run("clearing", [&] { return LaunchClear(output, device_->stream()); });
  }

  void CopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                 const HeadsView& output) override {
    Run("copy of heads",
        [&] { return LaunchCopyHeads(num_heads, count, input, output, device_->stream()); });
  }

  absl::Span<const float> ToHost(const RowsView& rows) override {
    PAGODA_CHECK(rows.stride == rows.cols, "the rows are contiguous");
    const uint64_t elements = rows.rows * rows.cols;
    Keep("rows", [&] { return OutsideGraph(); });
    Keep("rows", [&] { return read_back_.Grow(elements * sizeof(float)); });
    Keep("rows",
         [&] { return device_->Copy(read_back_.data(), rows.data, elements * sizeof(float)); });
    Keep("rows", [&] { return WaitForAll(); });
    if (!status_.ok()) return {};
    return absl::Span<const float>(read_back_.as<float>(), elements);
  }

  void Add(const RowsView& addend, const RowsView& sum) override {
    Run("addition", [&] { return LaunchAdd(addend, sum, device_->stream()); });
  }

  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    Keep("choice of rows", [&] { return OutsideGraph(); });
    Run("choice of rows",
        [&] { return LaunchTakeRows(rows.data(), input, output, device_->stream()); });
  }

  StepGraphCounts graph_counts() const override { return graphs_.counts(); }

  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    CapLogits(soft_cap, logits);
    CopyLogits(logits, [](uint64_t) { return true; });
    return WaitForLogits(logits);
  }

  absl::StatusOr<ModelOutput> EndStepWithDraws(float soft_cap, const RowsView& logits) override {
    const std::vector<TokenDraw>& draws = input_->draws;
    if (!fused_.draws || logits.rows == 0 || !StepSampling::CanDraw(draws, logits.cols)) {
      return Backend::EndStepWithDraws(soft_cap, logits);
    }
    CapLogits(soft_cap, logits);
    Keep("choice", [&] { return sampling_.Draw(logits, draws, step_.draws().data()); });
    const auto wanted = [&](uint64_t row) { return draws[row].kind == TokenDraw::Kind::kLogits; };
    CopyLogits(logits, wanted);
    absl::StatusOr<absl::Span<const float>> ended = WaitForLogits(logits);
    if (!ended.ok()) return ended.status();
    ModelOutput output(*ended);
    output.tokens = sampling_.tokens();
    // The few rows that the device could not choose a token of.
    const auto left = [&](uint64_t row) { return output.has_logits(row) && !wanted(row); };
    bool any = false;
    for (uint64_t row = 0; row < logits.rows; ++row) any = any || left(row);
    if (!any) return output;
    CopyLogits(logits, left);
    ended = WaitForLogits(logits);
    if (!ended.ok()) return ended.status();
    return output;
  }

 private:
  void CapLogits(float soft_cap, const RowsView& logits) {
    if (soft_cap == 0.0f || logits.rows == 0) return;
    Run("soft cap", [&] { return LaunchSoftCap(soft_cap, logits, device_->stream()); });
  }

  // Starts the copies of the wanted rows to their places in logits_, which has room for all.
  template <class Wanted>
  void CopyLogits(const RowsView& logits, const Wanted& wanted) {
    Keep("logits", [&] { return logits_.Grow(logits.rows * logits.cols * sizeof(float)); });
    for (uint64_t begin = 0, end = 0; begin < logits.rows; begin = end) {
      end = begin + 1;
      if (!wanted(begin)) continue;
      while (end < logits.rows && wanted(end)) ++end;
      Keep("logits", [&] {
        return device_->Copy(logits_.as<float>() + begin * logits.cols,
                             logits.Rows(begin, end - begin).data,
                             (end - begin) * logits.cols * sizeof(float));
      });
    }
  }

  // The logits on the host, when the step so far has ended.
  absl::StatusOr<absl::Span<const float>> WaitForLogits(const RowsView& logits) {
    // Waits even after a failure, because the next step writes memory that kernels of this one
    // could still read.
    const absl::Status ended = WaitForAll();
    Keep("step", [&] { return ended; });
    if (!status_.ok()) return status_;
    return absl::Span<const float>(logits_.as<float>(), logits.rows * logits.cols);
  }

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

  // Multiplies factors that have the matrix's type.
  void MultiplyFactors(const DeviceLinear& linear, const RowsView& factors,
                       const RowsView& output) {
    const uint64_t padded = RoomFor(factors.rows);
    const bool has_room = std::min(factors.room, output.room) >= padded;
    const DeviceProduct product = {
        .type = linear.type,
        .rows = has_room ? padded : factors.rows,
        .inputs = linear.inputs(),
        .outputs = linear.outputs(),
        .input = factors.data,
        .input_stride = factors.stride,
        .weights = linear.matrix->data(),
        .bias = linear.bias == nullptr ? nullptr : linear.bias->as<float>(),
        .output = output.data,
        .output_stride = output.stride};
    kernels::cuda::RecordLaunch("product", 0, 0, 0, product);
    Keep("product", [&] { return products_->Multiply(product, device_->stream()); });
  }

  // The rows in this type, valid until the next call.
  RowsView Converted(ElementType type, const RowsView& rows) {
    RowsView converted = rows;
    Keep("rounding",
         [&] { return converted_.Convert(type, rows, RoomFor(rows.rows), &converted); });
    return converted;
  }

  // A graph would keep the values that an operation takes from the host.
  absl::Status OutsideGraph() const {
    if (!graphs_.capturing()) return absl::OkStatus();
    return absl::InternalError("it takes values of the host, which a graph would keep");
  }

  absl::Status WaitForAll() {
    lists_.Waited();
    return device_->Wait();
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
  const FusedChoice fused_;
  const std::unique_ptr<ComputeDevice> device_;  // Before everything in its memory.
  const std::unique_ptr<DeviceProducts> products_;
  WeightUpload weights_;
  bool multiplies_[3] = {};  // By ElementType: whether a matrix has that type.

  // Kept from step to step.
  StepUpload step_;
  StepAngles angles_;
  DeviceBuffer workspace_;  // For attention.
  ConvertedRows converted_;
  DeviceBuffer logits_;
  StepSampling sampling_;
  DeviceBuffer read_back_;
  StepLists lists_;
  StepGraphs graphs_;

  // The state of the current step.
  const ModelInput* input_ = nullptr;
  bool replayable_ = false;  // Its arrays have the rounded sizes of a step that can be replayed.
  absl::Status status_;
};

}  // namespace

std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<ComputeDevice> device,
                                           std::unique_ptr<DeviceProducts> products,
                                           ComputeType compute, const AttentionChoice& attention,
                                           const FusedChoice& fused, GpuGraphs graphs) {
  return std::make_unique<DeviceBackend>(std::move(device), std::move(products), compute, attention,
                                         fused, graphs);
}

}  // namespace pagoda::cuda
