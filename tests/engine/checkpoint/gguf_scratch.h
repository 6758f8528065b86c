// The metadata of a small model in a GGUF file, which tests change.
#ifndef PAGODA_TESTS_ENGINE_CHECKPOINT_GGUF_SCRATCH_H_
#define PAGODA_TESTS_ENGINE_CHECKPOINT_GGUF_SCRATCH_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/config/model_config.h"
#include "tests/engine/fixtures/gguf_content.h"

namespace pagoda {

// Keys of a small model, by name, which tests change.
std::map<std::string, std::string> GgufKeys(const std::string& architecture);

// No tensors except the embedding.
struct GgufScratchFile {
  std::map<std::string, std::string> keys;
  std::vector<GgufTensorEntry> tensors = {{"token_embd.weight", {64, 8}, 0, 0}};
  std::string data = std::string(8192, 0);

  absl::StatusOr<ModelConfig> Read() const;
  // Fails the test if the file is refused.
  ModelConfig Config() const;
  // Why the file is refused. Fails the test if it is not.
  std::string Refusal() const;
};

GgufScratchFile GgufFileWith(const std::string& architecture, const std::string& key,
                             const std::string& entry);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CHECKPOINT_GGUF_SCRATCH_H_
