// Untrusted JSON of a checkpoint.
#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_JSON_TEXT_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// Parses an object without duplicate keys (JSON does not define which one would count) and at most
// 16 levels deep, so that its size in memory is a small multiple of the text's. Errors:
// INVALID_CHECKPOINT with `path`, `what` (for example "the header") and the fault.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, absl::string_view path,
                                               absl::string_view what);

// The same of a whole file. Errors: also those of MappedFile.
absl::StatusOr<nlohmann::json> ParseJsonFile(const std::string& path, absl::string_view what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_JSON_TEXT_H_
