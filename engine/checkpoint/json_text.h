// JSON of a checkpoint, which is not trusted.
#ifndef PAGODA_ENGINE_CHECKPOINT_JSON_TEXT_H_
#define PAGODA_ENGINE_CHECKPOINT_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// An object, of whose keys no two are alike (JSON leaves open which one would hold) and which is at
// most 16 levels deep, so that its size in memory is a small multiple of the text's.
// Errors: INVALID_CHECKPOINT with `path` and what `what` ("the header") is not.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, absl::string_view path,
                                               absl::string_view what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_JSON_TEXT_H_
