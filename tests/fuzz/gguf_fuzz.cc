// A GGUF file of arbitrary bytes, with its configuration and its tensors by their Hugging Face
// names.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "engine/checkpoint/config/gguf_config.h"
#include "engine/checkpoint/config/gguf_names.h"
#include "engine/checkpoint/gguf/gguf.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/tensor_checks.h"

namespace pagoda::fuzz {
namespace {

void Check(const std::string& content) {
  const MemoryFile memory(content);
  const absl::StatusOr<GgufFile> file = GgufFile::Open(memory.path());
  if (!file.ok()) return CheckRefusal(file.status(), memory.path());
  CheckTensors(file->tensors(), content.size());
  const absl::StatusOr<ModelConfig> config = ReadGgufConfig(*file);
  if (!config.ok()) return CheckRefusal(config.status(), memory.path());
  CheckConfig(*config);
  const absl::StatusOr<TranslatedTensors> tensors = TranslateTensors(*file, *config);
  if (!tensors.ok()) return CheckRefusal(tensors.status(), memory.path());
  size_t weights = file->tensors().size();
  if (!config->rotaries.empty()) weights -= file->tensors().count(kGgufRotaryDivisors);
  if (RotaryRangeOf(*config, ~uint64_t{0}) == RotaryRange::kLong) weights -= 2;
  PAGODA_CHECK(tensors->tensors.size() == weights, "every tensor has one other name");
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
