// The parts of a model that handle text.
#ifndef PAGODA_ENGINE_TEXT_MODEL_TEXT_H_
#define PAGODA_ENGINE_TEXT_MODEL_TEXT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/structured/grammar_compiler.h"
#include "engine/text/chat/chat_format.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda {

// A model runs without these parts: without a tokenizer its prompts are token ids, without a chat
// format it takes no conversations. Immutable; thread-safe.
struct ModelText {
  // If absent: INVALID_ARGUMENT if the model has neither a tokenizer.json nor a GGUF file with a
  // vocabulary; otherwise the errors of Tokenizer::Load, Tokenizer::FromGguf, GgufFile::Open and
  // ChatFormat::Load.
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer;
  absl::StatusOr<ChatFormat> chat;
  // For structured output; null without a tokenizer. Uses the tokenizer.
  std::unique_ptr<GrammarCompiler> grammars = nullptr;

  // A grammar for answers of the model. Errors: those of GrammarCompiler::Compile; if there is no
  // tokenizer, as above. Cost: as there; the first one takes longer.
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> CompileGrammar(
      const StructuredOutput& wanted) const;
  // Whether CompileGrammar may take long, because nothing is known of the grammar yet.
  bool MustCompile(const StructuredOutput& wanted) const;

  // `model` is a model's folder or its file. A tokenizer.json in the folder wins. Otherwise a GGUF
  // file's own metadata count: of the file `model`, or of the only one in the folder.
  static ModelText Load(const std::string& model);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_MODEL_TEXT_H_
