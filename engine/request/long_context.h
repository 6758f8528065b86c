// Which requests compute with the factors of long contexts.
#ifndef PAGODA_ENGINE_REQUEST_LONG_CONTEXT_H_
#define PAGODA_ENGINE_REQUEST_LONG_CONTEXT_H_

#include <cstdint>
#include <optional>

#include "engine/checkpoint/config/model_config.h"
#include "engine/request/generate.h"

namespace pagoda {

// Sets the request's rotary_range, and for kLong also its namespace's lora_id. A model with
// LongRoPE (RotaryConfig::Scaling::kLongRope) rotates all keys of a sequence with the factors of
// short or of long contexts. transformers chooses in each step by the tokens so far, and computes K
// again at the boundary. The cache keeps K rotated, so a sequence cannot change. The engine chooses
// by the most tokens whose K the request can need: its prompt and its new tokens without the last.
//
// So answers differ from those of transformers in one case: the prompt has at most
// original_max_position_embeddings tokens, and the request may generate beyond. Then all tokens
// have the long factors; transformers has the short ones until it crosses the boundary.
//
// Invariant: K of long factors is only in namespaces with a lora_id that requests cannot choose
// (CheckRequest), so that no sequence of the other range matches it. REQUIRES: an adapter's
// lora_id, if any, is already set.
void ApplyRotaryRange(const ModelConfig& model, GenerateRequest& request);

// The lora_id for long factors: a one-to-one function of the adapter's.
uint64_t LongContextLoraId(std::optional<uint64_t> adapter);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_REQUEST_LONG_CONTEXT_H_
