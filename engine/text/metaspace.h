// SentencePiece's spaces: a character that can be seen in their place.
#ifndef PAGODA_ENGINE_TEXT_METASPACE_H_
#define PAGODA_ENGINE_TEXT_METASPACE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda {

// What the pre-tokenizer and the decoder of that name have in common.
struct Metaspace {
  // Which words get one in front.
  enum class Scheme : uint8_t { kAlways, kFirst, kNever };

  std::string replacement;  // One character.
  Scheme scheme = Scheme::kAlways;
  bool split = true;

  // Errors: INVALID_CHECKPOINT with `path`.
  static absl::StatusOr<Metaspace> Parse(const nlohmann::json& json, const std::string& path);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_METASPACE_H_
