#ifndef PAGODA_SERVER_GENERATE_GENERATE_PROMPT_H_
#define PAGODA_SERVER_GENERATE_GENERATE_PROMPT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/checkpoint/model_config.h"
#include "engine/text/model_text.h"
#include "pagoda/v1/engine.pb.h"
#include "pools/types.h"

namespace pagoda::server {

// A request's prompt in the form that the engine takes.
struct GeneratePrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;  // Those of the request, and for text the model's own.
  // What the answer is decoded with; null where the prompt was token ids.
  const Tokenizer* tokenizer = nullptr;
};

// `text` outlives what is returned; `now` is for models that are told the date. Errors:
// INVALID_PROMPT (more than one of prompt_tokens, prompt_text and messages; those of
// Tokenizer::Encode and ChatFormat::Render), INVALID_ARGUMENT and INVALID_CHECKPOINT as ModelText
// has them. No prompt at all is left to the engine.
absl::StatusOr<GeneratePrompt> ReadPrompt(const v1::GenerateRequest& request, const ModelText& text,
                                          const ModelConfig& model, absl::Time now);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_GENERATE_GENERATE_PROMPT_H_
