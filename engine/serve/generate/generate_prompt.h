#ifndef PAGODA_ENGINE_SERVE_GENERATE_GENERATE_PROMPT_H_
#define PAGODA_ENGINE_SERVE_GENERATE_GENERATE_PROMPT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/structured/grammar.h"
#include "engine/text/model_text.h"
#include "pagoda/v1/engine.pb.h"
#include "pools/types.h"

namespace pagoda::server {

// Turns a request's prompt into the form that the engine takes.
struct GeneratePrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;                // The request's and, for a text, the model's.
  std::shared_ptr<const CompiledGrammar> grammar;  // See GenerateRequest.
  // The tokenizer that decodes the answer; null if the prompt was token ids.
  const Tokenizer* tokenizer = nullptr;
};

// `text` outlives the result. `now` is for chat formats that contain the date. A request without
// any prompt is passed on; the engine refuses it. Errors: INVALID_PROMPT (more than one of
// prompt_tokens, prompt_text and messages; those of Tokenizer::Encode and ChatFormat::Render);
// INVALID_ARGUMENT and INVALID_CHECKPOINT as in ModelText.
absl::StatusOr<GeneratePrompt> ReadPrompt(const v1::GenerateRequest& request, const ModelText& text,
                                          const ModelConfig& model, absl::Time now);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_GENERATE_GENERATE_PROMPT_H_
