#include "engine/model/weights/weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/weights/expert_weights.h"
#include "engine/model/weights/weight_loader.h"

namespace pagoda {
namespace {

using Bias = WeightLoader::Bias;

Bias BiasIf(bool has) { return has ? Bias::kHas : Bias::kNone; }

ModelWeights::Attention LoadAttention(WeightLoader& load, uint32_t layer, const std::string& name) {
  const ModelConfig& config = load.config();
  const uint64_t hidden = config.hidden_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{config.layers[layer].num_kv_heads} * config.head_dim;
  const Bias bias = BiasIf(config.attention_bias);
  ModelWeights::Attention weights;
  if (load.Has(name + "qkv_proj.weight")) {  // Phi 3.
    weights.query_key_value = load.Linear({{name + "qkv_proj", queries + 2 * keys}}, hidden, bias);
  } else {
    weights.query_key_value =
        load.Linear({{name + "q_proj", queries}, {name + "k_proj", keys}, {name + "v_proj", keys}},
                    hidden, bias);
  }
  if (config.query_key_norm) {
    weights.query_norm = load.Norm(name + "q_norm", config.head_dim).weight;
    weights.key_norm = load.Norm(name + "k_norm", config.head_dim).weight;
  }
  if (config.attention_sinks) weights.sinks = load.Vector(name + "sinks", config.num_heads);
  return weights;
}

// The matrix from the latent to keys and values is split by heads. The part for keys is
// transposed: it then turns a query into one of the latent.
void LoadLatentHeads(WeightLoader& load, const std::string& name,
                     ModelWeights::LatentAttention& weights) {
  const LatentAttentionConfig& latent = *load.config().latent;
  const uint64_t heads = load.config().num_heads;
  const uint64_t of_head = uint64_t{latent.plain_dim} + latent.value_dim;
  if (load.Has(name + "k_b_proj.weight")) {  // GGUF: already split and transposed.
    const TensorInfo keys =
        load.Find(name + "k_b_proj.weight", {heads, latent.latent_dim, latent.plain_dim});
    const TensorInfo values =
        load.Find(name + "v_b_proj.weight", {heads, latent.value_dim, latent.latent_dim});
    for (uint64_t h = 0; h < heads && load.status().ok(); ++h) {
      weights.absorb_keys.push_back(load.LinearOf({WeightLoader::Slice(keys, h)}, {}));
      weights.value_up.push_back(load.LinearOf({WeightLoader::Slice(values, h)}, {}));
    }
    return;
  }
  const TensorInfo both =
      load.Find(name + "kv_b_proj.weight", {heads * of_head, latent.latent_dim});
  for (uint64_t h = 0; h < heads && load.status().ok(); ++h) {
    const TensorInfo keys = WeightLoader::Rows(both, h * of_head, latent.plain_dim);
    const TensorInfo values =
        WeightLoader::Rows(both, h * of_head + latent.plain_dim, latent.value_dim);
    weights.absorb_keys.push_back(load.LinearOf({load.Transposed(keys)}, {}));
    weights.value_up.push_back(load.LinearOf({values}, {}));
  }
}

ModelWeights::LatentAttention LoadLatent(WeightLoader& load, const std::string& name) {
  const ModelConfig& config = load.config();
  const LatentAttentionConfig& latent = *config.latent;
  const uint64_t hidden = config.hidden_size;
  const uint64_t queries = uint64_t{config.num_heads} * (latent.plain_dim + latent.rotary_dim);
  ModelWeights::LatentAttention weights;
  if (latent.query_rank == 0) {
    weights.query_up = load.Linear({{name + "q_proj", queries}}, hidden);
  } else {
    weights.query_down = load.Linear({{name + "q_a_proj", latent.query_rank}}, hidden);
    weights.query_norm = load.Norm(name + "q_a_layernorm", latent.query_rank).weight;
    weights.query_up = load.Linear({{name + "q_b_proj", queries}}, latent.query_rank);
  }
  weights.key_down = load.Linear(
      {{name + "kv_a_proj_with_mqa", uint64_t{latent.latent_dim} + latent.rotary_dim}}, hidden);
  weights.key_norm = load.Norm(name + "kv_a_layernorm", latent.latent_dim).weight;
  LoadLatentHeads(load, name, weights);
  return weights;
}

ModelWeights::Mlp LoadMlp(WeightLoader& load, const std::string& name) {
  const ModelConfig& config = load.config();
  const uint64_t size = config.intermediate_size;
  ModelWeights::Mlp weights;
  if (load.Has(name + "gate_up_proj.weight")) {  // Phi 3.
    weights.gate_up = load.Linear({{name + "gate_up_proj", 2 * size}}, config.hidden_size);
  } else {
    weights.gate_up = load.Linear({{name + "gate_proj", size}, {name + "up_proj", size}},
                                  config.hidden_size, BiasIf(config.mlp_bias));
  }
  weights.down =
      load.Linear({{name + "down_proj", config.hidden_size}}, size, BiasIf(config.mlp_bias));
  return weights;
}

ModelWeights::Layer LoadLayer(WeightLoader& load, uint32_t layer) {
  const ModelConfig& config = load.config();
  const uint64_t hidden = config.hidden_size;
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  uint64_t attended = uint64_t{config.num_heads} * config.head_dim;

  ModelWeights::Layer weights;
  weights.attention_norm = load.Norm(prefix + "input_layernorm", hidden);
  if (config.latent.has_value()) {
    weights.latent = LoadLatent(load, attention);
    attended = uint64_t{config.num_heads} * config.latent->value_dim;
  } else {
    weights.attention = LoadAttention(load, layer, attention);
  }
  weights.attention_output =
      load.Linear({{attention + "o_proj", hidden}}, attended, BiasIf(config.output_bias));
  if (config.post_norms) {
    weights.attention_post_norm = load.Norm(prefix + "post_attention_layernorm", hidden);
    weights.mlp_norm = load.Norm(prefix + "pre_feedforward_layernorm", hidden);
    weights.mlp_post_norm = load.Norm(prefix + "post_feedforward_layernorm", hidden);
  } else {
    // It is named after the layer before it, but norms the MLP's input.
    weights.mlp_norm = load.Norm(prefix + "post_attention_layernorm", hidden);
  }
  if (config.layers[layer].has_experts) {
    weights.experts = LoadExperts(load, prefix + "mlp.");
  } else {
    weights.mlp = LoadMlp(load, prefix + "mlp.");
  }
  return weights;
}

// BLOOM's matrix of queries, keys and values is [num_heads][query, key, value][head_dim].
ModelWeights::Linear LoadBloomAttention(WeightLoader& load, const std::string& name) {
  const ModelConfig& config = load.config();
  const uint64_t dim = config.head_dim;
  const uint64_t rows = 3 * config.num_heads * dim;
  const TensorInfo all = load.Find(name + ".weight", {rows, config.hidden_size});
  const std::vector<float> biases = load.Floats(name + ".bias", {rows});
  if (!load.status().ok()) return nullptr;
  std::vector<TensorInfo> parts;
  std::vector<float> bias;
  for (uint64_t part = 0; part < 3; ++part) {
    for (uint64_t h = 0; h < config.num_heads; ++h) {
      const uint64_t first = (h * 3 + part) * dim;
      parts.push_back(WeightLoader::Rows(all, first, dim));
      const auto begin = biases.begin() + static_cast<std::ptrdiff_t>(first);
      bias.insert(bias.end(), begin, begin + static_cast<std::ptrdiff_t>(dim));
    }
  }
  return load.LinearOf(parts, bias);
}

ModelWeights::Layer LoadBloomLayer(WeightLoader& load, uint32_t layer) {
  const ModelConfig& config = load.config();
  const uint64_t hidden = config.hidden_size;
  const uint64_t size = config.intermediate_size;
  const std::string prefix = absl::StrCat("transformer.h.", layer, ".");
  ModelWeights::Layer weights;
  weights.attention_norm = load.Norm(prefix + "input_layernorm", hidden);
  const std::string ordered = prefix + "self_attention.qkv_proj";  // GGUF.
  weights.attention.query_key_value =
      load.Has(ordered + ".weight")
          ? load.Linear({{ordered, 3 * hidden}}, hidden, Bias::kHas)
          : LoadBloomAttention(load, prefix + "self_attention.query_key_value");
  weights.attention_output =
      load.Linear({{prefix + "self_attention.dense", hidden}}, hidden, Bias::kHas);
  weights.mlp_norm = load.Norm(prefix + "post_attention_layernorm", hidden);
  weights.mlp.gate_up = load.Linear({{prefix + "mlp.dense_h_to_4h", size}}, hidden, Bias::kHas);
  weights.mlp.down = load.Linear({{prefix + "mlp.dense_4h_to_h", hidden}}, size, Bias::kHas);
  return weights;
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         Backend& backend) {
  ModelWeights weights;
  WeightLoader load(config, checkpoint, backend, weights);
  const bool is_bloom = config.names == TensorNames::kBloom;
  const std::string embedding = is_bloom ? "transformer.word_embeddings" : "model.embed_tokens";
  weights.embedding = load.Embedding(embedding, config.vocab_size, config.hidden_size);
  if (config.embedding_norm) {
    weights.embedding_norm = load.Norm("transformer.word_embeddings_layernorm", config.hidden_size);
  }
  for (uint32_t layer = 0; layer < config.layers.size() && load.status().ok(); ++layer) {
    weights.layers.push_back(is_bloom ? LoadBloomLayer(load, layer) : LoadLayer(load, layer));
  }
  weights.final_norm = load.Norm(is_bloom ? "transformer.ln_f" : "model.norm", config.hidden_size);
  weights.head =
      load.Linear({{config.tie_word_embeddings ? embedding : "lm_head", config.vocab_size}},
                  config.hidden_size);
  if (!load.status().ok()) return load.status();
  if (config.alibi) {
    absl::StatusOr<ModelWeights::Vector> slopes = backend.MakeVector(AlibiSlopes(config.num_heads));
    if (!slopes.ok()) return slopes.status();
    weights.alibi_slopes = *std::move(slopes);
  }
  return weights;
}

}  // namespace pagoda
