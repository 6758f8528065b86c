// The chat template of a GGUF file.
#ifndef PAGODA_ENGINE_TEXT_CHAT_GGUF_CHAT_H_
#define PAGODA_ENGINE_TEXT_CHAT_GGUF_CHAT_H_

#include "engine/checkpoint/gguf/gguf_values.h"
#include "engine/text/chat/chat_format.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda {

// The file's template, "tokenizer.chat_template". If there is none, but there are named ones: the
// one named "default", or the only one. The one named "tool_use" is for tools. `tokenizer` is that
// of the file.
ChatSettings GgufChatSettings(const GgufMetadata& metadata, const Tokenizer& tokenizer);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_CHAT_GGUF_CHAT_H_
