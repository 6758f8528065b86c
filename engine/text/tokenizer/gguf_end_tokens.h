// Which tokens of a GGUF file's vocabulary end an answer.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_END_TOKENS_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_END_TOKENS_H_

#include "engine/text/tokenizer/gguf_vocabulary.h"

namespace pagoda {

// Completes end_tokens, and corrects types. Many files name only one end token, and some have
// control tokens of another type. llama.cpp knows the others by their texts, and so does this.
void CorrectEndTokens(GgufVocabulary& vocabulary);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_END_TOKENS_H_
