#include "engine/text/model_text.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/checkpoint/files/model_path.h"
#include "engine/checkpoint/gguf/gguf.h"
#include "engine/text/answer_tokens.h"
#include "engine/text/chat/gguf_chat.h"

namespace pagoda {
namespace {

absl::Status NoText() {
  return MakeError(Reason::kInvalidArgument,
                   "the model has no tokenizer.json, so it takes no text: send the prompt as token "
                   "ids");
}

ModelText WithoutText(const absl::Status& why) { return {why, why}; }

ModelText WithText(std::unique_ptr<Tokenizer> tokenizer, absl::StatusOr<ChatFormat> chat) {
  auto grammars = std::make_unique<GrammarCompiler>(
      [tokens = tokenizer.get()] { return AnswerTokens(*tokens); });
  return {std::move(tokenizer), std::move(chat), std::move(grammars)};
}

ModelText FromGguf(const std::string& path) {
  const absl::StatusOr<GgufFile> file = GgufFile::Open(path);
  if (!file.ok()) return WithoutText(file.status());
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(file->metadata());
  if (!tokenizer.ok()) return WithoutText(tokenizer.status());
  absl::StatusOr<ChatFormat> chat =
      ChatFormat::From(GgufChatSettings(file->metadata(), **tokenizer), **tokenizer);
  if (absl::Status unchanged = file->CheckUnchanged(); !unchanged.ok()) {
    return WithoutText(unchanged);
  }
  return WithText(*std::move(tokenizer), std::move(chat));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> ModelText::CompileGrammar(
    const StructuredOutput& wanted) const {
  if (!tokenizer.ok()) return tokenizer.status();
  return grammars->Compile(wanted);
}

bool ModelText::MustCompile(const StructuredOutput& wanted) const {
  return tokenizer.ok() && !grammars->Knows(wanted);
}

ModelText ModelText::Load(const std::string& model) {
  std::filesystem::path folder = model;
  std::error_code error;
  if (std::filesystem::is_regular_file(folder, error)) folder = folder.parent_path();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Load((folder / "tokenizer.json").string());
  if (absl::IsNotFound(tokenizer.status())) {
    const absl::StatusOr<std::optional<std::string>> gguf = FindGgufFile(model);
    if (!gguf.ok()) return WithoutText(gguf.status());
    return gguf->has_value() ? FromGguf(**gguf) : WithoutText(NoText());
  }
  if (!tokenizer.ok()) return WithoutText(tokenizer.status());
  absl::StatusOr<ChatFormat> chat = ChatFormat::Load(folder.string(), **tokenizer);
  return WithText(*std::move(tokenizer), std::move(chat));
}

}  // namespace pagoda
