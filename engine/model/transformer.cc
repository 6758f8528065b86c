#include "engine/model/transformer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {
namespace {

// Rows of activations that keep their memory from step to step.
class GrowingRows {
 public:
  absl::Status Resize(Backend& backend, uint64_t rows, uint64_t cols) {
    view_ = {.data = memory_.get(), .stride = cols, .rows = rows, .cols = cols};
    if (rows * cols <= capacity_) return absl::OkStatus();
    absl::StatusOr<FloatMemory> memory = backend.Allocate(rows * cols);
    if (!memory.ok()) return memory.status();
    memory_ = *std::move(memory);
    capacity_ = rows * cols;
    view_.data = memory_.get();
    return absl::OkStatus();
  }

  const RowsView& view() const { return view_; }

 private:
  FloatMemory memory_;
  uint64_t capacity_ = 0;  // In elements.
  RowsView view_;
};

absl::Status CheckConfig(const ModelConfig& config) {
  const auto refuse = [](const auto&... parts) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(parts...));
  };
  if (config.layers.empty()) return refuse("the model has no layers");
  if (config.head_dim == 0 || config.head_dim % 2 != 0) {
    return refuse("head_dim is ", config.head_dim, ": rotary embeddings need an even number");
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.num_kv_heads == 0 || config.num_heads % layer.num_kv_heads != 0) {
      return refuse("layer ", i, " has ", layer.num_kv_heads, " KV heads for ", config.num_heads,
                    " heads");
    }
    if (layer.kind != KvKind::kKeyAndValue) {
      return refuse("layer ", i, " has K only; the engine needs K and V");
    }
    if (layer.rotary >= config.rotaries.size()) {
      return refuse("layer ", i, " has rotary embedding ", layer.rotary, " of ",
                    config.rotaries.size());
    }
  }
  return absl::OkStatus();
}

uint32_t MostKvHeads(const ModelConfig& config) {
  uint32_t most = 0;
  for (const LayerConfig& layer : config.layers) most = std::max(most, layer.num_kv_heads);
  return most;
}

}  // namespace

struct Transformer::Activations {
  GrowingRows hidden;    // [N][H], the residual stream
  GrowingRows normed;    // [N][H], the input of a layer
  GrowingRows qkv;       // [N][Q + K + K]; a layer with fewer KV heads uses the first columns
  GrowingRows attended;  // [N][Q]
  GrowingRows gate_up;   // [N][I + I]
  GrowingRows gated;     // [N][I]
  GrowingRows addition;  // [N][H], the layer's addition to `hidden`
  GrowingRows last;      // [logit_rows][H]
  GrowingRows logits;    // [logit_rows][V]

  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens,
                      uint64_t wanted) {
    const uint64_t hidden_size = config.hidden_size;
    const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
    const uint64_t keys = uint64_t{MostKvHeads(config)} * config.head_dim;
    const uint64_t intermediate = config.intermediate_size;
    absl::Status status;
    for (auto& [rows, count, cols] :
         {std::tuple(&hidden, tokens, hidden_size), std::tuple(&normed, tokens, hidden_size),
          std::tuple(&qkv, tokens, queries + 2 * keys), std::tuple(&attended, tokens, queries),
          std::tuple(&gate_up, tokens, 2 * intermediate), std::tuple(&gated, tokens, intermediate),
          std::tuple(&addition, tokens, hidden_size), std::tuple(&last, wanted, hidden_size),
          std::tuple(&logits, wanted, uint64_t{config.vocab_size})}) {
      status.Update(rows->Resize(backend, count, cols));
    }
    return status;
  }
};

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(ModelConfig config,
                                                                 Checkpoint checkpoint,
                                                                 std::unique_ptr<Backend> backend) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  absl::StatusOr<ModelWeights> weights = LoadWeights(config, checkpoint, *backend);
  if (!weights.ok()) return weights.status();
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
  PAGODA_CHECK(kv.size() == config_.layers.size(), "one KV layer for each layer of the model");
  PAGODA_CHECK(input.windows.size() == windows_.size(), "the input has the model's windows");
  for (const TokenId token : input.tokens) {
    PAGODA_CHECK(token < config_.vocab_size, "a token lies in the vocabulary");
  }
  for (const uint32_t row : input.logit_rows) {
    PAGODA_CHECK(row < input.tokens.size(), "a logit row is one of the tokens");
  }
  Activations& a = *activations_;
  absl::Status resized = a.Resize(*backend_, config_, input.tokens.size(), input.logit_rows.size());
  if (!resized.ok()) return resized;

  backend_->BeginStep(input, config_);
  backend_->Embed(*weights_.embedding, config_.embedding_scale, a.hidden.view());
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    Attend(config_.layers[i], weights_.layers[i], kv[i]);
    ApplyMlp(weights_.layers[i]);
  }
  ApplyHead(input);
  return backend_->EndStep(config_.final_soft_cap, a.logits.view());
}

void Transformer::Attend(const LayerConfig& layer, const ModelWeights::Layer& weights,
                         const kernels::KvLayer& kv) {
  Activations& a = *activations_;
  const float eps = config_.rms_norm_eps;
  const uint32_t head_dim = config_.head_dim;
  const uint64_t queries_size = uint64_t{config_.num_heads} * head_dim;
  const uint64_t keys_size = uint64_t{layer.num_kv_heads} * head_dim;
  const RowsView qkv = a.qkv.view().Columns(0, queries_size + 2 * keys_size);
  const RowsView queries = qkv.Columns(0, queries_size);
  const RowsView keys = qkv.Columns(queries_size, keys_size);
  const RowsView values = qkv.Columns(queries_size + keys_size, keys_size);
  const auto window = static_cast<uint32_t>(
      std::find(windows_.begin(), windows_.end(), layer.window) - windows_.begin());

  backend_->RmsNorm(*weights.attention_norm, eps, a.hidden.view(), a.normed.view());
  backend_->Multiply(*weights.query_key_value, a.normed.view(), qkv);
  backend_->Rotate(layer.rotary, weights.query_norm.get(), eps, head_dim, queries);
  backend_->Rotate(layer.rotary, weights.key_norm.get(), eps, head_dim, keys);
  backend_->WriteCache(window, keys, values, kv);
  backend_->Attend({.window_index = window,
                    .num_heads = config_.num_heads,
                    .scale = config_.query_scale,
                    .soft_cap = config_.attention_soft_cap},
                   queries, kv, a.attended.view());
  backend_->Multiply(*weights.attention_output, a.attended.view(), a.addition.view());
  if (config_.post_norms) {
    backend_->RmsNorm(*weights.attention_post_norm, eps, a.addition.view(), a.addition.view());
  }
  backend_->Add(a.addition.view(), a.hidden.view());
}

void Transformer::ApplyMlp(const ModelWeights::Layer& weights) {
  Activations& a = *activations_;
  const float eps = config_.rms_norm_eps;
  backend_->RmsNorm(*weights.mlp_norm, eps, a.hidden.view(), a.normed.view());
  backend_->Multiply(*weights.gate_up, a.normed.view(), a.gate_up.view());
  backend_->Gate(config_.activation, a.gate_up.view(), a.gated.view());
  backend_->Multiply(*weights.down, a.gated.view(), a.addition.view());
  if (config_.post_norms) {
    backend_->RmsNorm(*weights.mlp_post_norm, eps, a.addition.view(), a.addition.view());
  }
  backend_->Add(a.addition.view(), a.hidden.view());
}

// Rows without wanted logits end here.
void Transformer::ApplyHead(const ModelInput& input) {
  if (input.logit_rows.empty()) return;
  Activations& a = *activations_;
  backend_->TakeRows(input.logit_rows, a.hidden.view(), a.last.view());
  backend_->RmsNorm(*weights_.final_norm, config_.rms_norm_eps, a.last.view(), a.last.view());
  backend_->Multiply(*weights_.head, a.last.view(), a.logits.view());
}

}  // namespace pagoda
