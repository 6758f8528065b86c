// One answer, from its tokens to its text.
#ifndef PAGODA_SERVER_OPENAI_CHOICE_TEXT_H_
#define PAGODA_SERVER_OPENAI_CHOICE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/text/stop_strings.h"
#include "engine/text/tokenizer.h"
#include "pools/types.h"

namespace pagoda::server {

// A token's probability, and those of the most likely ones in its place.
struct ApiLogprob {
  std::string text;  // The token by itself.
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
  uint64_t text_offset = 0;  // In code points, of the answer.
};

// What a token adds to an answer.
struct ChoicePiece {
  uint32_t choice = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<ApiLogprob> logprobs;
  const char* finish_reason = nullptr;  // "stop" or "length", in the last one.
};

// Thread-compatible: the engine's thread alone uses it.
class ChoiceText {
 public:
  struct Options {
    uint32_t choice = 0;
    uint32_t max_tokens = 0;
    std::vector<TokenId> stop_tokens;  // Are not part of the text.
    std::vector<std::string> stop;
    bool logprobs = false;
  };
  // `tokenizer` outlives it; null: there is no text.
  ChoiceText(const Tokenizer* tokenizer, Options options);

  ChoicePiece Add(const GeneratedToken& token);
  // A stop string has come.
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

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_OPENAI_CHOICE_TEXT_H_
