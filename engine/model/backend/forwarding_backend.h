// A backend that passes every operation on to another one. Derive from it to change some of them.
#ifndef PAGODA_ENGINE_MODEL_BACKEND_FORWARDING_BACKEND_H_
#define PAGODA_ENGINE_MODEL_BACKEND_FORWARDING_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/backend/backend.h"

namespace pagoda {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string description() const override { return inner_->description(); }

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    return inner_->MakeLinear(matrices, bias);
  }
  absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) override {
    return inner_->MakeEmbedding(matrix);
  }
  absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) override {
    return inner_->MakeVector(values);
  }
  absl::StatusOr<FloatMemory> Allocate(uint64_t elements) override {
    return inner_->Allocate(elements);
  }

  uint64_t RoomFor(uint64_t rows) const override { return inner_->RoomFor(rows); }
  kernels::ElementType FactorType(const LinearWeights& weights) const override {
    return inner_->FactorType(weights);
  }
  kernels::ElementType QueryType(const kernels::KvLayer& kv) const override {
    return inner_->QueryType(kv);
  }

  uint64_t StepRows(const ModelInput& input, const ModelConfig& config) const override {
    return inner_->StepRows(input, config);
  }
  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    inner_->BeginStep(input, config);
  }
  void RunOperations(absl::Span<const kernels::KvLayer> pools,
                     const std::function<void()>& operations) override {
    inner_->RunOperations(pools, operations);
  }
  void Embed(const EmbeddingWeights& weights, float scale, const RowsView& output) override {
    inner_->Embed(weights, scale, output);
  }
  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override {
    inner_->Multiply(weights, input, output);
  }
  bool CanFuse(const FusedProduct& product) const override { return inner_->CanFuse(product); }
  void MultiplyFused(const FusedProduct& product) override { inner_->MultiplyFused(product); }
  void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
               const RowsView& output) override {
    inner_->RmsNorm(weights, eps, input, output);
  }
  void MultiplyEach(absl::Span<const ProductOfRows> products) override {
    inner_->MultiplyEach(products);
  }
  void LayerNorm(const VectorWeights& weights, const VectorWeights& bias, float eps,
                 const RowsView& input, const RowsView& output) override {
    inner_->LayerNorm(weights, bias, eps, input, output);
  }
  void AddAndNorm(const NormShape* addend_norm, const RowsView& addend, const RowsView& sum,
                  const NormShape& norm, const RowsView& output) override {
    inner_->AddAndNorm(addend_norm, addend, sum, norm, output);
  }
  void Rotate(const RotationShape& shape, const VectorWeights* norm, float eps,
              const RowsView& heads) override {
    inner_->Rotate(shape, norm, eps, heads);
  }
  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    inner_->WriteCache(window_index, keys, values, kv);
  }
  void PlaceHeads(const LayerHeads& heads, const kernels::KvLayer& kv,
                  const RowsView& queries) override {
    inner_->PlaceHeads(heads, kv, queries);
  }
  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    inner_->Attend(shape, queries, kv, output);
  }
  void Gate(const GateShape& gate, const RowsView& gate_up, const RowsView& output) override {
    inner_->Gate(gate, gate_up, output);
  }
  void Activate(Activation activation, const RowsView& rows) override {
    inner_->Activate(activation, rows);
  }
  void AddRows(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
               const RowsView& addend, const RowsView& sum) override {
    inner_->AddRows(rows, factors, addend, sum);
  }
  void Clear(const RowsView& output) override { inner_->Clear(output); }
  void CopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                 const HeadsView& output) override {
    inner_->CopyHeads(num_heads, count, input, output);
  }
  absl::Span<const float> ToHost(const RowsView& rows) override { return inner_->ToHost(rows); }
  void Add(const RowsView& addend, const RowsView& sum) override { inner_->Add(addend, sum); }
  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    inner_->TakeRows(rows, input, output);
  }
  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    return inner_->EndStep(soft_cap, logits);
  }
  absl::StatusOr<ModelOutput> EndStepWithDraws(float soft_cap, const RowsView& logits) override {
    return inner_->EndStepWithDraws(soft_cap, logits);
  }
  StepGraphCounts graph_counts() const override { return inner_->graph_counts(); }

 protected:
  Backend& inner() { return *inner_; }
  const Backend& inner() const { return *inner_; }

 private:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_FORWARDING_BACKEND_H_
