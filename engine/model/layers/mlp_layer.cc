#include "engine/model/layers/mlp_layer.h"

#include "engine/model/layers/routing.h"

namespace pagoda {
namespace {

GateShape GateOf(const ModelConfig& config) {
  return {.activation = config.activation,
          .alpha = config.activation_alpha,
          .limit = config.activation_limit};
}

}  // namespace

absl::Status MlpLayer::Resize(Backend& backend, const ModelConfig& config, uint64_t tokens,
                              uint64_t intermediate_size) {
  const uint64_t width = config.gated_mlp ? 2 * intermediate_size : intermediate_size;
  absl::Status status = gate_up_.Resize(backend, tokens, width);
  if (config.gated_mlp) status.Update(gated_.Resize(backend, tokens, intermediate_size));
  return status;
}

FusedProduct MlpLayer::FirstProduct(const Backend& backend, const ModelConfig& config,
                                    const ModelWeights::Mlp& weights,
                                    const LayerInput& input) const {
  const uint64_t outputs = weights.gate_up->outputs();
  const kernels::ElementType type = backend.FactorType(*weights.down);
  return {.weights = weights.gate_up.get(),
          .norm = input.norm,
          .input = input.rows,
          .end = config.gated_mlp ? ProductEnd::kGate : ProductEnd::kActivate,
          .gate = GateOf(config),
          .output = config.gated_mlp ? gated_.view().As(type).Columns(0, outputs / 2)
                                     : gate_up_.view().As(type).Columns(0, outputs)};
}

Addition MlpLayer::Run(Backend& backend, const ModelConfig& config,
                       const ModelWeights::Mlp& weights, const LayerInput& input,
                       const Residual& residual) {
  const FusedProduct first = FirstProduct(backend, config, weights, input);
  if (backend.CanFuse(first)) {
    backend.MultiplyFused(first);
    return MultiplyInto(backend, *weights.down, first.output, residual);
  }
  const RowsView gate_up = gate_up_.view().Columns(0, weights.gate_up->outputs());
  backend.Multiply(*weights.gate_up, input.rows, gate_up);
  if (config.gated_mlp) {
    backend.Gate(GateOf(config), gate_up, first.output);
    return MultiplyInto(backend, *weights.down, first.output, residual);
  }
  backend.Activate(config.activation, gate_up);
  return MultiplyInto(backend, *weights.down, gate_up, residual);
}

absl::Status ExpertsLayer::Resize(Backend& backend, const ModelConfig& config, uint64_t tokens) {
  const ExpertsConfig& experts = *config.experts;
  const uint64_t taken = tokens * experts.chosen;
  absl::Status status = scores_.Resize(backend, tokens, experts.count);
  status.Update(taken_.Resize(backend, taken, config.hidden_size));
  status.Update(gate_up_.Resize(backend, taken, uint64_t{2} * experts.intermediate_size));
  status.Update(gated_.Resize(backend, taken, experts.intermediate_size));
  status.Update(results_.Resize(backend, taken, config.hidden_size));
  if (experts.shared_intermediate_size != 0) {
    status.Update(shared_.Resize(backend, config, tokens, experts.shared_intermediate_size));
  }
  return status;
}

void ExpertsLayer::Run(Backend& backend, const ModelConfig& config,
                       const ModelWeights::Experts& weights, const RowsView& input,
                       const RowsView& output) {
  backend.Multiply(*weights.router, input, scores_.view());
  if (weights.shared.has_value()) {
    shared_.Run(backend, config, *weights.shared, {.rows = input}, {.addition = output});
  } else {
    backend.Clear(output);
  }
  const absl::Span<const float> scores = backend.ToHost(scores_.view());
  if (scores.empty()) return;  // A failure, which EndStep reports.

  const RowsView taken = taken_.view().As(input.type);
  const RowsView gated = gated_.view().As(backend.FactorType(*weights.experts.front().down));
  rows_.clear();
  factors_.clear();
  up_products_.clear();
  down_products_.clear();
  for (const ExpertTokens& tokens : RouteTokens(*config.experts, weights.correction, scores)) {
    const ModelWeights::Mlp& expert = weights.experts[tokens.expert];
    const uint64_t first = rows_.size();
    const uint64_t count = tokens.rows.size();
    up_products_.push_back({.weights = expert.gate_up.get(),
                            .input = taken.Rows(first, count),
                            .output = gate_up_.view().Rows(first, count)});
    down_products_.push_back({.weights = expert.down.get(),
                              .input = gated.Rows(first, count),
                              .output = results_.view().Rows(first, count)});
    rows_.insert(rows_.end(), tokens.rows.begin(), tokens.rows.end());
    factors_.insert(factors_.end(), tokens.factors.begin(), tokens.factors.end());
  }
  backend.TakeRows(rows_, input, taken);
  backend.MultiplyEach(up_products_);
  backend.Gate(GateOf(config), gate_up_.view(), gated);
  backend.MultiplyEach(down_products_);
  backend.AddRows(rows_, factors_, results_.view(), output);
}

}  // namespace pagoda
