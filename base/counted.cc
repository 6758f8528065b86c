#include "base/counted.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

std::string Plural(std::string_view noun) {
  if (noun.ends_with("ch")) return std::string(noun) + "es";
  if (!noun.ends_with('y')) return std::string(noun) + "s";
  return std::string(noun.substr(0, noun.size() - 1)) + "ies";  // After a consonant.
}

std::string Counted(uint64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", count == 1 ? std::string(noun) : Plural(noun));
}

}  // namespace pagoda
