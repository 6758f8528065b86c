#include "engine/text/split/normalizer.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/split/pattern.h"

namespace pagoda {
namespace {

const icu::Normalizer2* FormNamed(const std::string& name, UErrorCode& error) {
  if (name == "NFC") return icu::Normalizer2::getNFCInstance(error);
  if (name == "NFD") return icu::Normalizer2::getNFDInstance(error);
  if (name == "NFKC") return icu::Normalizer2::getNFKCInstance(error);
  if (name == "NFKD") return icu::Normalizer2::getNFKDInstance(error);
  return nullptr;
}

absl::StatusOr<std::string> ToForm(const icu::Normalizer2& form, const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  form.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                     nullptr, error);
  if (U_FAILURE(error) != 0) {
    return MakeError(Reason::kInvalidPrompt,
                     absl::StrCat("the text cannot be normalized: ", u_errorName(error)));
  }
  return result;
}

// Lowers each character independently, as the package `tokenizers` does: no rule reads
// neighbours.
std::string Lower(absl::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    text.remove_prefix(prefix.size);
    // The only character whose lower case is two.
    if (prefix.code_point == U'\u0130') {
      result += "i\u0307";
    } else {
      AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(prefix.code_point))), result);
    }
  }
  return result;
}

std::string StripWhitespace(absl::string_view text, bool left, bool right) {
  while (left && !text.empty() && IsWhitespace(ReadUtf8(text).code_point)) {
    text.remove_prefix(ReadUtf8(text).size);
  }
  while (right && !text.empty()) {
    size_t last = text.size() - 1;
    while ((static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsWhitespace(ReadUtf8(text.substr(last)).code_point)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

absl::StatusOr<std::string> Replace(const Pattern& pattern, const std::string& content,
                                    const std::string& text, absl::Time deadline) {
  const absl::StatusOr<std::vector<TextRange>> ranges = pattern.FindAll(text, deadline);
  if (!ranges.ok()) return ranges.status();
  std::string result;
  size_t done = 0;
  for (const TextRange& range : *ranges) {
    result.append(text, done, range.begin - done);
    result += content;
    done = range.end;
    if (result.size() > Normalizer::kMaxBytes) {
      return MakeError(Reason::kInvalidPrompt, "the text becomes too long when it is normalized");
    }
  }
  result.append(text, done);
  return result;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Parse(const nlohmann::json* json) {
  Normalizer normalizer;
  if (json == nullptr) return normalizer;
  if (absl::Status status = normalizer.Add(*json, 0); !status.ok()) return status;
  return normalizer;
}

absl::Status Normalizer::AddReplace(const nlohmann::json& json) {
  JsonFields fields(json, "normalizer");
  const nlohmann::json* wanted = fields.Require("pattern");
  const std::string content = fields.String("content", "");
  if (!fields.status().ok()) return fields.status();
  absl::StatusOr<Pattern> pattern = Pattern::Parse(*wanted, "normalizer.pattern");
  if (!pattern.ok()) return pattern.status();
  steps_.push_back(
      [pattern = *std::move(pattern), content](const std::string& text, absl::Time deadline) {
        return Replace(pattern, content, text, deadline);
      });
  return absl::OkStatus();
}

absl::Status Normalizer::Add(const nlohmann::json& json, int depth) {
  JsonFields fields(json, "normalizer");
  const std::string type = fields.String("type", "");
  if (type == "Sequence" && depth == 0) {
    const nlohmann::json* list = fields.Require("normalizers");
    if (!fields.status().ok()) return fields.status();
    for (const nlohmann::json& element : *list) {
      if (absl::Status status = Add(element, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  if (type == "Replace") return AddReplace(json);
  if (type == "Prepend") {
    const std::string prefix = fields.String("prepend", "");
    steps_.push_back([prefix](const std::string& text, absl::Time) -> absl::StatusOr<std::string> {
      return text.empty() ? text : prefix + text;
    });
    return fields.status();
  }
  if (type == "Lowercase") {
    steps_.push_back([](const std::string& text, absl::Time) { return Lower(text); });
    return fields.status();
  }
  if (type == "Strip") {
    const bool left = fields.Bool("strip_left", true);
    const bool right = fields.Bool("strip_right", true);
    strips_left_ = strips_left_ || left;
    steps_.push_back([left, right](const std::string& text, absl::Time) {
      return StripWhitespace(text, left, right);
    });
    return fields.status();
  }
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* form = FormNamed(type, error);
  if (form == nullptr || U_FAILURE(error) != 0) {
    if (!fields.status().ok()) return fields.status();
    return BadTokenizer(absl::StrCat("the normalizer '", type, "' is not supported"));
  }
  steps_.push_back([form](const std::string& text, absl::Time) { return ToForm(*form, text); });
  return absl::OkStatus();
}

bool Normalizer::DropsBeginning(absl::string_view text) const {
  return strips_left_ && !text.empty() && IsWhitespace(ReadUtf8(text).code_point);
}

absl::StatusOr<std::string> Normalizer::Apply(absl::string_view text, absl::Time deadline) const {
  absl::StatusOr<std::string> result = std::string(text);
  for (const Step& step : steps_) {
    result = step(*result, deadline);
    if (!result.ok()) break;
  }
  return result;
}

}  // namespace pagoda
