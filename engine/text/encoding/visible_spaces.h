// Spaces as SentencePiece writes them: the visible character U+2581.
#ifndef PAGODA_ENGINE_TEXT_ENCODING_VISIBLE_SPACES_H_
#define PAGODA_ENGINE_TEXT_ENCODING_VISIBLE_SPACES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

inline constexpr char kVisibleSpace[] = "\u2581";

std::string SpacesToVisible(absl::string_view text);
std::string VisibleToSpaces(absl::string_view text);

// Whether a visible space follows another character.
bool HasInnerSpace(absl::string_view text);

// The visible spaces at the beginning of the text, and the other characters up to the next visible
// space. Not empty unless the text is. No token without an inner space reaches beyond it.
absl::string_view FirstSpacedWord(absl::string_view text);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ENCODING_VISIBLE_SPACES_H_
