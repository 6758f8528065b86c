#include "engine/text/jinja/python/text_edit.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda::jinja {
namespace {

bool EndsLine(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

icu::UnicodeString Wide(absl::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// Compares a part with places of a text, and counts the bytes.
class Comparisons {
 public:
  Comparisons(Run& run, absl::string_view part) : run_(run), part_(part) {}
  Comparisons(const Comparisons&) = delete;
  Comparisons& operator=(const Comparisons&) = delete;
  ~Comparisons() { run_.WorkOnBytes(bytes_); }

  // False after an error of the run. REQUIRES: the text has as many bytes behind `at`.
  bool IsAt(absl::string_view text, size_t at) {
    const auto differs = std::mismatch(part_.begin(), part_.end(), text.begin() + at).first;
    bytes_ += kPlaceBytes + static_cast<size_t>(differs - part_.begin());
    if (bytes_ >= kBytesBetweenCounts) run_.WorkOnBytes(std::exchange(bytes_, 0));
    return differs == part_.end() && !run_.failed();
  }

 private:
  static constexpr size_t kPlaceBytes = 4;  // What a place costs in addition to its bytes.
  static constexpr size_t kBytesBetweenCounts = 1 << 12;

  Run& run_;
  const absl::string_view part_;
  size_t bytes_ = 0;  // Not counted yet.
};

std::string Narrow(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

}  // namespace

std::vector<Line> LinesOf(absl::string_view text) {
  std::vector<Line> lines;
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(at));
    if (!EndsLine(prefix.code_point)) {
      at += prefix.size;
      continue;
    }
    const size_t end = at + (text.substr(at, 2) == "\r\n" ? 2 : prefix.size);
    lines.push_back({text.substr(0, at), text.substr(0, end)});
    text.remove_prefix(end);
    at = 0;
  }
  if (!text.empty()) lines.push_back({text, text});
  return lines;
}

absl::string_view Characters(absl::string_view text, size_t begin, size_t count) {
  while (begin-- > 0 && !text.empty()) text.remove_prefix(ReadUtf8(text).size);
  size_t size = 0;
  while (count-- > 0 && size < text.size()) size += ReadUtf8(text.substr(size)).size;
  return text.substr(0, size);
}

size_t FindText(Run& run, absl::string_view text, absl::string_view part) {
  if (part.empty()) return 0;
  Comparisons comparisons(run, part);
  for (size_t at = 0; at + part.size() <= text.size(); ++at) {
    at = text.substr(0, text.size() - part.size() + 1).find(part[0], at);
    if (at == absl::string_view::npos) break;
    if (comparisons.IsAt(text, at)) return at;
    if (run.failed()) break;
  }
  return absl::string_view::npos;
}

size_t FindLastText(Run& run, absl::string_view text, absl::string_view part) {
  if (part.empty()) return text.size();
  if (part.size() > text.size()) return absl::string_view::npos;
  Comparisons comparisons(run, part);
  for (size_t behind = text.size() - part.size() + 1; behind > 0;) {
    const size_t at = text.rfind(part[0], behind - 1);
    if (at == absl::string_view::npos) break;
    if (comparisons.IsAt(text, at)) return at;
    if (run.failed()) break;
    behind = at;
  }
  return absl::string_view::npos;
}

size_t Occurrences(Run& run, absl::string_view text, absl::string_view part) {
  size_t count = 0;
  while (run.Work()) {
    const size_t at = FindText(run, text, part);
    if (at == absl::string_view::npos) break;
    ++count;
    text.remove_prefix(at + part.size());
  }
  return count;
}

std::string ReplaceIn(Run& run, absl::string_view text, absl::string_view from,
                      absl::string_view to, int64_t most) {
  const size_t found = from.empty() ? CountCharacters(text) + 1 : Occurrences(run, text, from);
  size_t left = most < 0 ? found : std::min<size_t>(found, static_cast<size_t>(most));
  if (!run.WorkOnBytes(text.size()) || !run.Holds(text.size() + left * to.size())) return "";
  std::string out;
  for (; left > 0; --left) {
    if (from.empty()) {
      const size_t size = text.empty() ? 0 : ReadUtf8(text).size;
      absl::StrAppend(&out, to, text.substr(0, size));
      text.remove_prefix(size);
      continue;
    }
    const size_t at = FindText(run, text, from);
    if (at == absl::string_view::npos) return "";
    absl::StrAppend(&out, text.substr(0, at), to);
    text.remove_prefix(at + from.size());
  }
  absl::StrAppend(&out, text);
  return out;
}

std::string Copies(Run& run, absl::string_view text, int64_t count) {
  const auto times = static_cast<uint64_t>(std::clamp<int64_t>(count, 0, INT32_MAX));
  if (!run.Holds(times * text.size()) || !run.WorkOnBytes(times * text.size())) return "";
  std::string out;
  out.reserve(times * text.size());
  for (uint64_t i = 0; i < times; ++i) absl::StrAppend(&out, text);
  return out;
}

std::string UpperCase(absl::string_view text) {
  return Narrow(Wide(text).toUpper(icu::Locale::getRoot()));
}

std::string LowerCase(absl::string_view text) {
  return Narrow(Wide(text).toLower(icu::Locale::getRoot()));
}

std::string Capitalized(absl::string_view text) {
  if (text.empty()) return "";
  const size_t first = ReadUtf8(text).size;
  return absl::StrCat(TitleCase(text.substr(0, first)), LowerCase(text.substr(first)));
}

std::string TitleCase(absl::string_view text) {
  std::string out;
  bool in_word = false;
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    const auto c = static_cast<UChar32>(prefix.code_point);
    AppendUtf8(static_cast<char32_t>(in_word ? u_tolower(c) : u_totitle(c)), out);
    in_word = u_hasBinaryProperty(c, UCHAR_CASED) != 0;
    text.remove_prefix(prefix.size);
  }
  return out;
}

}  // namespace pagoda::jinja
