// A file of bearer tokens.
#ifndef PAGODA_SERVER_CALLERS_TOKENS_FILE_H_
#define PAGODA_SERVER_CALLERS_TOKENS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/callers/identity.h"
#include "server/callers/watched_file.h"

namespace pagoda::server {

TokenDigest DigestOf(absl::string_view token);

inline constexpr size_t kMinTokenLength = 16;
inline constexpr size_t kMaxTokenLength = 1024;

// Parses one token a line: 16 to 1,024 printable characters without blanks. Skips empty lines and
// lines that begin with '#'. `file` is the name that errors carry; they never carry a token.
// Errors: INVALID_ARGUMENT with the line.
absl::StatusOr<std::vector<TokenDigest>> ParseTokens(absl::string_view text,
                                                     const std::string& file);

// Errors: those of ReadSecretFile and ParseTokens.
absl::StatusOr<std::vector<TokenDigest>> ReadTokensFile(const std::string& path, Exposure exposure);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_TOKENS_FILE_H_
