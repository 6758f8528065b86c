#include "server/http/http_request.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pagoda::server {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
constexpr size_t kMaxChunkLine = 256;
constexpr size_t kMaxChunkDigits = 15;  // The sum of two such sizes fits into 64 bits.

absl::Status Bad(absl::string_view fault) { return absl::InvalidArgumentError(fault); }

// A token of RFC 9110, section 5.6.2.
bool IsToken(absl::string_view text) {
  constexpr absl::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(kMarks, c);
  });
}

bool HasControl(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
}

// The path without its percent escapes; nothing if one is not valid.
std::optional<std::string> Unescaped(absl::string_view path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      text += path[i];
      continue;
    }
    uint32_t code = 0;
    const absl::string_view digits = path.substr(i + 1, 2);
    if (digits.size() < 2 || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(digits[1])) ||
        !absl::SimpleHexAtoi(digits, &code)) {
      return std::nullopt;
    }
    text += static_cast<char>(code);
    i += 2;
  }
  return text;
}

// Proxies add these and clients do not. Not every proxy adds one.
bool IsOfProxy(absl::string_view name) {
  for (const char* header : {"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host",
                             "X-Forwarded-Proto", "X-Real-IP"}) {
    if (absl::EqualsIgnoreCase(name, header)) return true;
  }
  return false;
}

absl::Status ReadFirstLine(absl::string_view line, HttpHead& head) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0]) || words[1].empty() || HasControl(line)) {
    return Bad("the first line is not a method, a path and a version");
  }
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return Bad("only HTTP/1 is served");
  head.is_http_1_0 = words[2] == "HTTP/1.0";
  head.method = std::string(words[0]);
  absl::string_view target = words[1].substr(0, words[1].find('#'));
  // A proxy's client sends an absolute URI, whose host overrides the header Host.
  if (absl::ConsumePrefix(&target, "http://") || absl::ConsumePrefix(&target, "https://")) {
    const size_t path = std::min(target.find_first_of("/?"), target.size());
    head.request.host = std::string(target.substr(0, path));
    target.remove_prefix(path);
  }
  const size_t query = std::min(target.find('?'), target.size());
  if (query < target.size()) head.request.query = std::string(target.substr(query + 1));
  std::optional<std::string> path = Unescaped(target.substr(0, query));
  if (!path.has_value()) return Bad("the path has a '%' that is not followed by two digits");
  head.path = path->empty() ? "/" : *std::move(path);
  return absl::OkStatus();
}

// The headers that the server reads. Each may come once.
struct Headers {
  std::optional<std::string> host, origin, authorization, length, encoding, expect;

  std::optional<std::string>* Find(absl::string_view name) {
    const std::pair<const char*, std::optional<std::string>*> all[] = {
        {"Host", &host},
        {"Origin", &origin},
        {"Authorization", &authorization},
        {"Content-Length", &length},
        {"Transfer-Encoding", &encoding},
        {"Expect", &expect}};
    for (const auto& [header, value] : all) {
      if (absl::EqualsIgnoreCase(name, header)) return value;
    }
    return nullptr;
  }
};

absl::Status ReadHeader(absl::string_view line, Headers& headers, HttpHead& head) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(':', 1));
  const auto& [name, value] = parts;
  if (!IsToken(name) || name.size() == line.size() || HasControl(value)) {
    return Bad("a header is not a name, a colon and a value");
  }
  if (IsOfProxy(name) && head.request.proxy_header.empty()) {
    head.request.proxy_header = std::string(name);
  }
  // A list: several headers are one with commas between.
  if (absl::EqualsIgnoreCase(name, "Accept-Encoding")) {
    absl::StrAppend(&head.request.accept_encoding, head.request.accept_encoding.empty() ? "" : ",",
                    value);
    return absl::OkStatus();
  }
  std::optional<std::string>* const known = headers.Find(name);
  if (known == nullptr) return absl::OkStatus();
  if (known->has_value()) return Bad(absl::StrCat("the header ", name, " comes twice"));
  *known = std::string(absl::StripAsciiWhitespace(value));
  return absl::OkStatus();
}

absl::Status ReadLength(const Headers& headers, HttpHead& head) {
  if (headers.length.has_value()) {
    const std::string& text = *headers.length;
    const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
    if (!is_number || !absl::SimpleAtoi(text, &head.content_length)) {
      return Bad("Content-Length is not a number of bytes");
    }
  }
  if (!headers.encoding.has_value()) return absl::OkStatus();
  if (headers.length.has_value()) return Bad("Transfer-Encoding comes with a Content-Length");
  if (!absl::EqualsIgnoreCase(*headers.encoding, "chunked")) {
    return Bad("Transfer-Encoding is not 'chunked'");
  }
  head.is_chunked = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HttpHead> ParseHead(absl::string_view text) {
  HttpHead head;
  Headers headers;
  bool is_first = true;
  // Some clients send a line end behind a body, and it comes with the next request (RFC 9112, 2.2).
  absl::ConsumePrefix(&text, kLineEnd);
  while (!text.empty()) {
    const size_t end = std::min(text.find(kLineEnd), text.size());
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + kLineEnd.size()));
    if (line.empty() && !is_first) break;
    absl::Status status = is_first ? ReadFirstLine(line, head) : ReadHeader(line, headers, head);
    if (!status.ok()) return status;
    is_first = false;
  }
  if (absl::Status status = ReadLength(headers, head); !status.ok()) return status;
  if (head.request.host.empty()) head.request.host = headers.host.value_or("");
  head.request.origin = std::move(headers.origin);
  head.request.authorization = std::move(headers.authorization);
  head.expects_continue =
      headers.expect.has_value() && absl::EqualsIgnoreCase(*headers.expect, "100-continue");
  return head;
}

bool BodyReader::Take(absl::string_view bytes, std::string* body) {
  while (!bytes.empty() && !done()) {
    if (state_ == State::kFixed || state_ == State::kData) {
      const absl::string_view part = bytes.substr(0, left_);
      body->append(part.data(), part.size());
      bytes.remove_prefix(part.size());
      left_ -= part.size();
      if (left_ == 0 && state_ == State::kData) state_ = State::kDataEnd;
      continue;
    }
    line_ += bytes.front();
    bytes.remove_prefix(1);
    if (absl::EndsWith(line_, kLineEnd)) {
      line_.resize(line_.size() - kLineEnd.size());
      if (!EndLine()) return false;
      line_.clear();
    } else if (line_.size() > kMaxChunkLine && state_ != State::kTrailer) {
      return false;
    } else if (state_ == State::kTrailer && ++trailer_bytes_ > kMaxHeadBytes) {
      return false;
    }
  }
  return true;
}

bool BodyReader::EndLine() {
  if (state_ == State::kDataEnd) {
    state_ = State::kSize;
    return line_.empty();
  }
  if (state_ == State::kTrailer) {
    if (line_.empty()) state_ = State::kDone;
    return true;
  }
  // A chunk's size in hexadecimal digits, perhaps with extensions behind it.
  const absl::string_view line = line_;
  const size_t digits = std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
  const absl::string_view rest = absl::StripAsciiWhitespace(line.substr(digits));
  if (digits == 0 || digits > kMaxChunkDigits || (!rest.empty() && rest.front() != ';') ||
      HasControl(rest) || !absl::SimpleHexAtoi(line.substr(0, digits), &left_)) {
    return false;
  }
  state_ = left_ == 0 ? State::kTrailer : State::kData;
  return true;
}

}  // namespace pagoda::server
