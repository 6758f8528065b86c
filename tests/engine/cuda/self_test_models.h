// Models for the tests of the self-test: the architectures that need more kernels than Llama does.
#ifndef PAGODA_TESTS_ENGINE_CUDA_SELF_TEST_MODELS_H_
#define PAGODA_TESTS_ENGINE_CUDA_SELF_TEST_MODELS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {

struct TestedModel {
  std::string name;
  ModelConfig config;
  std::vector<std::string> parts;  // The parts of the self-test that not all models have.

  GpuSelfTestRequest Request(kernels::ElementType kv_type, uint64_t timing_bytes) const {
    GpuSelfTestRequest request;
    request.config = config;
    request.kv_type = kv_type;
    request.tokens_per_block = 16;
    request.timing_bytes = timing_bytes;
    return request;
  }
};

// Heads and dimensions as in small models of these architectures.
inline std::vector<TestedModel> TestedModels() {
  ModelConfig plain;
  plain.num_heads = 8;
  plain.head_dim = 64;
  plain.query_scale = 0.125f;

  ModelConfig bloom = plain;
  bloom.layers = {{.num_kv_heads = 8}};
  bloom.layer_norms = bloom.embedding_norm = bloom.alibi = true;
  bloom.gated_mlp = false;
  bloom.activation = Activation::kGeluTanh;

  ModelConfig gpt_oss = plain;
  gpt_oss.layers = {{.window = WindowSize(128), .num_kv_heads = 1}, {.num_kv_heads = 1}};
  gpt_oss.rotaries = {{.theta = 150000.0f,
                       .scaling = RotaryConfig::Scaling::kYarn,
                       .factor = 32.0f,
                       .original_max_position_embeddings = 4096,
                       .truncate = false,
                       .attention_factor = 1.3465736f}};
  gpt_oss.attention_sinks = true;
  gpt_oss.activation = Activation::kClampedSilu;
  gpt_oss.activation_alpha = 1.702f;
  gpt_oss.activation_limit = 7.0f;

  ModelConfig phi = plain;
  phi.head_dim = 48;
  phi.layers = {{.num_kv_heads = 2}};
  phi.rotaries = {{.rotary_dim = 36}};

  ModelConfig deepseek = plain;
  deepseek.latent = {.latent_dim = 512, .plain_dim = 128, .rotary_dim = 64, .value_dim = 128};
  deepseek.head_dim = 576;
  deepseek.query_scale = 1.0f / std::sqrt(192.0f);
  deepseek.layers = {{.num_kv_heads = 1, .kind = KvKind::kKeyOnly, .value_dim = 512}};
  deepseek.rotaries = {{.scaling = RotaryConfig::Scaling::kYarn,
                        .factor = 40.0f,
                        .original_max_position_embeddings = 4096,
                        .attention_factor = 0.9f,
                        .rotary_dim = 64,
                        .pairs = RotaryConfig::Pairs::kNeighbours}};

  // More heads than an item of decode has rows.
  ModelConfig many_heads = deepseek;
  many_heads.num_heads = 20;

  return {{.name = "Bloom", .config = bloom, .parts = {"layer_norm", "gelu"}},
          {.name = "gpt-oss", .config = gpt_oss, .parts = {"clamped_gate", "rotary"}},
          {.name = "Phi", .config = phi, .parts = {"rotary", "row_lists"}},
          {.name = "DeepSeek", .config = deepseek, .parts = {"rotary", "head_copy"}},
          {.name = "DeepSeek of 20 heads", .config = many_heads, .parts = {"head_copy"}}};
}

inline TestedModel ModelNamed(const std::string& name) {
  const std::vector<TestedModel> models = TestedModels();
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const TestedModel& model) { return model.name == name; });
  PAGODA_CHECK(found != models.end(), "the model is in the list");
  return *found;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CUDA_SELF_TEST_MODELS_H_
