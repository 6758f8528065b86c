#include "tests/engine/golden.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/safetensors.h"
#include "pools/check.h"

namespace pagoda {

std::string GoldenDir(const std::string& name) {
  return std::string(PAGODA_GOLDEN_DIR) + "/" + name;
}

Golden ReadGolden(const std::string& name) {
  Golden golden;
  golden.model_dir = GoldenDir(name);
  std::ifstream file(golden.model_dir + "/expected.json");
  const nlohmann::json expected = nlohmann::json::parse(file);
  golden.prompt = expected["prompt"].get<std::vector<TokenId>>();
  golden.ids = expected["ids"].get<std::vector<TokenId>>();

  const auto tensors = SafetensorsFile::Open(golden.model_dir + "/expected.safetensors");
  PAGODA_CHECK(tensors.ok(), "the expected logits can be read");
  const TensorView& logits = tensors->tensors().at("logits");
  const size_t row_bytes = logits.bytes.size() / golden.ids.size();
  for (size_t step = 0; step < golden.ids.size(); ++step) {
    std::vector<float>& row = golden.logits.emplace_back(row_bytes / sizeof(float));
    std::memcpy(row.data(), logits.bytes.data() + step * row_bytes, row_bytes);
  }
  return golden;
}

}  // namespace pagoda
