#ifndef PAGODA_ENGINE_TEXT_ANSWER_TOKENS_H_
#define PAGODA_ENGINE_TEXT_ANSWER_TOKENS_H_

#include "engine/structured/answer_vocabulary.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda {

// The tokenizer's tokens as the text of an answer, in which special tokens are left out.
AnswerVocabulary AnswerTokens(const Tokenizer& tokenizer);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ANSWER_TOKENS_H_
