#include "engine/structured/grammar_rules.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/structured/bracket_depth.h"

namespace pagoda {
namespace {

struct EbnfToken {
  enum class Kind : uint8_t { kName, kString, kClass, kAssign, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  absl::string_view text;  // A string or a class has no delimiters here.
};

bool BeginsName(char c) { return absl::ascii_isalpha(c) || c == '_' || c == '-' || c == '.'; }

// The end of the string or class that begins at `begin`, behind its last character.
size_t EndOf(absl::string_view text, size_t begin, char closes) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != closes) i += text[i] == '\\' ? 2 : 1;
  return i < text.size() ? i + 1 : text.size() + 1;
}

// The library's tokens, as far as they matter here.
std::vector<EbnfToken> TokensOf(absl::string_view text) {
  std::vector<EbnfToken> tokens;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t end = i + 1;
    if (c == '#') {
      while (end < text.size() && text[end] != '\n' && text[end] != '\r') ++end;
    } else if (c == '"' || c == '[') {
      end = EndOf(text, i, c == '"' ? '"' : ']');
      tokens.push_back({c == '"' ? EbnfToken::Kind::kString : EbnfToken::Kind::kClass,
                        text.substr(i + 1, end - i - 2)});
    } else if (BeginsName(c)) {
      while (end < text.size() && (BeginsName(text[end]) || absl::ascii_isdigit(text[end]))) ++end;
      tokens.push_back({EbnfToken::Kind::kName, text.substr(i, end - i)});
    } else if (text.substr(i, 3) == "::=") {
      end = i + 3;
      tokens.push_back({EbnfToken::Kind::kAssign, text.substr(i, 3)});
    } else if (!absl::ascii_isspace(c)) {
      tokens.push_back({EbnfToken::Kind::kSymbol, text.substr(i, 1)});
    }
    i = end;
  }
  // Three ends: so far does RuleReader look ahead.
  tokens.resize(tokens.size() + 3);
  return tokens;
}

// What a part of a rule is without the empty texts and brackets around it.
struct RuleContent {
  enum class Kind : uint8_t { kNothing, kRule, kRepeatedRule, kOther };
  Kind kind = Kind::kNothing;
  absl::string_view rule;  // The rule, for the kinds with one.
};

using RuleContents = std::map<absl::string_view, RuleContent>;

// The most characters of a cycle that an error shows.
constexpr size_t kMostChain = 200;

class RuleReader {
 public:
  RuleReader(std::vector<EbnfToken> tokens, size_t max_depth)
      : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  // Reads all rules. `empty`: rules that derive only the empty text; a reference to one is nothing.
  RuleContents Read(const absl::flat_hash_set<absl::string_view>& empty) {
    empty_ = &empty;
    RuleContents rules;
    at_ = 0;
    while (At().kind != EbnfToken::Kind::kEnd) {
      if (!IsRule()) {
        ++at_;
        continue;
      }
      const absl::string_view name = At().text;
      at_ += At(1).kind == EbnfToken::Kind::kClass ? 3 : 2;
      rules[name] = Choices(/*depth=*/0);
    }
    return rules;
  }
  // The brackets of the deepest expression.
  size_t deepest_expression() const { return deepest_expression_; }

 private:
  const EbnfToken& At(size_t ahead = 0) const { return tokens_[at_ + ahead]; }
  bool IsSymbol(char symbol, size_t ahead = 0) const {
    return At(ahead).kind == EbnfToken::Kind::kSymbol && At(ahead).text[0] == symbol;
  }
  // `name ::=`, or `name[attributes] ::=`.
  bool IsRule() const {
    if (At().kind != EbnfToken::Kind::kName) return false;
    return At(1).kind == EbnfToken::Kind::kAssign ||
           (At(1).kind == EbnfToken::Kind::kClass && At(2).kind == EbnfToken::Kind::kAssign);
  }
  // A look-ahead assertion `(= ...)` is no part of the sequence before it.
  bool EndsSequence() const {
    return At().kind == EbnfToken::Kind::kEnd || IsRule() || IsSymbol('|') || IsSymbol(')') ||
           (IsSymbol('(') && IsSymbol('=', 1));
  }

  RuleContent Choices(size_t depth) {
    RuleContent all = Sequence(depth);
    while (IsSymbol('|')) {
      ++at_;
      Sequence(depth);
      all = {.kind = RuleContent::Kind::kOther};
    }
    return all;
  }

  RuleContent Sequence(size_t depth) {
    RuleContent all;
    while (!EndsSequence()) {
      const RuleContent element = QuantifiedElement(depth);
      if (element.kind == RuleContent::Kind::kNothing) continue;
      all = all.kind == RuleContent::Kind::kNothing ? element
                                                    : RuleContent{RuleContent::Kind::kOther, {}};
    }
    return all;
  }

  RuleContent QuantifiedElement(size_t depth) {
    RuleContent element = Element(depth);
    if (IsSymbol('*') || IsSymbol('+') || IsSymbol('?')) {
      ++at_;
      return {.kind = RuleContent::Kind::kOther};
    }
    if (!IsSymbol('{')) return element;
    SkipTo('}');
    if (element.kind == RuleContent::Kind::kRule) element.kind = RuleContent::Kind::kRepeatedRule;
    return element;
  }

  RuleContent Element(size_t depth) {
    const EbnfToken token = At();
    ++at_;
    if (token.kind == EbnfToken::Kind::kString && token.text.empty()) return {};
    if (token.kind == EbnfToken::Kind::kName && IsMacro(token.text) && IsSymbol('(')) {
      SkipTo(')');
      return {.kind = RuleContent::Kind::kOther};
    }
    if (token.kind == EbnfToken::Kind::kName) {
      if (empty_->contains(token.text)) return {};
      return {.kind = RuleContent::Kind::kRule, .rule = token.text};
    }
    if (token.kind != EbnfToken::Kind::kSymbol || token.text != "(") {
      return {.kind = RuleContent::Kind::kOther};
    }
    // The caller has bounded the brackets; this only keeps a text that was read otherwise there
    // from recursing further.
    if (depth >= max_depth_) return {.kind = RuleContent::Kind::kOther};
    const RuleContent inner = Choices(depth + 1);
    if (IsSymbol(')')) ++at_;
    return inner;
  }

  static bool IsMacro(absl::string_view name) {
    for (const absl::string_view macro :
         {"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex", "Substring"}) {
      if (name == macro) return true;
    }
    return false;
  }

  // Behind the symbol. Between brackets are no rules, so they do not nest here.
  void SkipTo(char symbol) {
    size_t depth = 0;
    for (; At().kind != EbnfToken::Kind::kEnd && !IsRule(); ++at_) {
      if (At().kind == EbnfToken::Kind::kString) {
        deepest_expression_ =
            std::max(deepest_expression_, BracketDepth(StructuredOutput::Kind::kRegex, At().text));
      }
      if (IsSymbol('(')) ++depth;
      if (!IsSymbol(symbol)) continue;
      if (symbol == ')' && --depth > 0) continue;
      ++at_;
      return;
    }
  }

  const std::vector<EbnfToken> tokens_;
  const size_t max_depth_;
  const absl::flat_hash_set<absl::string_view>* empty_ = nullptr;
  size_t at_ = 0;
  size_t deepest_expression_ = 0;
};

// Follows the rules that are nothing but another one. Each rule is visited once.
absl::Status RefuseRepeatedCycles(const RuleContents& rules) {
  absl::flat_hash_set<absl::string_view> seen;
  for (const auto& [first, unused] : rules) {
    std::vector<absl::string_view> path;
    absl::string_view name = first;
    while (seen.insert(name).second) {
      path.push_back(name);
      const auto found = rules.find(name);
      // Empty for other contents.
      name = found == rules.end() ? absl::string_view() : found->second.rule;
    }
    const auto begin = std::find(path.begin(), path.end(), name);
    if (name.empty() || begin == path.end()) continue;  // The end, or an earlier path.
    const bool repeats = std::any_of(begin, path.end(), [&](absl::string_view rule) {
      return rules.at(rule).kind == RuleContent::Kind::kRepeatedRule;
    });
    if (!repeats) continue;
    std::string chain;
    for (auto rule = begin; rule != path.end(); ++rule) absl::StrAppend(&chain, *rule, " -> ");
    return InvalidArgument(
        absl::StrCat("the grammar's rule '", *begin, "' is nothing but a repetition of itself (",
                     chain.substr(0, kMostChain), chain.size() > kMostChain ? "... -> " : "",
                     *begin, "); give it another element, or an alternative"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGrammarRules(absl::string_view grammar, const GrammarTextLimits& limits) {
  RuleReader reader(TokensOf(grammar), limits.depth);
  RuleContents rules = reader.Read(/*empty=*/{});
  if (rules.size() > limits.rules) {
    return InvalidArgument(
        absl::StrCat("the grammar has ", rules.size(), " rules; it may have ", limits.rules));
  }
  if (reader.deepest_expression() > limits.depth) {
    return InvalidArgument(absl::StrCat("an expression in the grammar nests ",
                                        reader.deepest_expression(), " brackets; it may nest ",
                                        limits.depth));
  }
  // The library drops references to rules that are empty as they are written.
  absl::flat_hash_set<absl::string_view> empty;
  for (const auto& [name, content] : rules) {
    if (content.kind == RuleContent::Kind::kNothing) empty.insert(name);
  }
  return RefuseRepeatedCycles(reader.Read(empty));
}

}  // namespace pagoda
