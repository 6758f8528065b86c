// Token ids from arguments, files and seeds.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_TOKENS_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TOKENS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/types.h"

namespace pagoda {

// Parses ids separated by one comma, whitespace or both: "1,2, 3". Errors: INVALID_ARGUMENT with
// the word that is not an id, or the position where an id is missing.
absl::StatusOr<std::vector<TokenId>> ParseTokens(const std::string& text);

// The same for extra ids, which have 64 bits.
absl::StatusOr<std::vector<uint64_t>> ParseExtraIds(const std::string& text);

// For options of CLI11: the error in the list; empty if it is valid.
std::string CheckTokens(const std::string& text);
std::string CheckExtraIds(const std::string& text);

// Reads the ids in a file; "-" is standard input. Errors: INVALID_ARGUMENT for a file that cannot
// be read or has other content.
absl::StatusOr<std::vector<TokenId>> ReadTokenFile(const std::string& path);
absl::StatusOr<std::vector<uint64_t>> ReadExtraIdFile(const std::string& path);

// Random ids below `vocab_size` (at least 1). One seed gives the same ids on every platform.
class RandomTokens {
 public:
  RandomTokens(uint64_t seed, uint32_t vocab_size) : engine_(seed), vocab_size_(vocab_size) {}

  TokenId Next() { return static_cast<TokenId>(engine_() % vocab_size_); }
  std::vector<TokenId> Take(size_t count);

 private:
  std::mt19937_64 engine_;  // The C++ standard fixes its output, but not that of its distributions.
  uint32_t vocab_size_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TOKENS_H_
