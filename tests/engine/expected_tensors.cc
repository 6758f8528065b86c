#include "tests/engine/expected_tensors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace pagoda {
namespace {

using Tensors = std::map<std::string, std::vector<uint64_t>>;

void AddLatentAttention(const ModelConfig& config, const std::string& prefix, Tensors& tensors) {
  const LatentAttentionConfig& latent = *config.latent;
  const uint64_t hidden = config.hidden_size;
  const uint64_t heads = config.num_heads;
  const uint64_t queries = heads * (latent.plain_dim + latent.rotary_dim);
  if (latent.query_rank == 0) {
    tensors[prefix + "q_proj.weight"] = {queries, hidden};
  } else {
    tensors[prefix + "q_a_proj.weight"] = {latent.query_rank, hidden};
    tensors[prefix + "q_a_layernorm.weight"] = {latent.query_rank};
    tensors[prefix + "q_b_proj.weight"] = {queries, latent.query_rank};
  }
  tensors[prefix + "kv_a_proj_with_mqa.weight"] = {latent.latent_dim + latent.rotary_dim, hidden};
  tensors[prefix + "kv_a_layernorm.weight"] = {latent.latent_dim};
  tensors[prefix + "kv_b_proj.weight"] = {heads * (latent.plain_dim + latent.value_dim),
                                          latent.latent_dim};
  tensors[prefix + "o_proj.weight"] = {hidden, heads * latent.value_dim};
}

void AddAttention(const ModelConfig& config, const LayerConfig& layer, const std::string& prefix,
                  Tensors& tensors) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{layer.num_kv_heads} * config.head_dim;
  tensors[prefix + "o_proj.weight"] = {hidden, queries};
  if (config.output_bias) tensors[prefix + "o_proj.bias"] = {hidden};
  if (config.attention_sinks) tensors[prefix + "sinks"] = {config.num_heads};
  if (config.architecture == "Phi3ForCausalLM") {
    tensors[prefix + "qkv_proj.weight"] = {queries + 2 * keys, hidden};
    return;
  }
  const std::map<std::string, uint64_t> outputs = {{"q", queries}, {"k", keys}, {"v", keys}};
  for (const auto& [name, size] : outputs) {
    const std::string projection = prefix + name + "_proj";
    tensors[projection + ".weight"] = {size, hidden};
    if (config.attention_bias) tensors[projection + ".bias"] = {size};
    if (config.query_key_norm && name != "v") {
      tensors[prefix + name + "_norm.weight"] = {config.head_dim};
    }
  }
}

void AddMlp(const ModelConfig& config, const std::string& prefix, Tensors& tensors) {
  tensors[prefix + "down_proj.weight"] = {config.hidden_size, config.intermediate_size};
  if (config.architecture == "Phi3ForCausalLM") {
    tensors[prefix + "gate_up_proj.weight"] = {uint64_t{2} * config.intermediate_size,
                                               config.hidden_size};
    return;
  }
  for (const char* name : {"gate", "up"}) {
    tensors[prefix + name + "_proj.weight"] = {config.intermediate_size, config.hidden_size};
  }
}

void AddLayer(const ModelConfig& config, const LayerConfig& layer, const std::string& prefix,
              Tensors& tensors) {
  if (config.latent.has_value()) {
    AddLatentAttention(config, prefix + "self_attn.", tensors);
  } else {
    AddAttention(config, layer, prefix + "self_attn.", tensors);
  }
  if (!layer.has_experts) AddMlp(config, prefix + "mlp.", tensors);
  std::vector<std::string> norms = {"input_layernorm", "post_attention_layernorm"};
  if (config.post_norms) {
    norms.insert(norms.end(), {"pre_feedforward_layernorm", "post_feedforward_layernorm"});
  }
  for (const std::string& name : norms) tensors[prefix + name + ".weight"] = {config.hidden_size};
}

void AddBloomLayer(const ModelConfig& config, const std::string& prefix, Tensors& tensors) {
  const uint64_t hidden = config.hidden_size;
  const Tensors matrices = {{"self_attention.query_key_value", {3 * hidden, hidden}},
                            {"self_attention.dense", {hidden, hidden}},
                            {"mlp.dense_h_to_4h", {4 * hidden, hidden}},
                            {"mlp.dense_4h_to_h", {hidden, 4 * hidden}},
                            {"input_layernorm", {hidden}},
                            {"post_attention_layernorm", {hidden}}};
  for (const auto& [name, shape] : matrices) {
    tensors[prefix + name + ".weight"] = shape;
    tensors[prefix + name + ".bias"] = {shape[0]};
  }
}

Tensors BloomTensors(const ModelConfig& config) {
  Tensors tensors = {
      {"transformer.word_embeddings.weight", {config.vocab_size, config.hidden_size}}};
  for (const char* name : {"ln_f", "word_embeddings_layernorm"}) {
    for (const char* part : {".weight", ".bias"}) {
      tensors[absl::StrCat("transformer.", name, part)] = {config.hidden_size};
    }
  }
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    AddBloomLayer(config, absl::StrCat("transformer.h.", i, "."), tensors);
  }
  return tensors;
}

}  // namespace

std::map<std::string, std::vector<uint64_t>> ExpectedTensors(const ModelConfig& config) {
  if (config.names == TensorNames::kBloom) return BloomTensors(config);
  Tensors tensors;
  tensors["model.embed_tokens.weight"] = {config.vocab_size, config.hidden_size};
  tensors["model.norm.weight"] = {config.hidden_size};
  if (!config.tie_word_embeddings) {
    tensors["lm_head.weight"] = {config.vocab_size, config.hidden_size};
  }
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    AddLayer(config, config.layers[i], absl::StrCat("model.layers.", i, "."), tensors);
  }
  return tensors;
}

// Keys and values of heads as two tensors, the keys transposed.
static absl::Status FindSplit(const Checkpoint& checkpoint, const ModelConfig& config,
                              const std::string& name) {
  const LatentAttentionConfig& latent = *config.latent;
  const std::string prefix = name.substr(0, name.rfind("kv_b_proj"));
  absl::Status keys =
      checkpoint
          .Find(prefix + "k_b_proj.weight", {config.num_heads, latent.latent_dim, latent.plain_dim})
          .status();
  if (!keys.ok()) return keys;
  return checkpoint
      .Find(prefix + "v_b_proj.weight", {config.num_heads, latent.value_dim, latent.latent_dim})
      .status();
}

absl::Status LoadAll(const std::string& path) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(path);
  if (!config.ok()) return config.status();
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  for (const auto& [name, shape] : ExpectedTensors(*config)) {
    // GGUF files of BLOOM have these rows in another order.
    if (absl::StrContains(name, "query_key_value") && !checkpoint->Has(name)) {
      const std::string ordered = absl::StrReplaceAll(name, {{"query_key_value", "qkv_proj"}});
      const absl::Status found = checkpoint->Find(ordered, shape).status();
      if (!found.ok()) return found;
      continue;
    }
    // Newer GGUF files of DeepSeek have two tensors instead.
    if (absl::EndsWith(name, ".kv_b_proj.weight") && !checkpoint->Has(name)) {
      if (absl::Status split = FindSplit(*checkpoint, *config, name); !split.ok()) return split;
      continue;
    }
    const absl::StatusOr<TensorInfo> tensor = checkpoint->Find(name, shape);
    if (!tensor.ok()) return tensor.status();
  }
  return absl::OkStatus();
}

}  // namespace pagoda
