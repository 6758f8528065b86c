#include "engine/model/weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

// Reads tensors under a prefix and keeps the first error, so that the reading itself stays a list.
class TensorReader {
 public:
  explicit TensorReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const absl::Status& status() const { return status_; }

  std::vector<float> Vector(const std::string& name, uint64_t size) { return Read(name, {size}); }
  Matrix MatrixOf(const std::string& name, uint64_t rows, uint64_t cols) {
    return {rows, cols, Read(name, {rows, cols})};
  }

 private:
  std::vector<float> Read(const std::string& name, std::vector<uint64_t> shape) {
    if (!status_.ok()) return {};
    absl::StatusOr<std::vector<float>> values = checkpoint_.ReadFloats(name + ".weight", shape);
    if (values.ok()) return *std::move(values);
    status_ = values.status();
    return {};
  }

  const Checkpoint& checkpoint_;
  absl::Status status_;
};

Qwen3Weights::Layer ReadLayer(TensorReader& reader, const ModelConfig& config, uint32_t layer) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{config.layers[layer].num_kv_heads} * config.head_dim;
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  return {
      .attention_norm = reader.Vector(prefix + "input_layernorm", hidden),
      .query = reader.MatrixOf(attention + "q_proj", queries, hidden),
      .key = reader.MatrixOf(attention + "k_proj", keys, hidden),
      .value = reader.MatrixOf(attention + "v_proj", keys, hidden),
      .query_norm = reader.Vector(attention + "q_norm", config.head_dim),
      .key_norm = reader.Vector(attention + "k_norm", config.head_dim),
      .attention_output = reader.MatrixOf(attention + "o_proj", hidden, queries),
      .mlp_norm = reader.Vector(prefix + "post_attention_layernorm", hidden),
      .gate = reader.MatrixOf(mlp + "gate_proj", config.intermediate_size, hidden),
      .up = reader.MatrixOf(mlp + "up_proj", config.intermediate_size, hidden),
      .down = reader.MatrixOf(mlp + "down_proj", hidden, config.intermediate_size),
  };
}

}  // namespace

absl::StatusOr<Qwen3Weights> LoadQwen3Weights(const ModelConfig& config,
                                              const Checkpoint& checkpoint) {
  TensorReader reader(checkpoint);
  Qwen3Weights weights;
  weights.embedding = reader.MatrixOf("model.embed_tokens", config.vocab_size, config.hidden_size);
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    weights.layers.push_back(ReadLayer(reader, config, layer));
  }
  weights.final_norm = reader.Vector("model.norm", config.hidden_size);
  if (!config.tie_word_embeddings) {
    weights.untied_head = reader.MatrixOf("lm_head", config.vocab_size, config.hidden_size);
  }
  if (!reader.status().ok()) return reader.status();
  return weights;
}

}  // namespace pagoda
