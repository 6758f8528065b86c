#include "engine/checkpoint/config/model_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/decoder_fields.h"
#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/gguf_config.h"
#include "engine/checkpoint/files/json_text.h"
#include "engine/checkpoint/files/model_path.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {
namespace {

absl::StatusOr<ModelConfig> LoadJson(const std::string& path) {
  const absl::StatusOr<nlohmann::json> root = ParseJsonFile(path, "the file");
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

// After transformers' _compute_yarn_parameters, which follows YaRN's authors.
std::vector<float> YarnFrequencies(const RotaryConfig& rotary, uint32_t dim,
                                   std::vector<float> plain) {
  // The index whose frequency turns this number of times within the original positions.
  const auto index_of = [&](double turns) {
    const double positions = rotary.original_max_position_embeddings;
    return dim * std::log(positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(double{rotary.theta}));
  };
  double low = index_of(rotary.beta_fast);
  double high = index_of(rotary.beta_slow);
  if (rotary.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < plain.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    plain[i] = plain[i] / rotary.factor * ramp + plain[i] * (1.0f - ramp);
  }
  return plain;
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir) {
  const absl::StatusOr<std::optional<std::string>> gguf_path = FindGgufFile(model_dir);
  if (!gguf_path.ok()) return gguf_path.status();
  if (!gguf_path->has_value()) return LoadJson(absl::StrCat(model_dir, "/config.json"));
  const absl::StatusOr<GgufFile> file = GgufFile::Open(**gguf_path);
  if (!file.ok()) return file.status();
  absl::StatusOr<ModelConfig> config = ReadGgufConfig(*file);
  if (absl::Status unchanged = file->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return config;
}

uint32_t RotaryDim(const RotaryConfig& rotary, uint32_t head_dim) {
  return rotary.rotary_dim == 0 ? head_dim : rotary.rotary_dim;
}

std::vector<float> RotaryFrequencies(const RotaryConfig& rotary, uint32_t head_dim,
                                     RotaryRange range) {
  const uint32_t dim = RotaryDim(rotary, head_dim);
  std::vector<float> frequencies(dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float plain = 1.0f / std::pow(rotary.theta, exponent);
    switch (rotary.scaling) {
      case RotaryConfig::Scaling::kNone:
      case RotaryConfig::Scaling::kYarn:
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
      case RotaryConfig::Scaling::kLongRope: {
        const bool is_long = range == RotaryRange::kLong;
        const float divisor = is_long ? rotary.long_divisors[i] : rotary.divisors[i];
        frequencies[i] = 1.0f / (divisor * std::pow(rotary.theta, exponent));
        break;
      }
    }
  }
  if (rotary.scaling != RotaryConfig::Scaling::kYarn) return frequencies;
  return YarnFrequencies(rotary, dim, std::move(frequencies));
}

RotaryRange RotaryRangeOf(const ModelConfig& config, uint64_t tokens) {
  for (const RotaryConfig& rotary : config.rotaries) {
    if (rotary.scaling == RotaryConfig::Scaling::kLongRope &&
        tokens > rotary.original_max_position_embeddings) {
      return RotaryRange::kLong;
    }
  }
  return RotaryRange::kShort;
}

std::vector<float> AlibiSlopes(uint32_t num_heads) {
  std::vector<float> slopes;
  const uint32_t power = std::bit_floor(num_heads);
  for (uint32_t i = 1; i <= power; ++i) slopes.push_back(std::exp2(-8.0f * i / power));
  for (uint32_t i = 1; slopes.size() < num_heads; i += 2) {
    slopes.push_back(std::exp2(-4.0f * i / power));
  }
  return slopes;
}

}  // namespace pagoda
