// Texts and conversations as prompts of a model.
#ifndef PAGODA_ENGINE_SERVE_PROMPT_MODEL_PROMPT_H_
#define PAGODA_ENGINE_SERVE_PROMPT_MODEL_PROMPT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/text/model_text.h"
#include "pools/types.h"

namespace pagoda {

enum class PromptKind { kText, kConversation };

struct ModelPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;  // Those that end an answer: see EndTokens.
};

// The end tokens of the model, of its tokenizer and, for a conversation, of its chat format. What
// `text` does not have adds none.
std::vector<TokenId> EndTokens(PromptKind kind, const ModelText& text, const ModelConfig& model);

// A text, which the model continues. Errors: those of ModelText::tokenizer and Tokenizer::Encode.
absl::StatusOr<ModelPrompt> EncodeText(const std::string& words, const ModelText& text,
                                       const ModelConfig& model);
// A conversation, in the model's chat format. `now` is for formats that contain the date. Errors:
// those of ModelText and ChatFormat::Render, besides.
absl::StatusOr<ModelPrompt> EncodeConversation(const Conversation& conversation,
                                               const ModelText& text, const ModelConfig& model,
                                               absl::CivilSecond now);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_MODEL_PROMPT_H_
