#include "tests/engine/golden.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/checkpoint/safetensors.h"

namespace pagoda {
namespace {

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

Golden ReadEntry(const nlohmann::json& entry) {
  return {.prompt = entry["prompt"].get<std::vector<TokenId>>(),
          .ids = entry["ids"].get<std::vector<TokenId>>()};
}

// The rows of [...][vocabulary], from the given one on.
std::vector<std::vector<float>> ReadRows(const TensorInfo& tensor, size_t first, size_t count) {
  const size_t row_floats = tensor.shape.back();
  std::vector<std::vector<float>> rows;
  for (size_t i = 0; i < count; ++i) {
    std::vector<float>& row = rows.emplace_back(row_floats);
    std::memcpy(row.data(), tensor.bytes.data() + (first + i) * row_floats * sizeof(float),
                row_floats * sizeof(float));
  }
  return rows;
}

}  // namespace

#ifdef PAGODA_GOLDEN_DIR  // Otherwise the program contains the files: tests/gpu/embedded_golden.cc.
std::string GoldenDir(const std::string& name) {
  return absl::StrCat(PAGODA_GOLDEN_DIR, "/", name);
}
#endif

Golden ReadGolden(const std::string& name) {
  Golden golden = ReadEntry(ReadJson(GoldenDir(name) + "/expected.json"));
  golden.model_dir = GoldenDir(name);
  const auto tensors = SafetensorsFile::Open(golden.model_dir + "/expected.safetensors");
  PAGODA_CHECK(tensors.ok(), "the expected logits can be read");
  golden.logits = ReadRows(tensors->tensors().at("logits"), 0, golden.ids.size());
  return golden;
}

std::vector<Golden> ReadGoldenCases(const GoldenModel& model) {
  const std::string answers = GoldenDir(model.answers);
  const nlohmann::json cases = ReadJson(answers + "/cases.json")["cases"];
  const auto file = SafetensorsFile::Open(answers + "/cases.safetensors");
  PAGODA_CHECK(file.ok(), "the expected logits can be read");
  const uint64_t steps = file->tensors().at("logits").shape[1];
  std::vector<Golden> goldens;
  for (const nlohmann::json& entry : cases) {
    Golden golden = ReadEntry(entry);
    golden.model_dir = GoldenDir(model.name);
    const size_t first = goldens.size() * steps;
    golden.logits = ReadRows(file->tensors().at("logits"), first, steps);
    const auto lower = file->tensors().find("lower_precision_logits");
    if (lower != file->tensors().end()) {
      golden.lower_precision_logits = ReadRows(lower->second, first, steps);
    }
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

}  // namespace pagoda
