// The golden checkpoints of tests/golden, and Hugging Face transformers' answers with them.
#ifndef PAGODA_TESTS_ENGINE_GOLDEN_H_
#define PAGODA_TESTS_ENGINE_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "pools/types.h"

namespace pagoda {

struct Golden {
  std::string model_dir;
  std::vector<TokenId> prompt;
  std::vector<TokenId> ids;
  // For each id, computed in fp32. With an adapter only for the first ids.
  std::vector<std::vector<float>> logits;
  // The same for the same ids, computed in the checkpoint's type. Empty if there are none.
  std::vector<std::vector<float>> lower_precision_logits;

  // The prompt and the ids without the last: the tokens whose K is computed.
  uint64_t computed_tokens() const { return prompt.size() + ids.size() - 1; }
};

inline constexpr char kTinyModel[] = "qwen3_tiny";
inline constexpr char kUntiedModel[] = "qwen3_tiny_untied_bf16";

// A folder of tests/golden, and the folder with this model's answers, or with an adapter's on it.
struct GoldenModel {
  const char* name;
  const char* answers;
};

inline constexpr GoldenModel kGoldenModels[] = {
    {kTinyModel, kTinyModel},
    {kUntiedModel, kUntiedModel},
    {"pagoda_qwen3_tiny", "pagoda_qwen3_tiny"},
    {"qwen2_tiny", "qwen2_tiny"},
    {"llama3_tiny", "llama3_tiny"},
    {"llama3_tiny_f16_gguf", "llama3_tiny"},
    {"llama3_tiny_q8_0_gguf", "llama3_tiny_q8_0_gguf"},
    {"mistral_tiny", "mistral_tiny"},
    {"gemma2_tiny", "gemma2_tiny"},
    {"gemma3_tiny", "gemma3_tiny"},
    {"gemma3_tiny_bf16_gguf", "gemma3_tiny_bf16_gguf"},
    {"phi3_tiny", "phi3_tiny"},
    {"phi3_longrope_tiny", "phi3_longrope_tiny"},
    {"phi3_longrope_tiny_f32_gguf", "phi3_longrope_tiny"},
    {"phi3_longrope_tiny_q8_0_gguf", "phi3_longrope_tiny_q8_0_gguf"},
    {"qwen3_moe_tiny", "qwen3_moe_tiny"},
    {"deepseek_v3_tiny", "deepseek_v3_tiny"},
    {"deepseek_v2_tiny", "deepseek_v2_tiny"},
    {"deepseek_v3_tiny_gguf", "deepseek_v3_tiny_gguf"},
    {"deepseek_v2_tiny_gguf", "deepseek_v2_tiny_gguf"},
    {"gpt_oss_tiny", "gpt_oss_tiny"},
    {"gpt_oss_tiny_mxfp4", "gpt_oss_tiny_mxfp4"},
    {"gpt_oss_tiny_mxfp4_gguf", "gpt_oss_tiny_mxfp4"},
    {"qwen3_moe_tiny_gguf", "qwen3_moe_tiny_gguf"},
    {"bloom_tiny", "bloom_tiny"},
    {"bloom_tiny_gguf", "bloom_tiny_gguf"},
};

std::string GoldenDir(const std::string& name);
// expected.*: one prompt of 64 tokens.
Golden ReadGolden(const std::string& name);
// cases.*: prompts of 5, 33, 96 and 200 tokens.
std::vector<Golden> ReadGoldenCases(const GoldenModel& model);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_GOLDEN_H_
