// What a model needs for text, beside its weights.
#ifndef PAGODA_ENGINE_TEXT_MODEL_TEXT_H_
#define PAGODA_ENGINE_TEXT_MODEL_TEXT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/text/chat_format.h"
#include "engine/text/tokenizer.h"

namespace pagoda {

// A model runs without either: its prompts are then the ids of tokens, or no conversations. Does
// not change; thread-safe.
struct ModelText {
  // Why there is none otherwise: INVALID_ARGUMENT where the model has no tokenizer.json, else as
  // Tokenizer::Load and ChatFormat::Load say.
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer;
  absl::StatusOr<ChatFormat> chat;

  // Of a model's folder, or of that of its file.
  static ModelText Load(const std::string& model);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_MODEL_TEXT_H_
