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

std::vector<GoldenCase> ReadGoldenCases(const std::string& name) {
  const std::string dir = GoldenDir(name);
  std::ifstream file(dir + "/cases.json");
  const nlohmann::json cases = nlohmann::json::parse(file)["cases"];
  const auto tensors = SafetensorsFile::Open(dir + "/cases.safetensors");
  PAGODA_CHECK(tensors.ok(), "the expected logits can be read");
  const auto& logits = tensors->tensors().at("logits");
  const std::byte* row = logits.bytes.data();
  std::vector<GoldenCase> golden;
  for (const nlohmann::json& entry : cases) {
    GoldenCase& one = golden.emplace_back();
    one.prompt = entry["prompt"].get<std::vector<TokenId>>();
    one.ids = entry["ids"].get<std::vector<TokenId>>();
    for (size_t i = 0; i < one.ids.size(); ++i) {
      std::vector<float>& values = one.logits.emplace_back(logits.shape[2]);
      std::memcpy(values.data(), row, values.size() * sizeof(float));
      row += values.size() * sizeof(float);
    }
  }
  return golden;
}

}  // namespace pagoda
