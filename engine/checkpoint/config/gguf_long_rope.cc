#include "engine/checkpoint/config/gguf_long_rope.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/gguf_names.h"
#include "engine/checkpoint/config/rotary_fields.h"

namespace pagoda {
namespace {

std::vector<float> ReadFactors(GgufFields& reader, const GgufFile& file, const char* name,
                               uint32_t count) {
  const auto it = file.tensors().find(name);
  std::vector<float> factors;
  if (it != file.tensors().end() && it->second.shape == std::vector<uint64_t>{count}) {
    factors = ToFloats(it->second);
  }
  bool are_sound = factors.size() == count;
  for (const float factor : factors) {
    are_sound = are_sound && factor >= kSmallestLongRopeFactor && std::isfinite(factor);
  }
  if (are_sound) return factors;
  reader.Complain(absl::StrCat("tensor ", name, " is not [", count, "] numbers from 1/1024 on"));
  return std::vector<float>(count, 1.0f);
}

}  // namespace

bool HasGgufLongRope(const GgufFile& file) {
  return file.tensors().contains(kGgufShortFactors) || file.tensors().contains(kGgufLongFactors);
}

RotaryConfig ReadGgufLongRope(GgufFields& reader, const GgufFile& file, uint32_t rotary_dim,
                              const ModelConfig& config) {
  RotaryConfig rotary = {.theta = reader.AtLeastOne("rope.freq_base", 10000.0f),
                         .scaling = RotaryConfig::Scaling::kLongRope};
  const GgufValue* const type = reader.Find("rope.scaling.type");
  if (type != nullptr && *type != GgufValue("longrope") && *type != GgufValue("none")) {
    reader.Refuse("rope.scaling.type", "absent, none or longrope, because of the file's factors");
  }
  for (const char* key :
       {"rope.scaling.factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    const GgufValue* const value = reader.Find(key);
    if (value != nullptr && *value != GgufValue(1.0)) {
      reader.Refuse(key, "absent or 1 with LongRoPE");
    }
  }
  rotary.original_max_position_embeddings =
      reader.Count("rope.scaling.original_context_length", kMaxPositionEmbeddings,
                   config.max_position_embeddings);
  rotary.attention_factor = reader.Positive("rope.scaling.attn_factor", 1.0f);
  rotary.divisors = ReadFactors(reader, file, kGgufShortFactors, rotary_dim / 2);
  rotary.long_divisors = ReadFactors(reader, file, kGgufLongFactors, rotary_dim / 2);
  return rotary;
}

}  // namespace pagoda
