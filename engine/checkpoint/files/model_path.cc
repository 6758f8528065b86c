#include "engine/checkpoint/files/model_path.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& model_path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(model_path, error);
  if (!is_folder) {
    if (absl::EndsWith(model_path, ".gguf")) return model_path;
    return std::nullopt;
  }
  if (std::filesystem::exists(absl::StrCat(model_path, "/config.json"), error)) {
    return std::nullopt;
  }
  std::optional<std::string> found;
  // A folder that cannot be read counts as one without such files.
  for (std::filesystem::directory_iterator it(model_path, error), end; it != end;
       it.increment(error)) {
    if (it->path().extension() != ".gguf") continue;
    if (found.has_value()) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(model_path,
                                    ": has several .gguf files and no config.json; "
                                    "name the file of one model"));
    }
    found = it->path().string();
  }
  return found;
}

}  // namespace pagoda
