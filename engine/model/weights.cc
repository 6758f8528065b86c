#include "engine/model/weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

// Loads tensors into the backend and keeps the first error, so that the loading itself is a plain
// list.
class Loader {
 public:
  Loader(const ModelConfig& config, const Checkpoint& checkpoint, Backend& backend)
      : config_(config), checkpoint_(checkpoint), backend_(backend) {}

  const absl::Status& status() const { return status_; }

  // A norm's weights.
  ModelWeights::Vector Norm(const std::string& name, uint64_t size) {
    std::vector<float> values = Read(name + ".weight", size);
    if (config_.norm_weight_plus_one) {
      for (float& value : values) value += 1.0f;
    }
    if (!status_.ok()) return nullptr;
    return Keep(backend_.MakeVector(values));
  }

  // Stacks matrices that have the same input.
  struct Part {
    std::string name;
    uint64_t outputs;
  };
  enum class Bias { kNone, kOfEach };
  ModelWeights::Linear Linear(const std::vector<Part>& parts, uint64_t inputs,
                              Bias bias = Bias::kNone) {
    std::vector<TensorInfo> matrices;
    std::vector<float> biases;
    for (const Part& part : parts) {
      matrices.push_back(Find(part.name + ".weight", part.outputs, inputs));
      if (bias == Bias::kNone) continue;
      const std::vector<float> added = Read(part.name + ".bias", part.outputs);
      biases.insert(biases.end(), added.begin(), added.end());
    }
    if (!status_.ok()) return nullptr;
    return Keep(backend_.MakeLinear(matrices, biases));
  }

  std::unique_ptr<EmbeddingWeights> Embedding(const std::string& name, uint64_t rows,
                                              uint64_t cols) {
    const TensorInfo matrix = Find(name + ".weight", rows, cols);
    if (!status_.ok()) return nullptr;
    return Keep(backend_.MakeEmbedding(matrix));
  }

 private:
  template <class T>
  T Keep(absl::StatusOr<T> value) {
    if (value.ok()) return *std::move(value);
    if (status_.ok()) status_ = value.status();
    return T();
  }

  TensorInfo Find(const std::string& name, uint64_t rows, uint64_t cols) {
    if (!status_.ok()) return {};
    const uint64_t shape[] = {rows, cols};
    return Keep(checkpoint_.Find(name, shape));
  }
  std::vector<float> Read(const std::string& name, uint64_t size) {
    if (!status_.ok()) return {};
    return Keep(checkpoint_.ReadFloats(name, {&size, 1}));
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Backend& backend_;
  absl::Status status_;
};

ModelWeights::Layer LoadLayer(Loader& load, const ModelConfig& config, uint32_t layer) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t intermediate = config.intermediate_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{config.layers[layer].num_kv_heads} * config.head_dim;
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const auto bias = config.attention_bias ? Loader::Bias::kOfEach : Loader::Bias::kNone;

  ModelWeights::Layer weights;
  weights.attention_norm = load.Norm(prefix + "input_layernorm", hidden);
  weights.query_key_value = load.Linear(
      {{attention + "q_proj", queries}, {attention + "k_proj", keys}, {attention + "v_proj", keys}},
      hidden, bias);
  if (config.query_key_norm) {
    weights.query_norm = load.Norm(attention + "q_norm", config.head_dim);
    weights.key_norm = load.Norm(attention + "k_norm", config.head_dim);
  }
  weights.attention_output = load.Linear({{attention + "o_proj", hidden}}, queries);
  if (config.post_norms) {
    weights.attention_post_norm = load.Norm(prefix + "post_attention_layernorm", hidden);
    weights.mlp_norm = load.Norm(prefix + "pre_feedforward_layernorm", hidden);
    weights.mlp_post_norm = load.Norm(prefix + "post_feedforward_layernorm", hidden);
  } else {
    // It is named after the layer before it, but norms the MLP's input.
    weights.mlp_norm = load.Norm(prefix + "post_attention_layernorm", hidden);
  }
  weights.gate_up =
      load.Linear({{mlp + "gate_proj", intermediate}, {mlp + "up_proj", intermediate}}, hidden);
  weights.down = load.Linear({{mlp + "down_proj", hidden}}, intermediate);
  return weights;
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         Backend& backend) {
  Loader load(config, checkpoint, backend);
  const std::string embedding = "model.embed_tokens";
  ModelWeights weights;
  weights.embedding = load.Embedding(embedding, config.vocab_size, config.hidden_size);
  for (uint32_t layer = 0; layer < config.layers.size() && load.status().ok(); ++layer) {
    weights.layers.push_back(LoadLayer(load, config, layer));
  }
  weights.final_norm = load.Norm("model.norm", config.hidden_size);
  weights.head =
      load.Linear({{config.tie_word_embeddings ? embedding : "lm_head", config.vocab_size}},
                  config.hidden_size);
  if (!load.status().ok()) return load.status();
  return weights;
}

}  // namespace pagoda
