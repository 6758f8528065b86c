#include "engine/model/layers/transformer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/layers/adapter_backend.h"
#include "engine/model/layers/attention_layer.h"
#include "engine/model/layers/growing_rows.h"
#include "engine/model/layers/mlp_layer.h"

namespace pagoda {
namespace {

absl::Status CheckConfig(const ModelConfig& config) {
  const auto refuse = [](const auto&... parts) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(parts...));
  };
  if (config.layers.empty()) return refuse("the model has no layers");
  if (config.head_dim == 0 || (config.head_dim % 2 != 0 && !config.alibi)) {
    return refuse("head_dim is ", config.head_dim, ": rotary embeddings need an even number");
  }
  for (const RotaryConfig& rotary : config.rotaries) {
    const uint32_t dim = RotaryDim(rotary, config.head_dim);
    if (dim % 2 != 0 || dim > config.head_dim) {
      return refuse("a rotary embedding rotates ", dim, " of ", config.head_dim, " elements");
    }
    if (rotary.scaling == RotaryConfig::Scaling::kLongRope &&
        (rotary.divisors.size() != dim / 2 || rotary.long_divisors.size() != dim / 2)) {
      return refuse("LongRoPE has other numbers of factors than ", dim / 2);
    }
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.num_kv_heads == 0 || config.num_heads % layer.num_kv_heads != 0) {
      return refuse("layer ", i, " has ", layer.num_kv_heads, " KV heads for ", config.num_heads,
                    " heads");
    }
    if ((layer.kind == KvKind::kKeyOnly) != config.latent.has_value()) {
      return refuse("layer ", i, " has ", layer.kind == KvKind::kKeyOnly ? "K only" : "K and V",
                    ", which does not fit the model's attention");
    }
    if (layer.has_experts && !config.experts.has_value()) {
      return refuse("layer ", i, " has experts, but the model has none");
    }
    if (!config.alibi && layer.rotary >= config.rotaries.size()) {
      return refuse("layer ", i, " has rotary embedding ", layer.rotary, " of ",
                    config.rotaries.size());
    }
  }
  return absl::OkStatus();
}

// Whether logits of each token are wanted, in the order of the tokens, as in a step of decode.
bool WantsAllRows(const ModelInput& input) {
  if (input.logit_rows.size() != input.tokens.size()) return false;
  for (size_t i = 0; i < input.logit_rows.size(); ++i) {
    if (input.logit_rows[i] != i) return false;
  }
  return true;
}

}  // namespace

struct Transformer::Activations {
  GrowingRows hidden;    // [N][H], the residual stream
  GrowingRows normed;    // [N][H], the input of a layer
  GrowingRows addition;  // [N][H], the layer's addition to `hidden`
  GrowingRows last;      // [logit_rows][H]
  GrowingRows logits;    // [logit_rows][V]
  GroupedAttention attention;
  LatentAttention latent;
  MlpLayer mlp;
  ExpertsLayer experts;

  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens,
                      uint64_t wanted) {
    const uint64_t hidden_size = config.hidden_size;
    absl::Status status;
    for (auto& [rows, count, cols] :
         {std::tuple(&hidden, tokens, hidden_size), std::tuple(&normed, tokens, hidden_size),
          std::tuple(&addition, tokens, hidden_size), std::tuple(&last, wanted, hidden_size),
          std::tuple(&logits, wanted, uint64_t{config.vocab_size})}) {
      status.Update(rows->Resize(backend, count, cols));
    }
    if (config.latent.has_value()) {
      status.Update(latent.Resize(backend, config, tokens));
    } else {
      status.Update(attention.Resize(backend, config, tokens));
    }
    const auto has_experts = [](const LayerConfig& layer) { return layer.has_experts; };
    if (!std::all_of(config.layers.begin(), config.layers.end(), has_experts)) {
      status.Update(mlp.Resize(backend, config, tokens, config.intermediate_size));
    }
    if (config.experts.has_value()) status.Update(experts.Resize(backend, config, tokens));
    return status;
  }
};

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(ModelConfig config,
                                                                 Checkpoint checkpoint,
                                                                 std::unique_ptr<Backend> backend,
                                                                 std::vector<Adapter> adapters) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  absl::StatusOr<ModelWeights> weights = LoadWeights(config, checkpoint, *backend);
  if (!weights.ok()) return weights.status();
  if (!adapters.empty()) {
    absl::StatusOr<std::vector<AdapterWeights>> loaded =
        LoadAdapters(std::move(adapters), *weights, *backend);
    if (!loaded.ok()) return loaded.status();
    backend = std::make_unique<AdapterBackend>(std::move(backend), *std::move(loaded));
  }
  if (absl::Status unchanged = checkpoint.CheckUnchanged(); !unchanged.ok()) return unchanged;
  return absl::WrapUnique(new Transformer(std::move(config), std::move(checkpoint),
                                          std::move(backend), *std::move(weights)));
}

Transformer::Transformer(ModelConfig config, Checkpoint checkpoint,
                         std::unique_ptr<Backend> backend, ModelWeights weights)
    : config_(std::move(config)),
      windows_(WindowsOf(config_)),
      checkpoint_(std::move(checkpoint)),
      backend_(std::move(backend)),
      weights_(std::move(weights)),
      activations_(std::make_unique<Activations>()) {}

Transformer::~Transformer() = default;

absl::StatusOr<absl::Span<const float>> Transformer::Forward(
    const ModelInput& input, absl::Span<const kernels::KvLayer> kv) {
  if (absl::Status status = Compute(input, kv); !status.ok()) return status;
  absl::StatusOr<absl::Span<const float>> logits =
      backend_->EndStep(config_.final_soft_cap, Logits(input));
  if (absl::Status unchanged = CheckFiles(); !unchanged.ok()) return unchanged;
  return logits;
}

absl::StatusOr<ModelOutput> Transformer::ForwardWithDraws(const ModelInput& input,
                                                          absl::Span<const kernels::KvLayer> kv) {
  PAGODA_CHECK(input.draws.empty() || input.draws.size() == input.logit_rows.size(),
               "a draw for each of the logit rows");
  if (absl::Status status = Compute(input, kv); !status.ok()) return status;
  absl::StatusOr<ModelOutput> output =
      backend_->EndStepWithDraws(config_.final_soft_cap, Logits(input));
  if (absl::Status unchanged = CheckFiles(); !unchanged.ok()) return unchanged;
  return output;
}

// Without the rows behind the wanted ones.
RowsView Transformer::Logits(const ModelInput& input) const {
  return activations_->logits.view().Rows(0, input.logit_rows.size());
}

absl::Status Transformer::Compute(const ModelInput& input, absl::Span<const kernels::KvLayer> kv) {
  PAGODA_CHECK(kv.size() == config_.layers.size(), "one KV layer for each layer of the model");
  PAGODA_CHECK(input.windows.size() == windows_.size(), "the input has the model's windows");
  for (const TokenId token : input.tokens) {
    PAGODA_CHECK(token < config_.vocab_size, "a token lies in the vocabulary");
  }
  for (const uint32_t row : input.logit_rows) {
    PAGODA_CHECK(row < input.tokens.size(), "a logit row is one of the tokens");
  }
  const bool all_rows = WantsAllRows(input);
  const uint64_t rows = backend_->StepRows(input, config_);
  PAGODA_CHECK(rows == input.tokens.size() || (rows > input.tokens.size() && all_rows),
               "only steps that want all rows have rows behind their tokens");
  absl::Status resized =
      activations_->Resize(*backend_, config_, rows, all_rows ? rows : input.logit_rows.size());
  if (!resized.ok()) return resized;

  backend_->BeginStep(input, config_);
  backend_->RunOperations(kv, [&] { Operate(input, kv, all_rows); });
  return absl::OkStatus();
}

void Transformer::Operate(const ModelInput& input, absl::Span<const kernels::KvLayer> kv,
                          bool all_rows) {
  Activations& a = *activations_;
  backend_->Embed(*weights_.embedding, config_.embedding_scale, a.hidden.view());
  if (config_.embedding_norm) {
    backend_->NormRows(Shape(weights_.embedding_norm), a.hidden.view(), a.hidden.view());
  }
  Before before;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerConfig& layer = config_.layers[i];
    const ModelWeights::Layer& weights = weights_.layers[i];
    const LayerInput input_rows = AttentionInput(before, layer, weights);
    before = {Attend(layer, weights, input_rows, kv[i]), &weights.attention_post_norm};
    const LayerInput mlp_rows = MlpInput(before, weights);
    before = {ApplyMlp(weights, mlp_rows), &weights.mlp_post_norm};
  }
  if (!all_rows) {
    ApplyHeadToSome(input, before);
    return;
  }
  const LayerInput rows = HeadInput(before);
  if (rows.needs_norm()) {
    backend_->MultiplyFused(HeadProduct(rows));
  } else {
    backend_->Multiply(*weights_.head, rows.rows, a.logits.view());
  }
}

NormShape Transformer::Shape(const ModelWeights::Norm& norm) const {
  return {.weights = norm.weight.get(), .bias = norm.bias.get(), .eps = config_.rms_norm_eps};
}

Residual Transformer::residual() const {
  return {.addition = activations_->addition.view(),
          .sum = config_.post_norms ? nullptr : &activations_->hidden.view()};
}

LayerInput Transformer::Unnormed(const ModelWeights::Norm& norm) const {
  return {.rows = activations_->hidden.view(), .norm = Shape(norm)};
}

LayerInput Transformer::NextInput(const Before& before, const ModelWeights::Norm& norm,
                                  const FusedProduct& first, const RowsView& normed) {
  const RowsView& hidden = activations_->hidden.view();
  if (before.addition == Addition::kPending) {
    const NormShape post = Shape(*before.post_norm);
    backend_->AddAndNorm(config_.post_norms ? &post : nullptr, activations_->addition.view(),
                         hidden, Shape(norm), normed);
    return {.rows = normed, .norm = {}};
  }
  if (first.weights != nullptr && backend_->CanFuse(first)) return Unnormed(norm);
  backend_->NormRows(Shape(norm), hidden, normed);
  return {.rows = normed, .norm = {}};
}

LayerInput Transformer::AttentionInput(const Before& before, const LayerConfig& layer,
                                       const ModelWeights::Layer& weights) {
  if (weights.latent.has_value()) {
    const ModelWeights::LatentAttention& latent = *weights.latent;
    const LinearWeights* queries =
        latent.query_down == nullptr ? latent.query_up.get() : latent.query_down.get();
    return NextInput(before, weights.attention_norm, {},
                     NormedRows({queries, latent.key_down.get()}));
  }
  const FusedProduct first = activations_->attention.FirstProduct(config_, layer, weights.attention,
                                                                  Unnormed(weights.attention_norm));
  return NextInput(before, weights.attention_norm, first,
                   NormedRows({weights.attention.query_key_value.get()}));
}

LayerInput Transformer::MlpInput(const Before& before, const ModelWeights::Layer& weights) {
  if (weights.experts.has_value()) {
    const ModelWeights::Experts& experts = *weights.experts;
    const LinearWeights* some = experts.experts.front().gate_up.get();
    const LinearWeights* shared = experts.shared.has_value() ? experts.shared->gate_up.get() : some;
    return NextInput(before, weights.mlp_norm, {},
                     NormedRows({experts.router.get(), some, shared}));
  }
  const FusedProduct first =
      activations_->mlp.FirstProduct(*backend_, config_, weights.mlp, Unnormed(weights.mlp_norm));
  return NextInput(before, weights.mlp_norm, first, NormedRows({weights.mlp.gate_up.get()}));
}

LayerInput Transformer::HeadInput(const Before& before) {
  return NextInput(before, weights_.final_norm, HeadProduct(Unnormed(weights_.final_norm)),
                   NormedRows({weights_.head.get()}));
}

FusedProduct Transformer::HeadProduct(const LayerInput& input) const {
  return {.weights = weights_.head.get(),
          .norm = input.norm,
          .input = input.rows,
          .output = activations_->logits.view()};
}

// In the type in which products with these matrices read them; fp32 if they differ.
RowsView Transformer::NormedRows(std::initializer_list<const LinearWeights*> matrices) const {
  const kernels::ElementType type = backend_->FactorType(**matrices.begin());
  const bool same = std::all_of(matrices.begin(), matrices.end(), [&](const LinearWeights* matrix) {
    return backend_->FactorType(*matrix) == type;
  });
  return activations_->normed.view().As(same ? type : kernels::ElementType::kFloat32);
}

Addition Transformer::Attend(const LayerConfig& layer, const ModelWeights::Layer& weights,
                             const LayerInput& input, const kernels::KvLayer& kv) {
  Activations& a = *activations_;
  const AttentionShape shape = {
      .window_index = static_cast<uint32_t>(
          std::find(windows_.begin(), windows_.end(), layer.window) - windows_.begin()),
      .num_heads = config_.num_heads,
      .scale = config_.query_scale,
      .soft_cap = config_.attention_soft_cap,
      .alibi_slopes = weights_.alibi_slopes.get()};
  const kernels::ElementType output = backend_->FactorType(*weights.attention_output);
  const RowsView attended =
      weights.latent.has_value()
          ? a.latent.Run(*backend_, config_, layer, *weights.latent, shape, input.rows, kv)
          : a.attention.Run(*backend_, config_, layer, weights.attention, shape, input, kv, output);
  return MultiplyInto(*backend_, *weights.attention_output, attended, residual());
}

Addition Transformer::ApplyMlp(const ModelWeights::Layer& weights, const LayerInput& input) {
  Activations& a = *activations_;
  if (!weights.experts.has_value()) {
    return a.mlp.Run(*backend_, config_, weights.mlp, input, residual());
  }
  a.experts.Run(*backend_, config_, *weights.experts, input.rows, a.addition.view());
  return Addition::kPending;
}

// Rows without wanted logits end here.
void Transformer::ApplyHeadToSome(const ModelInput& input, const Before& before) {
  Activations& a = *activations_;
  if (before.addition == Addition::kPending) {
    const NormShape post = Shape(*before.post_norm);
    backend_->AddNormed(config_.post_norms ? &post : nullptr, a.addition.view(), a.hidden.view());
  }
  if (input.logit_rows.empty()) return;
  const RowsView rows = NormedRows({weights_.head.get()}).Rows(0, input.logit_rows.size());
  backend_->TakeRows(input.logit_rows, a.hidden.view(), a.last.view());
  backend_->NormRows(Shape(weights_.final_norm), a.last.view(), rows);
  backend_->Multiply(*weights_.head, rows, a.logits.view());
}

}  // namespace pagoda
