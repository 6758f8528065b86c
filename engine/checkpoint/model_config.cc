#include "engine/checkpoint/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/decoder_fields.h"
#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_config.h"
#include "engine/checkpoint/json_text.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_path.h"

namespace pagoda {
namespace {

absl::StatusOr<ModelConfig> LoadJson(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<nlohmann::json> root = ParseJsonObject(file->text(), path, "the file");
  if (!root.ok()) return root.status();
  FieldReader reader(*root, path);
  ModelConfig config = ReadDecoder(reader);
  if (!reader.status().ok()) return reader.status();
  return config;
}

// After transformers' _compute_llama3_parameters, which follows Meta's Llama 3.1.
float ScaleAsLlama3(const RotaryConfig& rotary, float frequency) {
  const auto old_positions = static_cast<float>(rotary.original_max_position_embeddings);
  const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
  if (wavelength < old_positions / rotary.high_freq_factor) return frequency;
  if (wavelength > old_positions / rotary.low_freq_factor) return frequency / rotary.factor;
  const float smooth = (old_positions / wavelength - rotary.low_freq_factor) /
                       (rotary.high_freq_factor - rotary.low_freq_factor);
  return (1.0f - smooth) * frequency / rotary.factor + smooth * frequency;
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir) {
  const absl::StatusOr<std::optional<std::string>> gguf_path = FindGgufFile(model_dir);
  if (!gguf_path.ok()) return gguf_path.status();
  if (!gguf_path->has_value()) return LoadJson(absl::StrCat(model_dir, "/config.json"));
  const absl::StatusOr<GgufFile> file = GgufFile::Open(**gguf_path);
  if (!file.ok()) return file.status();
  return ReadGgufConfig(*file);
}

std::vector<float> RotaryFrequencies(const RotaryConfig& rotary, uint32_t head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float plain = 1.0f / std::pow(rotary.theta, exponent);
    switch (rotary.scaling) {
      case RotaryConfig::Scaling::kNone:
        frequencies[i] = plain;
        break;
      case RotaryConfig::Scaling::kLinear:
        frequencies[i] = plain / rotary.factor;
        break;
      case RotaryConfig::Scaling::kLlama3:
        frequencies[i] = ScaleAsLlama3(rotary, plain);
        break;
      case RotaryConfig::Scaling::kDivisors:
        frequencies[i] = plain / rotary.divisors[i];
        break;
    }
  }
  return frequencies;
}

}  // namespace pagoda
