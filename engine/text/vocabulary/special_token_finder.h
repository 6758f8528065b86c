// Finds the special tokens of a GGUF file's vocabulary in a text.
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_SPECIAL_TOKEN_FINDER_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_SPECIAL_TOKEN_FINDER_H_

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "pools/types.h"

namespace pagoda {

// Cuts a text by llama.cpp's rule: the longest of all tokens first, wherever they are, each from
// left to right, then the next shorter one in what is left. Thread-compatible.
class SpecialTokenFinder {
 public:
  struct Part {
    absl::string_view text;
    std::optional<TokenId> token;  // The token, if the text is one.
  };
  // kDropped: the spaces behind the token belong to nothing.
  enum class SpacesBehind : uint8_t { kKept, kDropped };

  static constexpr size_t kMaxTokenBytes = 1024;

  // Ignores texts that are empty or not UTF-8, which no text contains at a character. REQUIRES: at
  // most kMaxTokenBytes.
  void Add(const std::string& text, TokenId id, SpacesBehind spaces);

  // The parts of the text, from left to right; none is empty. Errors: INVALID_PROMPT beyond the
  // deadline. Cost: O(bytes of the text) where no token begins; otherwise times the number of
  // lengths of the tokens that begin with the same two bytes.
  absl::StatusOr<std::vector<Part>> Split(absl::string_view text, absl::Time deadline) const;

 private:
  struct Token {
    std::string text;
    TokenId id = 0;
    SpacesBehind spaces = SpacesBehind::kKept;
  };

  // Appends the tokens (as indices of tokens_) with which the text begins.
  void FindAt(absl::string_view text, std::vector<uint32_t>& found) const;
  // Where what belongs to a token ends that begins the text.
  size_t EndOf(const Token& token, absl::string_view text) const;
  // The parts of a text in which `found`, and no others, occur.
  absl::Status Resolve(absl::string_view text, std::vector<uint32_t> found, absl::Time deadline,
                       std::vector<Part>& out) const;
  void CutAt(const Token& token, const Part& part, std::vector<Part>& out) const;

  std::vector<Token> tokens_;
  absl::flat_hash_map<std::string, uint32_t> by_text_;
  std::bitset<1 << 16> beginnings_;                               // First two bytes of tokens.
  absl::flat_hash_map<uint16_t, std::vector<uint16_t>> lengths_;  // By these.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_SPECIAL_TOKEN_FINDER_H_
