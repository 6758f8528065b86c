// Long values of GGUF metadata, which GgufSkipped only points to.
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_ARRAYS_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_ARRAYS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf/gguf_values.h"

namespace pagoda {

// Each returns nothing if the value has another type. Texts point into the file or the value. Cost:
// O(elements); no text is copied.
std::optional<std::vector<absl::string_view>> GgufTexts(const GgufValue& value);
// Arrays of integers of any width and of booleans.
std::optional<std::vector<int64_t>> GgufIntegers(const GgufValue& value);
// Arrays of floating-point numbers, and of integers.
std::optional<std::vector<float>> GgufFloats(const GgufValue& value);
std::optional<absl::string_view> GgufText(const GgufValue& value);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_ARRAYS_H_
