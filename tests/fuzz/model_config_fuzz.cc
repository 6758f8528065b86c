// A config.json of arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint/config/decoder_fields.h"
#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/files/json_text.h"
#include "tests/fuzz/tensor_checks.h"

namespace pagoda::fuzz {
namespace {

void Check(const std::string& text) {
  const std::string path = "config.json";
  const absl::StatusOr<nlohmann::json> root = ParseJsonObject(text, path, "the file");
  if (!root.ok()) return CheckRefusal(root.status(), path);
  FieldReader reader(*root, path);
  const ModelConfig config = ReadDecoder(reader);
  if (!reader.status().ok()) return CheckRefusal(reader.status(), path);
  CheckConfig(config);
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
