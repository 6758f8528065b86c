// Tokenize: finds the tags, and splits their insides.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/parser/token.h"
#include "engine/text/jinja/python/python_space.h"

namespace pagoda::jinja {
namespace {

using TokenKind = Token::Kind;

// Longest first.
constexpr absl::string_view kOperatorTexts[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(absl::string_view source) {
    source_ = absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
    if (absl::EndsWith(source_, "\n")) source_.pop_back();
    rest_ = source_;
  }

  absl::StatusOr<std::vector<Token>> Split() {
    while (status_.ok() && !rest_.empty()) SplitNext();
    if (!status_.ok()) return status_;
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Fail(absl::string_view what) { status_.Update(BadTemplate(line_, what)); }

  void Add(TokenKind kind, absl::string_view text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::string(text), .number = {}});
  }

  void Take(size_t size) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + size, '\n'));
    if (size > 0) at_line_start_ = rest_[size - 1] == '\n';
    rest_.remove_prefix(size);
  }

  void TakeSpace() { Take(rest_.size() - StripLeft(rest_).size()); }

  // The place of the next "{{", "{%" or "{#".
  size_t NextTag() const {
    size_t at = rest_.find('{');
    while (at != absl::string_view::npos) {
      const absl::string_view mark = rest_.substr(at + 1, 1);
      if (mark == "{" || mark == "%" || mark == "#") return at;
      at = rest_.find('{', at + 1);
    }
    return absl::string_view::npos;
  }

  void SplitNext() {
    const size_t at = NextTag();
    if (at == absl::string_view::npos) {
      Add(TokenKind::kText, rest_);
      return Take(rest_.size());
    }
    const char mark = rest_[at + 1];
    const absl::string_view sign = rest_.substr(at + 2, 1);
    AddText(rest_.substr(0, at), sign, mark == '{');
    Take(at + 2 + (sign == "-" || sign == "+" ? 1 : 0));
    if (mark == '#') return SkipComment();
    if (mark == '%' && SkipRaw()) return;
    Add(mark == '{' ? TokenKind::kPrintBegin : TokenKind::kStatementBegin, "");
    SplitInside(mark == '{' ? "}}" : "%}");
  }

  // The text before a tag, without the whitespace that the tag strips.
  void AddText(absl::string_view text, absl::string_view sign, bool is_print) {
    if (sign == "-") {
      text = StripRight(text);
    } else if (sign != "+" && !is_print) {
      const size_t line = text.rfind('\n');
      const size_t begin = line == absl::string_view::npos ? 0 : line + 1;
      if ((begin > 0 || at_line_start_) && StripLeft(text.substr(begin)).empty()) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) Add(TokenKind::kText, text);
  }

  // The end of a tag, with the whitespace behind it that it removes.
  bool TakeEnd(absl::string_view end) {
    if (absl::StartsWith(rest_, "-") && absl::StartsWith(rest_.substr(1), end)) {
      Take(1 + end.size());
      TakeSpace();
      return true;
    }
    if (end != "}}" && absl::StartsWith(rest_, "+") && absl::StartsWith(rest_.substr(1), end)) {
      Take(1 + end.size());
      return true;
    }
    if (!absl::StartsWith(rest_, end)) return false;
    Take(end.size());
    if (end != "}}" && absl::StartsWith(rest_, "\n")) Take(1);
    return true;
  }

  void SkipComment() {
    const size_t end = rest_.find("#}");
    if (end == absl::string_view::npos) return Fail("a comment has no end");
    const bool has_sign = end > 0 && (rest_[end - 1] == '-' || rest_[end - 1] == '+');
    Take(has_sign ? end - 1 : end);
    TakeEnd("#}");
  }

  // If the tag is {% raw %}, adds the text up to {% endraw %}.
  bool SkipRaw() {
    absl::string_view after = StripLeft(rest_);
    if (!absl::ConsumePrefix(&after, "raw")) return false;
    after = StripLeft(after);
    const bool strips = absl::StartsWith(after, "-%}");
    if (!strips && !absl::StartsWith(after, "%}")) return false;
    Take(rest_.size() - after.size() + (strips ? 3 : 2));
    if (strips) TakeSpace();
    for (size_t at = rest_.find("{%"); at != absl::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      absl::string_view tag = rest_.substr(at + 2);
      const absl::string_view sign = tag.substr(0, 1);
      if (sign == "-" || sign == "+") tag.remove_prefix(1);
      tag = StripLeft(tag);
      if (!absl::ConsumePrefix(&tag, "endraw")) continue;
      tag = StripLeft(tag);
      absl::string_view end = tag;
      if (!absl::ConsumePrefix(&end, "-")) absl::ConsumePrefix(&end, "+");
      if (!absl::StartsWith(end, "%}")) continue;
      AddText(rest_.substr(0, at), sign, /*is_print=*/false);
      Take(rest_.size() - tag.size());
      TakeEnd("%}");
      return true;
    }
    Fail("a raw block has no end");
    return true;
  }

  void SplitInside(absl::string_view end) {
    const TokenKind kind = end == "}}" ? TokenKind::kPrintEnd : TokenKind::kStatementEnd;
    open_.clear();
    while (status_.ok()) {
      // Within brackets, "}}" closes two dicts.
      const int line = line_;
      if (open_.empty() && TakeEnd(end)) {
        tokens_.push_back({.kind = kind, .line = line, .text = "", .number = {}});
        return;
      }
      if (rest_.empty()) return Fail("a tag has no end");
      const absl::string_view behind = StripLeft(rest_);
      if (behind.size() < rest_.size()) {
        Take(rest_.size() - behind.size());
      } else if (absl::ascii_isdigit(rest_[0])) {
        AddNumber();
      } else if (rest_[0] == '\'' || rest_[0] == '"') {
        AddString();
      } else if (!AddName()) {
        AddOperator();
      }
    }
  }

  // The length of digits with single underscores between them.
  static size_t Digits(absl::string_view text, absl::string_view set) {
    size_t size = 0;
    while (size < text.size()) {
      const bool joins = text[size] == '_' && size > 0 && text[size - 1] != '_' &&
                         size + 1 < text.size() && absl::StrContains(set, text.substr(size + 1, 1));
      if (!joins && !absl::StrContains(set, text.substr(size, 1))) break;
      ++size;
    }
    return size;
  }

  // The length of a decimal float; 0 if the number is an integer.
  size_t FloatSize() const {
    constexpr absl::string_view kSet = "0123456789";
    const size_t whole = Digits(rest_, kSet);
    size_t size = whole;
    if (absl::StartsWith(rest_.substr(size), ".")) {
      const size_t part = Digits(rest_.substr(size + 1), kSet);
      if (part > 0) size += 1 + part;
    }
    if (absl::StartsWithIgnoreCase(rest_.substr(size), "e")) {
      size_t begin = size + 1;
      if (begin < rest_.size() && (rest_[begin] == '+' || rest_[begin] == '-')) ++begin;
      const size_t part = Digits(rest_.substr(begin), kSet);
      if (part > 0) size = begin + part;
    }
    return size > whole ? size : 0;
  }

  void AddNumber() {
    if (const size_t size = FloatSize(); size > 0) {
      const std::string text = absl::StrReplaceAll(rest_.substr(0, size), {{"_", ""}});
      double value = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
      if (read.ec != std::errc()) return Fail(absl::StrCat("the number ", text, " is too large"));
      Add(TokenKind::kFloat, text);
      tokens_.back().number = Value::Of(value);
      return Take(size);
    }
    struct Base {
      absl::string_view prefix, set;
      int base;
    };
    Base base{"", "0123456789", 10};
    for (const Base& other : {Base{"0x", "0123456789abcdefABCDEF", 16}, Base{"0o", "01234567", 8},
                              Base{"0b", "01", 2}}) {
      if (absl::StartsWithIgnoreCase(rest_, other.prefix)) base = other;
    }
    const size_t begin = base.prefix.size();
    const size_t size = begin + Digits(rest_.substr(begin), base.set);
    const std::string text = absl::StrReplaceAll(rest_.substr(begin, size - begin), {{"_", ""}});
    uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base.base);
    const bool is_octal = base.base == 10 && text.size() > 1 && text[0] == '0' && value != 0;
    if (read.ec != std::errc() || is_octal) {
      return Fail(absl::StrCat("bad number ", rest_.substr(0, size)));
    }
    Add(TokenKind::kInteger, text);
    tokens_.back().number = Value::OfInteger(value);
    Take(size);
  }

  void AddString() {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_[0]) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return Fail("a string has no end");
    const absl::StatusOr<std::string> value = Unescape(rest_.substr(1, end - 1));
    if (!value.ok()) return Fail(value.status().message());
    Add(TokenKind::kString, *value);
    Take(end + 1);
  }

  bool AddName() {
    size_t size = 0;
    while (size < rest_.size()) {
      const Utf8Prefix prefix = ReadUtf8(rest_.substr(size));
      if (prefix.kind != Utf8Prefix::Kind::kCharacter || !IsWordCharacter(prefix.code_point)) break;
      size += prefix.size;
    }
    if (size == 0) return false;
    Add(TokenKind::kName, rest_.substr(0, size));
    Take(size);
    return true;
  }

  void AddOperator() {
    const auto* op =
        std::find_if(std::begin(kOperatorTexts), std::end(kOperatorTexts),
                     [&](absl::string_view text) { return absl::StartsWith(rest_, text); });
    if (op == std::end(kOperatorTexts)) {
      return Fail(absl::StrCat("unexpected character '", rest_.substr(0, 1), "'"));
    }
    if (absl::StrContains("([{", *op)) open_.push_back((*op)[0]);
    if (absl::StrContains(")]}", *op)) {
      const char wanted = *op == ")" ? '(' : *op == "]" ? '[' : '{';
      if (open_.empty() || open_.back() != wanted) {
        return Fail(absl::StrCat("unexpected '", *op, "'"));
      }
      open_.pop_back();
    }
    Add(TokenKind::kOperator, *op);
    Take(op->size());
  }

  std::string source_;
  absl::string_view rest_;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string open_;  // Brackets of the tag.
  std::vector<Token> tokens_;
  absl::Status status_;
};

}  // namespace

absl::Status BadTemplate(int line, absl::string_view what) {
  return MakeError(Reason::kInvalidCheckpoint,
                   absl::StrCat("the chat template cannot be parsed: line ", line, ": ", what));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  if (!IsUtf8(source)) return BadTemplate(1, "not valid UTF-8");
  return Lexer(source).Split();
}

}  // namespace pagoda::jinja
