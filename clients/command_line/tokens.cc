#include "clients/command_line/tokens.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"

namespace pagoda {

namespace {

// `what` names an id in errors.
template <class Id>
absl::StatusOr<std::vector<Id>> ParseIds(const std::string& text, const char* what) {
  std::vector<Id> ids;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  for (absl::string_view part : parts) {
    const size_t before = ids.size();
    for (absl::string_view word :
         absl::StrSplit(part, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
      Id id = 0;
      if (!absl::SimpleAtoi(word, &id)) {
        return MakeError(
            Reason::kInvalidArgument,
            absl::StrCat("\"", word, "\" is not a valid ", what, " (an integer from 0 to ",
                         std::numeric_limits<Id>::max(), ")"));
      }
      ids.push_back(id);
    }
    if (ids.size() == before && parts.size() > 1) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("the ", what, " at position ", ids.size(),
                                    " is empty: a comma stands between two ids"));
    }
  }
  return ids;
}

// `parse` reads the file's text.
template <class Parse>
auto ReadIdFile(const std::string& path, Parse parse) -> decltype(parse(path)) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot read ", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  auto ids = parse(text);
  if (!ids.ok()) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(path, ": ", ids.status().message()));
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> ParseTokens(const std::string& text) {
  return ParseIds<TokenId>(text, "token id");
}

absl::StatusOr<std::vector<uint64_t>> ParseExtraIds(const std::string& text) {
  return ParseIds<uint64_t>(text, "extra id");
}

std::string CheckTokens(const std::string& text) {
  return std::string(ParseTokens(text).status().message());
}

std::string CheckExtraIds(const std::string& text) {
  return std::string(ParseExtraIds(text).status().message());
}

absl::StatusOr<std::vector<TokenId>> ReadTokenFile(const std::string& path) {
  return ReadIdFile(path, ParseTokens);
}

absl::StatusOr<std::vector<uint64_t>> ReadExtraIdFile(const std::string& path) {
  return ReadIdFile(path, ParseExtraIds);
}

std::vector<TokenId> RandomTokens::Take(size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = Next();
  return tokens;
}

}  // namespace pagoda
