// The configuration of a model in a GGUF file.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_CONFIG_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_CONFIG_H_

#include "absl/status/statusor.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// Reads it from the file's metadata. For missing keys it follows llama.cpp's rules.
// general.architecture is llama (Llama and Mistral), qwen2, qwen3, qwen3moe, gpt-oss,
// gemma2, gemma3, phi3, deepseek2 or bloom.
// ModelConfig::architecture is transformers' name for it. Errors: INVALID_CHECKPOINT with the path
// and the key.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_CONFIG_H_
