#ifndef PAGODA_ENGINE_STRUCTURED_ANSWER_VOCABULARY_H_
#define PAGODA_ENGINE_STRUCTURED_ANSWER_VOCABULARY_H_

#include <string>
#include <vector>

#include "pools/types.h"

namespace pagoda {

// A model's tokens as the text that they add to an answer.
struct AnswerVocabulary {
  // By id: the token's bytes, which can be a part of a character. Empty: a token that is no text
  // (special, or unused).
  std::vector<std::string> bytes;
  // In ascending order: tokens that have other bytes at the beginning of an answer. Some tokenizers
  // drop the first space of a text.
  std::vector<TokenId> not_first;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_ANSWER_VOCABULARY_H_
