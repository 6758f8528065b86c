#include "clients/pagodactl/tokens.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "pools/error.h"

namespace pagoda {

absl::StatusOr<std::vector<TokenId>> ParseTokens(const std::string& text) {
  std::vector<TokenId> tokens;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty())) {
    TokenId token = 0;
    if (!absl::SimpleAtoi(word, &token)) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("\"", word, "\" is no token id (an integer from 0 to ",
                                    std::numeric_limits<TokenId>::max(), ")"));
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string CheckTokens(const std::string& text) {
  return std::string(ParseTokens(text).status().message());
}

absl::StatusOr<std::vector<TokenId>> ReadTokenFile(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot read ", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  absl::StatusOr<std::vector<TokenId>> tokens = ParseTokens(text);
  if (!tokens.ok()) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(path, ": ", tokens.status().message()));
  }
  return tokens;
}

std::vector<TokenId> RandomTokens::Take(size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = Next();
  return tokens;
}

}  // namespace pagoda
