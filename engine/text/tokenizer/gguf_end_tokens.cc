#include "engine/text/tokenizer/gguf_end_tokens.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

namespace pagoda {
namespace {

constexpr const char* kEndTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};
// The first that there is, of each list, ends an answer too: it begins something that is not text.
constexpr std::initializer_list<const char*> kFillTexts[] = {
    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
    {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
    {"<|file_sep|>"},
};
// Control tokens for filling in the middle; they end nothing.
constexpr std::initializer_list<const char*> kMiddleTexts[] = {
    {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
     "<|code_prefix|>", "<|prefix|>"},
    {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
     "<|code_suffix|>", "<|suffix|>"},
    {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
     "<|code_middle|>", "<|middle|>"},
};
// gpt-oss's tokens for the channels of an answer, which users see.
constexpr const char* kShownTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

void SetType(std::optional<TokenId> id, GgufTokenType type, GgufVocabulary& vocabulary) {
  if (id.has_value()) vocabulary.types[*id] = type;
}

std::optional<TokenId> First(std::initializer_list<const char*> texts, const TokenTable& tokens) {
  for (const char* const text : texts) {
    if (const std::optional<TokenId> id = tokens.Find(text)) return id;
  }
  return std::nullopt;
}

}  // namespace

void CorrectEndTokens(GgufVocabulary& vocabulary) {
  std::vector<TokenId>& ends = vocabulary.end_tokens;
  const auto find = [&](const char* text) { return vocabulary.tokens.Find(text); };
  const auto add = [&](std::optional<TokenId> id) {
    if (id.has_value()) ends.push_back(*id);
    SetType(id, GgufTokenType::kControl, vocabulary);
  };
  const auto remove = [&](std::optional<TokenId> id) {
    ends.erase(std::remove(ends.begin(), ends.end(), id), ends.end());
  };
  for (const auto& texts : kMiddleTexts) {
    SetType(First(texts, vocabulary.tokens), GgufTokenType::kControl, vocabulary);
  }
  for (const auto& texts : kFillTexts) add(First(texts, vocabulary.tokens));
  for (const char* const text : kEndTexts) add(find(text));
  for (const char* const text : kShownTexts) {
    SetType(find(text), GgufTokenType::kUserDefined, vocabulary);
  }
  // gpt-oss and Solar: this only ends a part of the answer.
  const bool has_call = find("<|call|>").has_value() || find("<|calls|>").has_value();
  if (has_call && (find("<|return|>").has_value() || find("<|flush|>").has_value())) {
    remove(find("<|end|>"));
    SetType(find("<|end|>"), GgufTokenType::kUserDefined, vocabulary);
  }
  // Gemma 4 and PLaMo: an HTML tag.
  if (find("<|tool_response>").has_value()) {
    remove(find("</s>"));
    SetType(find("</s>"), GgufTokenType::kNormal, vocabulary);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace pagoda
