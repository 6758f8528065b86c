// Finds the files of a model's path.
#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_MODEL_PATH_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_MODEL_PATH_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda {

// The model's GGUF file: the path itself if it ends in .gguf, or the only such file of a folder
// without config.json. Nothing if the path counts as a Hugging Face folder. Errors:
// INVALID_CHECKPOINT with the path if a folder without config.json has several .gguf files.
absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& model_path);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_MODEL_PATH_H_
