#include "server/callers/tokens_file.h"

#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

bool IsToken(absl::string_view text) {
  return text.size() >= kMinTokenLength && text.size() <= kMaxTokenLength &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

}  // namespace

TokenDigest DigestOf(absl::string_view token) {
  TokenDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<std::vector<TokenDigest>> ParseTokens(absl::string_view text,
                                                     const std::string& file) {
  std::vector<TokenDigest> tokens;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view token = absl::StripAsciiWhitespace(line);
    if (token.empty() || token.front() == '#') continue;
    if (!IsToken(token)) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat(file, ":", number, ": not a token of ", kMinTokenLength, " to ",
                                    kMaxTokenLength, " printable characters without blanks"));
    }
    tokens.push_back(DigestOf(token));
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenDigest>> ReadTokensFile(const std::string& path,
                                                        Exposure exposure) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path, exposure);
  if (!text.ok()) return text.status();
  return ParseTokens(*text, path);
}

}  // namespace pagoda::server
