#include "pools/store/resp.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/printable.h"

namespace pagoda::resp {
namespace {

absl::Status NotResp(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not RESP: ", what));
}

// A number as RESP writes it: digits with at most a minus sign.
bool ParseNumber(absl::string_view text, int64_t& number) {
  const absl::string_view digits = text.substr(!text.empty() && text[0] == '-' ? 1 : 0);
  return !digits.empty() && digits.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(text, &number);
}

// Parses values from `bytes`, from `at` on.
class Parser {
 public:
  explicit Parser(absl::string_view bytes) : bytes_(bytes) {}

  // False: incomplete.
  absl::StatusOr<bool> Next(Value& value, int depth) {
    if (depth > kMaxDepth) return NotResp("arrays are nested too deep");
    absl::StatusOr<std::optional<Head>> parsed = ParseHead(bytes_.substr(at_));
    if (!parsed.ok()) return parsed.status();
    if (!parsed->has_value()) return false;
    const Head& head = **parsed;
    at_ += head.line_bytes;
    value.kind = head.kind;
    value.text = std::string(head.text);
    // The text reaches logs, errors and terminals.
    if (head.kind == Kind::kError) value.text = Printable(value.text);
    value.integer = head.kind == Kind::kInteger ? head.number : 0;
    if (head.kind == Kind::kBulk) return Bulk(static_cast<size_t>(head.number), value);
    if (head.kind == Kind::kArray) return Array(static_cast<size_t>(head.number), value, depth);
    return true;
  }

  size_t at() const { return at_; }

 private:
  absl::StatusOr<bool> Bulk(size_t size, Value& value) {
    if (bytes_.size() - at_ < size + 2) return false;
    if (bytes_.substr(at_ + size, 2) != "\r\n") return NotResp("a bulk without its line end");
    value.text = std::string(bytes_.substr(at_, size));
    at_ += size + 2;
    return true;
  }

  absl::StatusOr<bool> Array(size_t count, Value& value, int depth) {
    elements_ += count;
    if (elements_ > kMaxElements) return NotResp("too many elements");
    for (size_t i = 0; i < count; ++i) {
      absl::StatusOr<bool> complete = Next(value.elements.emplace_back(), depth + 1);
      if (!complete.ok() || !*complete) return complete;
    }
    return true;
  }

  const absl::string_view bytes_;
  size_t at_ = 0;
  size_t elements_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<Head>> ParseHead(absl::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  const size_t end = bytes.substr(0, kMaxLineBytes).find("\r\n");
  if (end == absl::string_view::npos) {
    if (bytes.size() >= kMaxLineBytes) return NotResp("a line is too long");
    if (absl::string_view("+-:$*").find(bytes[0]) == absl::string_view::npos) {
      return NotResp("an unknown type");
    }
    return std::nullopt;
  }
  const absl::string_view line = bytes.substr(1, end - 1);
  Head head;
  head.line_bytes = end + 2;
  switch (bytes[0]) {
    case '+':
      head.kind = Kind::kText;
      head.text = line;
      return head;
    case '-':
      head.kind = Kind::kError;
      head.text = line;
      return head;
    case ':':
      head.kind = Kind::kInteger;
      if (!ParseNumber(line, head.number)) return NotResp("an integer is not a number");
      return head;
    case '$':
    case '*': {
      const bool is_bulk = bytes[0] == '$';
      const int64_t most = static_cast<int64_t>(is_bulk ? kMaxBulkBytes : kMaxElements);
      if (!ParseNumber(line, head.number) || head.number < -1 || head.number > most) {
        return NotResp(is_bulk ? "a bulk's length" : "an array's length");
      }
      head.kind = head.number < 0 ? Kind::kNull : is_bulk ? Kind::kBulk : Kind::kArray;
      head.number = std::max<int64_t>(head.number, 0);
      return head;
    }
    default:
      return NotResp("an unknown type");
  }
}

absl::StatusOr<std::optional<Parsed>> Parse(absl::string_view bytes) {
  Parsed parsed;
  Parser parser(bytes);
  absl::StatusOr<bool> complete = parser.Next(parsed.value, 0);
  if (!complete.ok()) return complete.status();
  if (!*complete) return std::nullopt;
  parsed.bytes = parser.at();
  return parsed;
}

absl::StatusOr<bool> Scanner::Scan(absl::string_view bytes) {
  do {
    absl::StatusOr<std::optional<Head>> parsed = ParseHead(bytes.substr(at_));
    if (!parsed.ok()) return parsed.status();
    if (!parsed->has_value()) return false;
    const Head& head = **parsed;
    const size_t bulk = head.kind == Kind::kBulk ? static_cast<size_t>(head.number) + 2 : 0;
    if (bytes.size() - at_ - head.line_bytes < bulk) return false;
    at_ += head.line_bytes + bulk;
    if (head.kind == Kind::kArray && head.number > 0) {
      elements_ += static_cast<size_t>(head.number);
      if (elements_ > kMaxElements) return NotResp("too many elements");
      if (left_.size() > kMaxDepth) return NotResp("arrays are nested too deep");
      left_.push_back(head.number);
      continue;
    }
    while (!left_.empty() && --left_.back() == 0) left_.pop_back();
  } while (!left_.empty());
  return true;
}

void AppendCommand(absl::Span<const absl::string_view> arguments, std::string& out) {
  absl::StrAppend(&out, "*", arguments.size(), "\r\n");
  for (const absl::string_view argument : arguments) {
    absl::StrAppend(&out, "$", argument.size(), "\r\n", argument, "\r\n");
  }
}

}  // namespace pagoda::resp
