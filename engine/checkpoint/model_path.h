// What a path to a model means.
#ifndef PAGODA_ENGINE_CHECKPOINT_MODEL_PATH_H_
#define PAGODA_ENGINE_CHECKPOINT_MODEL_PATH_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda {

// The model's GGUF file: the path itself, where it ends in .gguf, or the only such file of a folder
// that has no config.json. Nothing where the path is taken for a Hugging Face folder.
// Errors: INVALID_CHECKPOINT with the path where a folder without config.json has several.
absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& model_path);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_MODEL_PATH_H_
