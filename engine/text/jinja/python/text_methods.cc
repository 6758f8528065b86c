// The methods of texts that search, split and join.
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_space.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

Value Part(Run& run, const Value& self, absl::string_view bytes) {
  return run.NewText(std::string(bytes), self.text().markup);
}

// The argument as a text for a method of `self`: a Markup escapes it.
std::string Argument(Run& run, const Value& self, const Value& value) {
  if (!self.text().markup) return value.IsText() ? value.bytes() : "";
  return MarkupText(run, value);
}

template <absl::string_view (*kLeft)(absl::string_view),
          absl::string_view (*kRight)(absl::string_view),
          absl::string_view (*kLeftOf)(absl::string_view, absl::string_view),
          absl::string_view (*kRightOf)(absl::string_view, absl::string_view)>
Value StripWith(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "strip", arguments, {"chars"});
  if (!in.Has(0) || in[0].IsNone()) return Part(run, self, kRight(kLeft(self.bytes())));
  const std::string set = in.Text(0);
  if (!run.WorkOnBytes(self.bytes().size() * set.size())) return {};
  return Part(run, self, kRightOf(kLeftOf(self.bytes(), set), set));
}

absl::string_view Same(absl::string_view text) { return text; }
absl::string_view SameOf(absl::string_view text, absl::string_view) { return text; }

// The arguments of split: nothing is whitespace; a negative number is no limit.
struct SplitBy {
  std::optional<std::string> separator;
  size_t most = SIZE_MAX;
};

SplitBy ReadSplit(Run& run, const Arguments& arguments) {
  const Parameters in(run, "split", arguments, {"sep", "maxsplit"});
  SplitBy by;
  if (in.Has(0) && !in[0].IsNone()) {
    by.separator = in.Text(0);
    if (by.separator->empty()) run.Fail("split(): the separator is empty");
  }
  const int64_t most = in.Integer(1, -1);
  if (most >= 0) by.most = static_cast<size_t>(most);
  return by;
}

Value Parts(Run& run, const Value& self, const std::vector<absl::string_view>& parts) {
  std::vector<Value> items;
  for (const absl::string_view part : parts) {
    if (run.failed()) return {};
    items.push_back(Part(run, self, part));
  }
  return run.NewList(std::move(items));
}

Value Split(Run& run, const Value& self, const Arguments& arguments) {
  const SplitBy by = ReadSplit(run, arguments);
  if (!run.WorkOnBytes(self.bytes().size())) return {};
  std::vector<absl::string_view> parts;
  absl::string_view rest = self.bytes();
  if (by.separator.has_value()) {
    while (parts.size() < by.most && run.Work()) {
      const size_t at = FindText(run, rest, *by.separator);
      if (at == absl::string_view::npos) break;
      parts.push_back(rest.substr(0, at));
      rest.remove_prefix(at + by.separator->size());
    }
    parts.push_back(rest);
    return Parts(run, self, parts);
  }
  for (rest = StripLeft(rest); !rest.empty() && run.Work(); rest = StripLeft(rest)) {
    if (parts.size() == by.most) {
      parts.push_back(rest);
      break;
    }
    size_t size = 0;
    while (size < rest.size() && !IsPythonSpace(ReadUtf8(rest.substr(size)).code_point)) {
      size += ReadUtf8(rest.substr(size)).size;
    }
    parts.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return Parts(run, self, parts);
}

Value SplitRight(Run& run, const Value& self, const Arguments& arguments) {
  const SplitBy by = ReadSplit(run, arguments);
  if (by.most == SIZE_MAX) return Split(run, self, arguments);
  if (!run.WorkOnBytes(self.bytes().size())) return {};
  std::vector<absl::string_view> parts;
  absl::string_view rest = self.bytes();
  if (by.separator.has_value()) {
    while (parts.size() < by.most && run.Work()) {
      const size_t at = FindLastText(run, rest, *by.separator);
      if (at == absl::string_view::npos) break;
      parts.push_back(rest.substr(at + by.separator->size()));
      rest = rest.substr(0, at);
    }
    parts.push_back(rest);
  } else {
    for (rest = StripRight(rest); !rest.empty() && run.Work(); rest = StripRight(rest)) {
      if (parts.size() == by.most) {
        parts.push_back(rest);
        break;
      }
      size_t begin = 0;  // Where the last word begins.
      for (size_t at = 0; at < rest.size(); at += ReadUtf8(rest.substr(at)).size) {
        const Utf8Prefix prefix = ReadUtf8(rest.substr(at));
        if (IsPythonSpace(prefix.code_point)) begin = at + prefix.size;
      }
      if (!run.WorkOnBytes(rest.size())) break;
      parts.push_back(rest.substr(begin));
      rest = rest.substr(0, begin);
    }
  }
  std::reverse(parts.begin(), parts.end());
  return Parts(run, self, parts);
}

Value SplitLines(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "splitlines", arguments, {"keepends"});
  std::vector<absl::string_view> parts;
  for (const Line& line : LinesOf(self.bytes())) {
    parts.push_back(in.Bool(0, false) ? line.with_end : line.text);
  }
  return Parts(run, self, parts);
}

Value Triple(Run& run, const Value& self, absl::string_view a, absl::string_view b,
             absl::string_view c) {
  return run.NewList({Part(run, self, a), Part(run, self, b), Part(run, self, c)},
                     List::Form::kTuple);
}

Value Partition(Run& run, const Value& self, const Arguments& arguments) {
  const std::string by = Parameters(run, "partition", arguments, {"sep"}, 1).Text(0);
  if (by.empty()) run.Fail("partition(): the separator is empty");
  const absl::string_view text = self.bytes();
  if (!run.WorkOnBytes(text.size())) return {};
  const size_t at = FindText(run, text, by);
  if (at == absl::string_view::npos) return Triple(run, self, text, "", "");
  return Triple(run, self, text.substr(0, at), by, text.substr(at + by.size()));
}

Value PartitionRight(Run& run, const Value& self, const Arguments& arguments) {
  const std::string by = Parameters(run, "rpartition", arguments, {"sep"}, 1).Text(0);
  if (by.empty()) run.Fail("rpartition(): the separator is empty");
  const absl::string_view text = self.bytes();
  if (!run.WorkOnBytes(text.size())) return {};
  const size_t at = FindLastText(run, text, by);
  if (at == absl::string_view::npos) return Triple(run, self, "", "", text);
  return Triple(run, self, text.substr(0, at), by, text.substr(at + by.size()));
}

// The characters that `start` and `end` of a search leave.
struct Window {
  absl::string_view text;
  size_t begin = 0;  // In characters.
  bool exists = true;
};

Window WindowOf(Run& run, const Value& self, const Parameters& in) {
  run.WorkOnBytes(self.bytes().size());
  const auto length = static_cast<int64_t>(self.text().length);
  const auto place = [&](size_t i, int64_t otherwise) {
    if (!in.Has(i) || in[i].IsNone()) return otherwise;
    const int64_t at = in.Integer(i, otherwise);
    return at < 0 ? std::max<int64_t>(at + length, 0) : at;
  };
  const int64_t begin = place(1, 0);
  const int64_t end = std::min(place(2, length), length);
  if (begin > end) return {.text = {}, .begin = 0, .exists = begin <= length && begin <= end};
  const absl::string_view text =
      Characters(self.bytes(), static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  return {.text = text, .begin = static_cast<size_t>(begin)};
}

template <bool kAtEnd>
Value HasEnd(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, kAtEnd ? "endswith" : "startswith", arguments,
                      {kAtEnd ? "suffix" : "prefix", "start", "end"}, 1);
  const Window window = WindowOf(run, self, in);
  const auto matches = [&](const Value& affix) {
    if (!affix.IsText()) {
      run.Fail(absl::StrCat(kAtEnd ? "endswith" : "startswith", "() takes a string, not ",
                            TypeName(affix)));
      return false;
    }
    run.WorkOnBytes(std::min(affix.bytes().size(), window.text.size()));
    return window.exists && (kAtEnd ? absl::EndsWith(window.text, affix.bytes())
                                    : absl::StartsWith(window.text, affix.bytes()));
  };
  if (in[0].IsTuple()) {
    const std::vector<Value>& all = in[0].list().items;
    return Value::Of(std::any_of(all.begin(), all.end(), matches));
  }
  return Value::Of(matches(in[0]));
}

// The place of a text in characters, or -1.
template <bool kLast>
int64_t Search(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "find", arguments, {"sub", "start", "end"}, 1);
  const Window window = WindowOf(run, self, in);
  const std::string sub = in.Text(0);
  const size_t at = kLast ? FindLastText(run, window.text, sub) : FindText(run, window.text, sub);
  if (!window.exists || at == absl::string_view::npos) return -1;
  return static_cast<int64_t>(window.begin + CountCharacters(window.text.substr(0, at)));
}

template <bool kLast>
Value Find(Run& run, const Value& self, const Arguments& arguments) {
  return Value::OfInteger(Search<kLast>(run, self, arguments));
}

template <bool kLast>
Value Index(Run& run, const Value& self, const Arguments& arguments) {
  const int64_t at = Search<kLast>(run, self, arguments);
  if (at < 0) run.Fail("index(): substring not found");
  return Value::OfInteger(at);
}

Value Count(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "count", arguments, {"sub", "start", "end"}, 1);
  const Window window = WindowOf(run, self, in);
  const std::string sub = in.Text(0);
  if (!window.exists) return Value::OfInteger(0);
  if (sub.empty()) return Value::OfInteger(CountCharacters(window.text) + 1);
  return Value::OfInteger(Occurrences(run, window.text, sub));
}

Value ReplaceText(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "replace", arguments, {"old", "new", "count"}, 2);
  const std::string from = in.Text(0);
  if (!self.text().markup) in.Text(1);  // A Markup takes anything, and escapes it.
  const int64_t most = in.Integer(2, -1);
  if (run.failed()) return {};
  return run.NewText(ReplaceIn(run, self.bytes(), from, Argument(run, self, in[1]), most),
                     self.text().markup);
}

Value JoinTexts(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "join", arguments, {"iterable"}, 1);
  const std::shared_ptr<const List> items = Iterate(run, in[0]);
  std::string out;
  for (size_t i = 0; i < items->items.size() && run.Work(); ++i) {
    const Value& item = items->items[i];
    if (!item.IsText() && !self.text().markup) {
      run.Fail(absl::StrCat("join(): item ", i, " is a ", TypeName(item), " and not a string"));
    }
    const std::string text = Argument(run, self, item);
    if (!run.Holds(out.size() + self.bytes().size() + text.size())) return {};
    absl::StrAppend(&out, i > 0 ? self.bytes() : "", text);
  }
  return run.NewText(std::move(out), self.text().markup);
}

Value FormatText(Run& run, const Value& self, const Arguments& arguments) {
  return FormatBraces(run, self, arguments);
}

Value FormatMap(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "format_map", arguments, {"mapping"}, 1);
  Arguments named;
  if (!in[0].IsDict()) {
    run.Fail("format_map() takes a dict");
    return {};
  }
  for (const auto& [key, value] : in[0].dict().entries) {
    if (key.IsText()) named.named.emplace_back(key.bytes(), value);
  }
  return FormatBraces(run, self, named);
}

Value RemovePrefix(Run& run, const Value& self, const Arguments& arguments) {
  const std::string prefix = Parameters(run, "removeprefix", arguments, {"prefix"}, 1).Text(0);
  return Part(run, self, absl::StripPrefix(self.bytes(), prefix));
}

Value RemoveSuffix(Run& run, const Value& self, const Arguments& arguments) {
  const std::string suffix = Parameters(run, "removesuffix", arguments, {"suffix"}, 1).Text(0);
  return Part(run, self, absl::StripSuffix(self.bytes(), suffix));
}

// How many characters are missing to a width on the left, by Python's rules.
enum class Side : uint8_t { kLeft, kRight, kBoth };

template <Side kSide>
Value Fill(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "center", arguments, {"width", "fillchar"}, 1);
  const std::string fill = in.Text(1, " ");
  if (CountCharacters(fill) != 1) run.Fail("the fill character must be one character");
  const int64_t width = in.Integer(0, 0);
  const int64_t missing = width - static_cast<int64_t>(self.text().length);
  if (missing <= 0 || run.failed()) return self;
  const int64_t left = kSide == Side::kLeft    ? missing
                       : kSide == Side::kRight ? 0
                                               : missing / 2 + (missing & width & 1);
  return run.NewText(
      absl::StrCat(Copies(run, fill, left), self.bytes(), Copies(run, fill, missing - left)),
      self.text().markup);
}

Value ZeroFill(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "zfill", arguments, {"width"}, 1);
  const int64_t missing = in.Integer(0, 0) - static_cast<int64_t>(self.text().length);
  if (missing <= 0 || run.failed()) return self;
  absl::string_view digits = self.bytes();
  std::string sign;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    sign = std::string(digits.substr(0, 1));
    digits.remove_prefix(1);
  }
  return run.NewText(absl::StrCat(sign, Copies(run, "0", missing), digits), self.text().markup);
}

Value ExpandTabs(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "expandtabs", arguments, {"tabsize"});
  const int64_t size = std::max<int64_t>(in.Integer(0, 8), 0);
  std::string out;
  int64_t column = 0;
  for (absl::string_view rest = self.bytes(); !rest.empty() && run.Work();) {
    const absl::string_view c = rest.substr(0, ReadUtf8(rest).size);
    rest.remove_prefix(c.size());
    if (c == "\t") {
      const int64_t gap = size == 0 ? 0 : size - column % size;
      out += Copies(run, " ", gap);
      column += gap;
      if (!run.Holds(out.size())) return {};
    } else {
      absl::StrAppend(&out, c);
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return run.NewText(std::move(out), self.text().markup);
}

}  // namespace

MethodTable TextMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {
      {"center", Fill<Side::kBoth>},
      {"count", Count},
      {"endswith", HasEnd<true>},
      {"expandtabs", ExpandTabs},
      {"find", Find<false>},
      {"format", FormatText},
      {"format_map", FormatMap},
      {"index", Index<false>},
      {"join", JoinTexts},
      {"ljust", Fill<Side::kRight>},
      {"lstrip", StripWith<StripLeft, Same, StripLeft, SameOf>},
      {"partition", Partition},
      {"removeprefix", RemovePrefix},
      {"removesuffix", RemoveSuffix},
      {"replace", ReplaceText},
      {"rfind", Find<true>},
      {"rindex", Index<true>},
      {"rjust", Fill<Side::kLeft>},
      {"rpartition", PartitionRight},
      {"rsplit", SplitRight},
      {"rstrip", StripWith<Same, StripRight, SameOf, StripRight>},
      {"split", Split},
      {"splitlines", SplitLines},
      {"startswith", HasEnd<false>},
      {"strip", StripWith<StripLeft, StripRight, StripLeft, StripRight>},
      {"zfill", ZeroFill}};
  return kMethods;
}

}  // namespace pagoda::jinja
