#include "engine/checkpoint/config/bloom_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/decoder_fields.h"

namespace pagoda {
namespace {

// Without positions, nothing bounds a context; this is what BLOOM was trained with.
constexpr uint32_t kTrainedPositions = 2048;

}  // namespace

void SetBloomParts(ModelConfig& config) {
  config.names = TensorNames::kBloom;
  config.head_dim = std::clamp(config.hidden_size / config.num_heads, 2u, kMaxHeadDim);
  for (LayerConfig& layer : config.layers) layer.num_kv_heads = config.num_heads;
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.activation = Activation::kGeluTanh;
  config.gated_mlp = false;
  config.layer_norms = true;
  config.embedding_norm = true;
  config.alibi = true;
  config.attention_bias = config.output_bias = config.mlp_bias = true;
}

void ReadBloom(FieldReader& reader, ModelConfig& config) {
  config.vocab_size = reader.CountOr("vocab_size", kMaxVocabSize, 250880);
  // Old files call it n_embed.
  config.hidden_size =
      reader.Count(reader.IsMissing("hidden_size") ? "n_embed" : "hidden_size", kMaxHiddenSize);
  config.intermediate_size = 4 * config.hidden_size;
  config.num_heads =
      reader.Count(reader.IsMissing("n_head") ? "num_attention_heads" : "n_head", kMaxHeads);
  config.layers.resize(
      reader.Count(reader.IsMissing("n_layer") ? "num_hidden_layers" : "n_layer", kMaxLayers));
  if (config.hidden_size % (2 * config.num_heads) != 0) {
    reader.Refuse("hidden_size", absl::StrCat("an even multiple of n_head ", config.num_heads));
  }
  config.max_position_embeddings =
      reader.CountOr("seq_length", kMaxPositionEmbeddings, kTrainedPositions);
  config.rms_norm_eps = reader.PositiveOr("layer_norm_epsilon", 1e-5f);
  config.tie_word_embeddings = reader.FlagOr("tie_word_embeddings", true);
  SetBloomParts(config);
  reader.RefuseUnlessFalse("apply_residual_connection_post_layernorm");
  reader.RefuseUnlessNull("quantization_config", "this quantisation of weights is not supported");
}

}  // namespace pagoda
