#include "engine/text/model_text.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

ModelText ModelText::Load(const std::string& model) {
  std::filesystem::path folder = model;
  std::error_code error;
  if (std::filesystem::is_regular_file(folder, error)) folder = folder.parent_path();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Load((folder / "tokenizer.json").string());
  if (absl::IsNotFound(tokenizer.status())) {
    tokenizer = MakeError(Reason::kInvalidArgument,
                          "the model has no tokenizer.json, so it takes no text: send the prompt "
                          "as token ids");
  }
  if (!tokenizer.ok()) return {tokenizer.status(), tokenizer.status()};
  absl::StatusOr<ChatFormat> chat = ChatFormat::Load(folder.string(), **tokenizer);
  return {std::move(tokenizer), std::move(chat)};
}

}  // namespace pagoda
