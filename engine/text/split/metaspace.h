// SentencePiece's spaces: a visible character that replaces them.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_METASPACE_H_
#define PAGODA_ENGINE_TEXT_SPLIT_METASPACE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda {

// The common part of the pre-tokenizer and the decoder of this name.
struct Metaspace {
  // Which words get a space in front.
  enum class Scheme : uint8_t { kAlways, kFirst, kNever };

  std::string replacement;  // One character.
  Scheme scheme = Scheme::kAlways;
  bool split = true;

  // Errors: INVALID_CHECKPOINT with `path`.
  static absl::StatusOr<Metaspace> Parse(const nlohmann::json& json, const std::string& path);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_METASPACE_H_
