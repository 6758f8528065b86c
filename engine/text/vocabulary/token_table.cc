#include "engine/text/vocabulary/token_table.h"

#include <utility>

namespace pagoda {

TokenTable::TokenTable(size_t size, size_t count) : tokens_(size) { ids_.reserve(count); }

TokenTable::Added TokenTable::Add(TokenId id, std::string text) {
  if (tokens_[id] != nullptr) return Added::kIdTaken;
  // The bytes of a short text are within its string, so the key is made of the string that stays.
  const std::string& kept = texts_.emplace_back(std::move(text));
  if (!ids_.emplace(kept, id).second) {
    texts_.pop_back();
    return Added::kTextTaken;
  }
  tokens_[id] = &kept;
  return Added::kNew;
}

std::optional<TokenId> TokenTable::Find(absl::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* TokenTable::Token(TokenId id) const {
  return id < tokens_.size() ? tokens_[id] : nullptr;
}

}  // namespace pagoda
