// Which experts compute which tokens.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_ROUTING_H_
#define PAGODA_ENGINE_MODEL_LAYERS_ROUTING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// The tokens of one expert, ascending, and the factor of each token's result.
struct ExpertTokens {
  uint32_t expert = 0;
  std::vector<uint32_t> rows;
  std::vector<float> factors;
};

// Chooses each token's experts by the router's outputs, [tokens][config.count], as Hugging Face's
// models do: Qwen 3 (softmax), DeepSeek V2 (softmax, groups by their best expert), DeepSeek V3
// (sigmoid, a correction for the choice, groups by their two best experts; DeepSeek-AI, 2024) and
// gpt-oss (softmax of the chosen). Among equal experts, the lower number is chosen.
// `correction`: [config.count], or empty.
//
// Returns the experts that have tokens, ascending. Computes in fp32; a token's experts depend on
// its own outputs only.
std::vector<ExpertTokens> RouteTokens(const ExpertsConfig& config,
                                      absl::Span<const float> correction,
                                      absl::Span<const float> outputs);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_ROUTING_H_
