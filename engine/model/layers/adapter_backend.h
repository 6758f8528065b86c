// Adds LoRA adapters to a model's products.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_ADAPTER_BACKEND_H_
#define PAGODA_ENGINE_MODEL_LAYERS_ADAPTER_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/backend/forwarding_backend.h"
#include "engine/model/layers/growing_rows.h"
#include "engine/model/weights/adapter_weights.h"

namespace pagoda {

// Passes everything on to another backend. Behind each product with a matrix that adapters change,
// it adds to each row the change of the row's adapter (ModelInput::adapters). So the graph knows
// nothing of adapters. A product costs two small ones more for each adapter in the step, and for
// each changed part of the matrix (Chen et al., "Punica", 2023, computes them in one kernel).
//
// Invariants
// 1. The parts of a row's change are computed from this row alone and added in the order of the
// matrix's outputs. So the other rows of a step do not change a row's result, beyond what the inner
// backend's products do.
// 2. Only Multiply meets matrices that adapters change: a step with adapters fuses no products.
class AdapterBackend final : public ForwardingBackend {
 public:
  // `adapters` were loaded into `inner`. ModelInput::adapters are places in this list.
  AdapterBackend(std::unique_ptr<Backend> inner, std::vector<AdapterWeights> adapters);

  std::string description() const override;
  void BeginStep(const ModelInput& input, const ModelConfig& config) override;
  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override;
  bool CanFuse(const FusedProduct& product) const override;
  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override;
  absl::StatusOr<ModelOutput> EndStepWithDraws(float soft_cap, const RowsView& logits) override;

 private:
  // Makes room for the largest products of an adapter with `rows` rows.
  absl::Status Resize(uint64_t rows);
  void AddChange(const AdapterWeights::Change& change, absl::Span<const uint32_t> rows,
                 const RowsView& input, const RowsView& output);

  // The largest products of all adapters.
  struct Widths {
    uint64_t inputs = 0;
    uint64_t ranks = 0;
    uint64_t outputs = 0;
  };

  std::vector<AdapterWeights> adapters_;
  Widths widths_;

  // The state of the current step.
  std::vector<std::vector<uint32_t>> rows_;  // By adapter: the rows that it changes.
  absl::Status status_;
  GrowingRows taken_;   // Inputs of an adapter's rows.
  GrowingRows ranks_;   // Their products with a matrix `down`,
  GrowingRows change_;  // and then with a matrix `up`.
  std::vector<float> factors_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_ADAPTER_BACKEND_H_
