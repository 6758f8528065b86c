// The Qwen3 dense model: https://github.com/QwenLM/Qwen3, "Qwen3 Technical Report" (2025).
#ifndef PAGODA_ENGINE_MODEL_QWEN3_H_
#define PAGODA_ENGINE_MODEL_QWEN3_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/layers.h"
#include "engine/model/matmul.h"
#include "engine/model/model_input.h"
#include "engine/model/weights.h"
#include "kernels/types.h"

namespace pagoda {

// Computes in fp32 on the CPU. Thread-compatible: one Forward at a time.
class Qwen3 {
 public:
  Qwen3(ModelConfig config, Qwen3Weights weights);

  const ModelConfig& config() const { return config_; }

  // Runs the tokens through all layers. Writes their K and V into `kv` (one entry a layer) and
  // attends over the blocks of the input's tables. Returns the wanted logits,
  // [logit_rows][vocab_size], valid until the next call. Tokens are below vocab_size. Errors:
  // INTERNAL where oneDNN fails or a kernel refuses its arguments; the KV of the tokens is then
  // undefined.
  absl::StatusOr<absl::Span<const float>> Forward(const ModelInput& input,
                                                  absl::Span<const kernels::KvLayer> kv);

 private:
  void Embed(const ModelInput& input);
  absl::Status Attend(const Qwen3Weights::Layer& layer, const ModelInput& input,
                      const kernels::KvLayer& kv);
  void ApplyMlp(const Qwen3Weights::Layer& layer);
  void ApplyHead(const ModelInput& input);
  // Runs the rows of normed_ through `weights` into `output`.
  void Project(const Matrix& weights, std::vector<float>& output);

  const ModelConfig config_;
  const Qwen3Weights weights_;
  MatMul matmul_;
  RotaryEmbedding rotary_;

  // Activations of the N tokens at hand, kept so that a step does not allocate.
  uint64_t num_tokens_ = 0;
  std::vector<float> hidden_;    // [N][H], the residual stream
  std::vector<float> normed_;    // [N][H]
  std::vector<float> query_;     // [N][num_heads][D], then what attention makes of it
  std::vector<float> key_;       // [N][num_kv_heads][D]
  std::vector<float> value_;     // [N][num_kv_heads][D]
  std::vector<float> gate_;      // [N][I]
  std::vector<float> up_;        // [N][I]
  std::vector<float> addition_;  // [N][H], what a layer adds to hidden_
  std::vector<float> logits_;    // [logit_rows][V]
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_QWEN3_H_
