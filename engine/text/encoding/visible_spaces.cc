#include "engine/text/encoding/visible_spaces.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace pagoda {

std::string SpacesToVisible(absl::string_view text) {
  return absl::StrReplaceAll(text, {{" ", kVisibleSpace}});
}

std::string VisibleToSpaces(absl::string_view text) {
  return absl::StrReplaceAll(text, {{kVisibleSpace, " "}});
}

absl::string_view FirstSpacedWord(absl::string_view text) {
  constexpr absl::string_view kSpace = kVisibleSpace;
  size_t spaces = 0;
  while (absl::StartsWith(text.substr(spaces), kSpace)) spaces += kSpace.size();
  return text.substr(0, std::min(text.find(kSpace, spaces), text.size()));
}

bool HasInnerSpace(absl::string_view text) { return FirstSpacedWord(text).size() < text.size(); }

}  // namespace pagoda
