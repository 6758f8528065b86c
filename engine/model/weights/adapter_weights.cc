#include "engine/model/weights/adapter_weights.h"

#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

using Matrix = AdaptableModule::Matrix;

const LinearWeights* MatrixOf(const ModelWeights& model, const AdaptableModule& module) {
  const ModelWeights::Layer& layer = model.layers[module.layer];
  switch (module.matrix) {
    case Matrix::kQueryKeyValue:
      return layer.attention.query_key_value.get();
    case Matrix::kAttentionOutput:
      return layer.attention_output.get();
    case Matrix::kGateUp:
      return layer.mlp.gate_up.get();
    case Matrix::kDown:
      return layer.mlp.down.get();
  }
  return nullptr;
}

absl::StatusOr<AdapterWeights> LoadAdapter(Adapter adapter, const ModelWeights& model,
                                           Backend& backend) {
  AdapterWeights weights{.adapter = std::move(adapter), .changes = {}};
  std::map<const LinearWeights*, std::vector<TensorInfo>> downs;
  for (const Adapter::Change& change : weights.adapter.changes()) {
    const LinearWeights* const matrix = MatrixOf(model, change.module);
    PAGODA_CHECK(matrix != nullptr &&
                     change.module.first_output + change.module.outputs <= matrix->outputs() &&
                     change.module.inputs == matrix->inputs(),
                 "an adapter was opened for this model");
    std::vector<TensorInfo>& stacked = downs[matrix];
    uint64_t first_rank = 0;
    for (const TensorInfo& down : stacked) first_rank += down.shape[0];
    stacked.push_back(change.down);
    absl::StatusOr<std::unique_ptr<LinearWeights>> up = backend.MakeLinear({change.up}, {});
    if (!up.ok()) return up.status();
    weights.changes[matrix].parts.push_back({.first_output = change.module.first_output,
                                             .first_rank = first_rank,
                                             .scale = change.scale,
                                             .up = *std::move(up)});
  }
  for (auto& [matrix, change] : weights.changes) {
    absl::StatusOr<std::unique_ptr<LinearWeights>> down = backend.MakeLinear(downs[matrix], {});
    if (!down.ok()) return down.status();
    change.down = *std::move(down);
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::vector<AdapterWeights>> LoadAdapters(std::vector<Adapter> adapters,
                                                         const ModelWeights& model,
                                                         Backend& backend) {
  std::vector<AdapterWeights> loaded;
  for (Adapter& adapter : adapters) {
    absl::StatusOr<AdapterWeights> weights = LoadAdapter(std::move(adapter), model, backend);
    if (!weights.ok()) return weights.status();
    loaded.push_back(*std::move(weights));
  }
  return loaded;
}

}  // namespace pagoda
