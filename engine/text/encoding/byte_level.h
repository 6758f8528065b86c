// Bytes as visible characters, as GPT-2's tokenizer writes any bytes as text (Radford et al., 2019,
// encoder.py: bytes_to_unicode).
#ifndef PAGODA_ENGINE_TEXT_ENCODING_BYTE_LEVEL_H_
#define PAGODA_ENGINE_TEXT_ENCODING_BYTE_LEVEL_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

std::string BytesToVisible(absl::string_view bytes);
// The inverse; nothing if a character stands for no byte.
std::optional<std::string> VisibleToBytes(absl::string_view text);

// The byte of a token like "<0xE2>", by which SentencePiece writes bytes.
std::optional<char> ByteOfToken(absl::string_view token);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ENCODING_BYTE_LEVEL_H_
