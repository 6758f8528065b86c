// The golden checkpoints of tests/golden and what Hugging Face transformers answers with them.
#ifndef PAGODA_TESTS_ENGINE_GOLDEN_H_
#define PAGODA_TESTS_ENGINE_GOLDEN_H_

#include <string>
#include <vector>

#include "pools/types.h"

namespace pagoda {

struct Golden {
  std::string model_dir;
  std::vector<TokenId> prompt;
  std::vector<TokenId> ids;
  std::vector<std::vector<float>> logits;  // Of each id.
};

// One prompt of a checkpoint with several.
struct GoldenCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> ids;
  std::vector<std::vector<float>> logits;  // Of each id, fp32.
};

inline constexpr char kTinyModel[] = "qwen3_tiny";
inline constexpr char kUntiedModel[] = "qwen3_tiny_untied_bf16";

std::string GoldenDir(const std::string& name);
Golden ReadGolden(const std::string& name);
std::vector<GoldenCase> ReadGoldenCases(const std::string& name);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_GOLDEN_H_
