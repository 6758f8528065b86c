#include "base/counted.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

std::string Plural(std::string_view noun) {
  if (noun.ends_with("ch")) return std::string(noun) + "es";
  const std::string_view stem = noun.substr(0, noun.size() - 1);
  const bool has_vowel =
      stem.empty() || std::string_view("aeiou").find(stem.back()) != std::string_view::npos;
  if (!noun.ends_with('y') || has_vowel) return std::string(noun) + "s";
  return std::string(stem) + "ies";
}

std::string Counted(uint64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", count == 1 ? std::string(noun) : Plural(noun));
}

}  // namespace pagoda
