#include "engine/text/vocabulary/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/vocabulary/token_table.h"

namespace pagoda {
namespace {

constexpr size_t kMaxTokens = 1 << 16;
constexpr size_t kMaxBytes = 1024;

size_t LastCharacter(absl::string_view text) {
  size_t last = text.size() - 1;
  while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
  return last;
}

bool StandsAlone(absl::string_view text, size_t begin, size_t end) {
  const bool before =
      begin > 0 &&
      IsWordCharacter(ReadUtf8(text.substr(LastCharacter(text.substr(0, begin)))).code_point);
  const bool behind = end < text.size() && IsWordCharacter(ReadUtf8(text.substr(end)).code_point);
  return !before && !behind;
}

// The start of the spaces that end before `end`. SpacesBehind: the end of the spaces from `begin`
// on.
size_t SpacesBefore(absl::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    const size_t last = LastCharacter(text.substr(0, end));
    if (!IsWhitespace(ReadUtf8(text.substr(last)).code_point)) break;
    end = last;
  }
  return std::max(begin, end);
}

size_t SpacesBehind(absl::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(begin));
    if (!IsWhitespace(prefix.code_point)) break;
    begin += prefix.size;
  }
  return begin;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json* list) {
  std::vector<AddedToken> tokens;
  if (list == nullptr) return tokens;
  if (!list->is_array() || list->size() > kMaxTokens) {
    return BadTokenizer(absl::StrCat("added_tokens is not a list of at most ", kMaxTokens));
  }
  for (const nlohmann::json& element : *list) {
    const std::string path = absl::StrCat("added_tokens[", tokens.size(), "]");
    JsonFields fields(element, path);
    AddedToken token;
    const uint64_t id = fields.Number("id", TokenTable::kMaxTokens);
    token.content = fields.String("content", "");
    token.special = fields.Bool("special", false);
    token.normalized = fields.Bool("normalized", !token.special);
    token.single_word = fields.Bool("single_word", false);
    token.lstrip = fields.Bool("lstrip", false);
    token.rstrip = fields.Bool("rstrip", false);
    if (!fields.status().ok()) return fields.status();
    if (id >= TokenTable::kMaxTokens || token.content.empty() || token.content.size() > kMaxBytes) {
      return BadTokenizer(absl::StrCat(path, " has no id below ", TokenTable::kMaxTokens,
                                       ", or no content of 1 to ", kMaxBytes, " bytes"));
    }
    token.id = static_cast<TokenId>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::Add(const std::string& text, const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : text) {
    const auto next = static_cast<uint32_t>(nodes_.size());
    const auto [child, is_new] = nodes_[node].next.try_emplace(byte, next);
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  if (node != 0) nodes_[node].token = token;
}

std::pair<const AddedToken*, size_t> AddedTokenFinder::Longest(absl::string_view text,
                                                               Special special) const {
  std::pair<const AddedToken*, size_t> longest = {nullptr, 0};
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto child = nodes_[node].next.find(text[i]);
    if (child == nodes_[node].next.end()) break;
    node = child->second;
    const std::optional<AddedToken>& token = nodes_[node].token;
    if (!token.has_value() || (token->special && special == Special::kIgnore)) continue;
    longest = {&*token, i + 1};
  }
  return longest;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::Split(absl::string_view text,
                                                            Special special) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [token, size] = Longest(text.substr(at), special);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + size;
    at = end;
    if (token->single_word && !StandsAlone(text, begin, end)) continue;
    if (token->lstrip) begin = SpacesBefore(text, done, begin);
    if (token->rstrip) end = SpacesBehind(text, end);
    if (begin > done) parts.push_back({text.substr(done, begin - done), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
    at = std::max(at, done);
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
  return parts;
}

}  // namespace pagoda
