// Turns the tokens of one answer into its text.
#ifndef PAGODA_ENGINE_SERVE_PROMPT_CHOICE_TEXT_H_
#define PAGODA_ENGINE_SERVE_PROMPT_CHOICE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/generate.h"
#include "engine/text/stop_strings.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "pools/types.h"

namespace pagoda {

// A token's log probability, and those of the most likely tokens at its position.
struct ApiLogprob {
  std::string text;  // The token's own text.
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
  uint64_t text_offset = 0;  // In code points from the start of the answer.
};

// The part of an answer that one token adds.
struct ChoicePiece {
  uint32_t choice = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<ApiLogprob> logprobs;
  const char* finish_reason = nullptr;  // "stop" or "length", in the last piece.
};

// Builds the text of one choice. Thread-compatible: only the engine's thread uses it.
class ChoiceText {
 public:
  struct Options {
    uint32_t choice = 0;
    uint32_t max_tokens = 0;
    std::vector<TokenId> stop_tokens;  // Not part of the text.
    std::vector<std::string> stop;
    bool logprobs = false;
  };
  // `tokenizer` must outlive this object. Without one (null) there is no text.
  ChoiceText(const Tokenizer* tokenizer, Options options);

  ChoicePiece Add(const GeneratedToken& token);
  // Whether a stop string has been found.
  bool stopped() const { return stops_.stopped(); }

 private:
  ApiLogprob LogprobOf(const GeneratedToken& token) const;
  std::string TokenText(TokenId token) const;

  const Tokenizer* const tokenizer_;
  const Options options_;
  std::optional<StreamDecoder> decoder_;
  StopStrings stops_;
  uint32_t tokens_ = 0;
  uint64_t characters_ = 0;  // Decoded so far.
  bool finished_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_CHOICE_TEXT_H_
