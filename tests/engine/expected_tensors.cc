#include "tests/engine/expected_tensors.h"

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

void AddLayer(const ModelConfig& config, const LayerConfig& layer, const std::string& prefix,
              std::map<std::string, std::vector<uint64_t>>& tensors) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{layer.num_kv_heads} * config.head_dim;
  const std::map<std::string, uint64_t> outputs = {{"q", queries}, {"k", keys}, {"v", keys}};
  for (const auto& [name, size] : outputs) {
    const std::string projection = prefix + "self_attn." + name + "_proj";
    tensors[projection + ".weight"] = {size, hidden};
    if (config.attention_bias) tensors[projection + ".bias"] = {size};
    if (config.query_key_norm && name != "v") {
      tensors[prefix + "self_attn." + name + "_norm.weight"] = {config.head_dim};
    }
  }
  tensors[prefix + "self_attn.o_proj.weight"] = {hidden, queries};
  for (const char* name : {"gate", "up"}) {
    tensors[prefix + "mlp." + name + "_proj.weight"] = {config.intermediate_size, hidden};
  }
  tensors[prefix + "mlp.down_proj.weight"] = {hidden, config.intermediate_size};
  for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
    tensors[prefix + name + ".weight"] = {hidden};
  }
  if (!config.post_norms) return;
  for (const char* name : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    tensors[prefix + name + ".weight"] = {hidden};
  }
}

}  // namespace

std::map<std::string, std::vector<uint64_t>> ExpectedTensors(const ModelConfig& config) {
  std::map<std::string, std::vector<uint64_t>> tensors;
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

absl::Status LoadAll(const std::string& path) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(path);
  if (!config.ok()) return config.status();
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  for (const auto& [name, shape] : ExpectedTensors(*config)) {
    const absl::StatusOr<TensorInfo> tensor = checkpoint->Find(name, shape);
    if (!tensor.ok()) return tensor.status();
  }
  return absl::OkStatus();
}

}  // namespace pagoda
