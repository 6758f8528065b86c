#include "engine/serve/prompt/choice_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {
namespace {

uint64_t CountCharacters(const std::string& text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  }));
}

}  // namespace

ChoiceText::ChoiceText(const Tokenizer* tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)), stops_(options_.stop) {
  if (tokenizer_ != nullptr) decoder_.emplace(tokenizer_);
}

std::string ChoiceText::TokenText(TokenId token) const {
  if (tokenizer_ == nullptr) return absl::StrCat("token_id:", token);
  return tokenizer_->Decode({token}, SpecialTokens::kKeep);
}

ApiLogprob ChoiceText::LogprobOf(const GeneratedToken& token) const {
  ApiLogprob logprob{.text = TokenText(token.token),
                     .logprob = token.logprob,
                     .top = {},
                     .text_offset = characters_};
  for (const TokenLogprob& top : token.top_logprobs) {
    logprob.top.emplace_back(TokenText(top.token), top.logprob);
  }
  return logprob;
}

ChoicePiece ChoiceText::Add(const GeneratedToken& token) {
  ChoicePiece piece{.choice = options_.choice};
  if (finished_) return piece;
  ++tokens_;
  piece.tokens.push_back(token.token);
  const auto& ends = options_.stop_tokens;
  const bool is_end = std::find(ends.begin(), ends.end(), token.token) != ends.end();
  const bool is_last = is_end || tokens_ == options_.max_tokens;
  if (!is_end && options_.logprobs) piece.logprobs.push_back(LogprobOf(token));
  if (decoder_.has_value()) {
    std::string text = is_end ? "" : decoder_->Add(token.token);
    if (is_last) text += decoder_->Finish();
    characters_ += CountCharacters(text);
    piece.text = stops_.Add(text);
    if (is_last) piece.text += stops_.Finish();
  }
  finished_ = is_last || stops_.stopped();
  if (finished_) piece.finish_reason = is_end || stops_.stopped() ? "stop" : "length";
  return piece;
}

}  // namespace pagoda
