#include "engine/text/answer_tokens.h"

namespace pagoda {

AnswerVocabulary AnswerTokens(const Tokenizer& tokenizer) {
  AnswerVocabulary vocabulary;
  vocabulary.bytes.resize(tokenizer.size());
  for (TokenId id = 0; id < vocabulary.bytes.size(); ++id) {
    if (tokenizer.IsSpecial(id)) continue;
    vocabulary.bytes[id] = tokenizer.Bytes(id, Decoder::Place::kLater);
    if (tokenizer.Bytes(id, Decoder::Place::kFirst) != vocabulary.bytes[id]) {
      vocabulary.not_first.push_back(id);
    }
  }
  return vocabulary;
}

}  // namespace pagoda
