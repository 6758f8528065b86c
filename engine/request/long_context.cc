#include "engine/request/long_context.h"

namespace pagoda {
namespace {

// Random numbers. The factor is odd, so that no two adapters get the same id.
constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
constexpr uint64_t kModelAlone = 0x5c1d3f6ab80e9247;

}  // namespace

uint64_t LongContextLoraId(std::optional<uint64_t> adapter) {
  return kModelAlone + kFactor * adapter.value_or(0);
}

void ApplyRotaryRange(const ModelConfig& model, GenerateRequest& request) {
  request.rotary_range =
      RotaryRangeOf(model, request.prompt.size() + uint64_t{request.max_new_tokens} - 1);
  if (request.rotary_range == RotaryRange::kShort) return;
  request.name_space.lora_id = LongContextLoraId(request.name_space.lora_id);
}

}  // namespace pagoda
