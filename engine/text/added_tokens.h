// Tokens that are found in a text before anything else is done to it.
#ifndef PAGODA_ENGINE_TEXT_ADDED_TOKENS_H_
#define PAGODA_ENGINE_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
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
  bool special = false;      // Not part of what is said: left out where text is wanted.
  bool normalized = false;   // Looked for in the normalized text, not before.
  bool single_word = false;  // Not inside a word.
  bool lstrip = false;       // Takes the spaces before it with it.
  bool rstrip = false;       // And those behind it.
};

// Errors: INVALID_CHECKPOINT with the element's path.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json* list);

// Finds some of the tokens. Thread-safe.
class AddedTokenFinder {
 public:
  struct Part {
    absl::string_view text;
    std::optional<TokenId> token;  // Which the text is.
  };

  // Under each token's text as it is looked for.
  void Add(const std::string& text, const AddedToken& token);

  // The text in parts, from left to right: the leftmost token, of several the longest, and what is
  // between. Special tokens are only found if `special` says so. Cost: O(text.size() * bytes of
  // the longest token), in which few tokens are long.
  enum class Special : uint8_t { kFind, kIgnore };
  std::vector<Part> Split(absl::string_view text, Special special) const;

 private:
  // A node of the tree of all texts.
  struct Node {
    absl::flat_hash_map<char, uint32_t> next;
    std::optional<AddedToken> token;
  };

  // The longest token that the text begins with. Its bytes, which are not always its content's.
  std::pair<const AddedToken*, size_t> Longest(absl::string_view text, Special special) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ADDED_TOKENS_H_
