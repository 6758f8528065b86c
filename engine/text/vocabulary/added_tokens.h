// Finds added tokens in a text, before any other step.
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_ADDED_TOKENS_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_ADDED_TOKENS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pools/types.h"

namespace pagoda {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // Not part of the text: usually left out when decoding.
  bool normalized = false;   // Searched for in the normalized text, not before.
  bool single_word = false;  // Not found inside a word.
  bool lstrip = false;       // Includes the spaces before it.
  bool rstrip = false;       // Includes the spaces behind it.
};

// Errors: INVALID_CHECKPOINT with the element's path.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json* list);

// Finds some of the tokens. Thread-safe.
class AddedTokenFinder {
 public:
  struct Part {
    absl::string_view text;
    std::optional<TokenId> token;  // The token, if the text is one.
  };

  // Adds a token under the text to search for.
  void Add(const std::string& text, const AddedToken& token);

  // Cuts the text into parts, from left to right: tokens and the text between them. Takes the
  // leftmost token, and the longest of several there. Finds special tokens only with kFind. Cost:
  // O(text.size() * bytes of the longest token); few tokens are long.
  enum class Special : uint8_t { kFind, kIgnore };
  std::vector<Part> Split(absl::string_view text, Special special) const;

 private:
  // A node of the tree of all texts.
  struct Node {
    absl::flat_hash_map<char, uint32_t> next;
    std::optional<AddedToken> token;
  };

  // The longest token that the text begins with, and its bytes, which can differ from its content.
  std::pair<const AddedToken*, size_t> Longest(absl::string_view text, Special special) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_ADDED_TOKENS_H_
