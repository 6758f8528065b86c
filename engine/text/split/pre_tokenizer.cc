#include "engine/text/split/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/byte_level.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/split/metaspace.h"
#include "engine/text/split/pattern.h"
#include "engine/text/split/split.h"

namespace pagoda {
namespace {

// GPT-2's pattern for words.
constexpr char kByteLevelWords[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void AddParts(const Word& word, const std::vector<TextRange>& parts, std::vector<Word>& out) {
  for (const TextRange& part : parts) {
    out.push_back({.text = word.text.substr(part.begin, part.end - part.begin),
                   .begins_text = word.begins_text && part.begin == 0});
  }
}

std::vector<TextRange> NumericCharacters(absl::string_view text) {
  std::vector<TextRange> ranges;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(at));
    if (IsNumeric(prefix.code_point)) ranges.push_back({at, at + prefix.size});
    at += prefix.size;
  }
  return ranges;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const nlohmann::json* json) {
  PreTokenizer pre_tokenizer;
  if (json == nullptr) return pre_tokenizer;
  if (absl::Status status = pre_tokenizer.Add(*json, 0); !status.ok()) return status;
  return pre_tokenizer;
}

absl::Status PreTokenizer::Add(const nlohmann::json& json, int depth) {
  JsonFields fields(json, "pre_tokenizer");
  const std::string type = fields.String("type", "");
  if (!fields.status().ok()) return fields.status();
  if (type == "ByteLevel") return AddByteLevel(json);
  if (type == "Split") return AddSplit(json);
  if (type == "Metaspace") return AddMetaspace(json);
  if (type == "Digits") return AddDigits(json);
  if (type != "Sequence" || depth > 0) {
    return BadTokenizer(absl::StrCat("the pre_tokenizer '", type, "' is not supported"));
  }
  const nlohmann::json* list = fields.Require("pretokenizers");
  if (list == nullptr) return fields.status();
  for (const nlohmann::json& element : *list) {
    if (absl::Status status = Add(element, depth + 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddByteLevel(const nlohmann::json& json) {
  JsonFields fields(json, "pre_tokenizer");
  const bool add_prefix_space = fields.Bool("add_prefix_space", true);
  const bool use_regex = fields.Bool("use_regex", true);
  if (!fields.status().ok()) return fields.status();
  std::optional<Pattern> words;
  if (use_regex) {
    absl::StatusOr<Pattern> pattern = Pattern::Regex(kByteLevelWords);
    if (!pattern.ok()) return pattern.status();
    words = *std::move(pattern);
  }
  steps_.push_back([=](Word word, absl::Time deadline, std::vector<Word>& out) {
    if (add_prefix_space && !absl::StartsWith(word.text, " "))
      word.text = absl::StrCat(" ", word.text);
    std::vector<TextRange> matches;
    if (words.has_value()) {
      absl::StatusOr<std::vector<TextRange>> found = words->FindAll(word.text, deadline);
      if (!found.ok()) return found.status();
      matches = *std::move(found);
    }
    const size_t first = out.size();
    AddParts(word, SplitText(word.text.size(), matches, SplitBehavior::kIsolated), out);
    for (size_t i = first; i < out.size(); ++i) out[i].text = BytesToVisible(out[i].text);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddSplit(const nlohmann::json& json) {
  JsonFields fields(json, "pre_tokenizer");
  const nlohmann::json* wanted = fields.Require("pattern");
  const std::string name = fields.String("behavior", "");
  const SplitMatches what =
      fields.Bool("invert", false) ? SplitMatches::kBetween : SplitMatches::kPattern;
  if (!fields.status().ok()) return fields.status();
  const std::optional<SplitBehavior> behavior = SplitBehaviorFromName(name);
  if (!behavior.has_value()) {
    return BadTokenizer(absl::StrCat("pre_tokenizer.behavior '", name, "' is not supported"));
  }
  absl::StatusOr<Pattern> pattern = Pattern::Parse(*wanted, "pre_tokenizer.pattern");
  if (!pattern.ok()) return pattern.status();
  steps_.push_back([pattern = *std::move(pattern), behavior = *behavior, what](
                       const Word& word, absl::Time deadline, std::vector<Word>& out) {
    const absl::StatusOr<std::vector<TextRange>> matches = pattern.FindAll(word.text, deadline);
    if (!matches.ok()) return matches.status();
    AddParts(word, SplitText(word.text.size(), *matches, behavior, what), out);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const nlohmann::json& json) {
  const absl::StatusOr<Metaspace> parsed = Metaspace::Parse(json, "pre_tokenizer");
  if (!parsed.ok()) return parsed.status();
  const Pattern replacement = Pattern::String(parsed->replacement);
  steps_.push_back([meta = *parsed, replacement](Word word, absl::Time deadline,
                                                 std::vector<Word>& out) {
    word.text = absl::StrReplaceAll(word.text, {{" ", meta.replacement}});
    const bool prepends = meta.scheme == Metaspace::Scheme::kAlways ||
                          (meta.scheme == Metaspace::Scheme::kFirst && word.begins_text);
    if (prepends && !absl::StartsWith(word.text, meta.replacement)) {
      word.text = absl::StrCat(meta.replacement, word.text);
    }
    if (!meta.split) {
      out.push_back(std::move(word));
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<TextRange>> matches = replacement.FindAll(word.text, deadline);
    if (!matches.ok()) return matches.status();
    AddParts(word, SplitText(word.text.size(), *matches, SplitBehavior::kMergedWithNext), out);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddDigits(const nlohmann::json& json) {
  JsonFields fields(json, "pre_tokenizer");
  const SplitBehavior behavior = fields.Bool("individual_digits", false)
                                     ? SplitBehavior::kIsolated
                                     : SplitBehavior::kContiguous;
  steps_.push_back([behavior](const Word& word, absl::Time, std::vector<Word>& out) {
    AddParts(word, SplitText(word.text.size(), NumericCharacters(word.text), behavior), out);
    return absl::OkStatus();
  });
  return fields.status();
}

absl::StatusOr<std::vector<Word>> PreTokenizer::Apply(Word text, absl::Time deadline) const {
  std::vector<Word> words;
  if (text.text.empty()) return words;
  words.push_back(std::move(text));
  for (const Step& step : steps_) {
    std::vector<Word> next;
    for (Word& word : words) {
      if (absl::Status status = step(std::move(word), deadline, next); !status.ok()) return status;
    }
    words = std::move(next);
  }
  return words;
}

}  // namespace pagoda
