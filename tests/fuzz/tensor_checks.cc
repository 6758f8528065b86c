#include "tests/fuzz/tensor_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/error.h"
#include "tests/fuzz/planted.h"

namespace pagoda::fuzz {

void CheckRefusal(const absl::Status& status, const std::string& path) {
  PAGODA_CHECK(ReasonOf(status) == Reason::kInvalidCheckpoint,
               "a checkpoint is refused with INVALID_CHECKPOINT");
  PAGODA_CHECK(absl::StartsWith(status.message(), path + ": "), "a refusal names the file");
}

void CheckTensors(const TensorMap& tensors, uint64_t file_bytes) {
  const uint64_t planted = Planted("EndNotChecked") ? 1 : 0;
  std::vector<std::pair<const std::byte*, const std::byte*>> spans;
  for (const auto& [name, tensor] : tensors) {
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) elements *= dimension;
    PAGODA_CHECK(ToFloats(tensor).size() == elements, "a tensor has the elements of its shape");
    const absl::Span<const std::byte> bytes = tensor.bytes;
    if (!bytes.empty()) spans.emplace_back(bytes.begin(), bytes.end() + planted);
  }
  if (spans.empty()) return;
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    PAGODA_CHECK(spans[i - 1].second <= spans[i].first, "no two tensors share a byte");
  }
  PAGODA_CHECK(spans.back().second - spans.front().first <= static_cast<int64_t>(file_bytes),
               "tensors lie inside the file");
}

namespace {

void CheckExperts(const ExpertsConfig& experts) {
  PAGODA_CHECK(experts.intermediate_size > 0 && experts.chosen > 0, "sizes are positive");
  PAGODA_CHECK(experts.groups > 0 && experts.count % experts.groups == 0, "groups are equal");
  PAGODA_CHECK(experts.chosen_groups > 0 && experts.chosen_groups <= experts.groups,
               "there are groups to choose");
  PAGODA_CHECK(uint64_t{experts.chosen} <=
                   uint64_t{experts.chosen_groups} * (experts.count / experts.groups),
               "there are experts to choose");
}

}  // namespace

void CheckConfig(const ModelConfig& config) {
  if (config.experts.has_value()) CheckExperts(*config.experts);
  PAGODA_CHECK(config.vocab_size > 0 && config.hidden_size > 0 && config.intermediate_size > 0 &&
                   config.num_heads > 0 && config.max_position_embeddings > 0,
               "sizes are positive");
  PAGODA_CHECK(config.head_dim >= 2 && config.head_dim % 2 == 0, "heads can be rotated");
  PAGODA_CHECK(!config.layers.empty(), "there is a layer");
  for (const LayerConfig& layer : config.layers) {
    PAGODA_CHECK(config.alibi ? config.rotaries.empty() : layer.rotary < config.rotaries.size(),
                 "a layer has a rotary embedding or ALiBi");
    PAGODA_CHECK(!layer.has_experts || config.experts.has_value(), "the experts are described");
    PAGODA_CHECK(layer.value_dim <= config.head_dim, "a value is a part of a key");
    PAGODA_CHECK(layer.num_kv_heads > (Planted("HeadsNotChecked") ? 1 : 0) &&
                     config.num_heads % layer.num_kv_heads == 0,
                 "KV heads divide the heads");
    PAGODA_CHECK(layer.window.value() > 0, "a window has a token");
  }
  for (const RotaryConfig& rotary : config.rotaries) {
    for (const RotaryRange range : {RotaryRange::kShort, RotaryRange::kLong}) {
      for (const float frequency : RotaryFrequencies(rotary, config.head_dim, range)) {
        PAGODA_CHECK(std::isfinite(frequency) && frequency >= 0, "a frequency is a number");
      }
    }
  }
  for (const float number : {config.rms_norm_eps, config.query_scale, config.embedding_scale}) {
    PAGODA_CHECK(std::isfinite(number) && number > 0, "a factor is positive");
  }
  for (const float cap : {config.attention_soft_cap, config.final_soft_cap}) {
    PAGODA_CHECK(std::isfinite(cap) && cap >= 0, "a cap is a number or none");
  }
  for (const uint32_t token : config.eos_token_ids) {
    PAGODA_CHECK(token < config.vocab_size, "an end-of-text token is in the vocabulary");
  }
}

}  // namespace pagoda::fuzz
