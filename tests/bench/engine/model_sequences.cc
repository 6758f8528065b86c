#include "tests/bench/engine/model_sequences.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/cpu/cpu_backend.h"
#include "tests/base/require.h"

namespace pagoda::bench {

std::unique_ptr<Transformer> LoadOnCpu(const std::string& path, uint32_t threads) {
  ModelConfig config = Require(LoadModelConfig(path));
  Checkpoint checkpoint = Require(Checkpoint::Open(path));
  std::unique_ptr<Backend> backend = Require(MakeCpuBackend({.num_threads = threads}));
  return Require(Transformer::Create(std::move(config), std::move(checkpoint), std::move(backend)));
}

ModelSequences::ModelSequences(Transformer& model, uint32_t count, uint32_t most_tokens)
    : model_(model),
      blocks_((most_tokens + kTokensPerBlock - 1) / kTokensPerBlock),
      slot_bytes_(uint64_t{2} * model.config().layers[0].num_kv_heads * model.config().head_dim *
                  sizeof(uint16_t) * kTokensPerBlock),
      memory_(slot_bytes_ * count * blocks_ * model.config().layers.size()) {
  const ModelConfig& config = model.config();
  const uint64_t token_bytes = uint64_t{config.head_dim} * sizeof(uint16_t);
  std::byte* next = memory_.bytes().data();
  for (const LayerConfig& layer : config.layers) {
    PAGODA_CHECK(layer.num_kv_heads == config.layers[0].num_kv_heads, "all layers are alike");
    layers_.push_back({.keys = next,
                       .values = next + slot_bytes_ / 2,
                       .type = kernels::ElementType::kBFloat16,
                       .num_slots = count * blocks_,
                       .num_kv_heads = layer.num_kv_heads,
                       .tokens_per_block = kTokensPerBlock,
                       .head_dim = config.head_dim,
                       .slot_stride_bytes = slot_bytes_,
                       .head_stride_bytes = token_bytes * kTokensPerBlock,
                       .token_stride_bytes = token_bytes});
    next += slot_bytes_ * count * blocks_;
  }
  tables_.resize(count);
  for (uint32_t s = 0; s < count; ++s) {
    for (uint32_t b = 0; b < blocks_; ++b) tables_[s].push_back(SlotIndex(s * blocks_ + b));
  }
  std::mt19937 random(1);
  for (uint32_t i = 0; i < most_tokens; ++i) tokens_.push_back(random() % config.vocab_size);
}

void ModelSequences::Step(uint32_t batch, uint32_t first, uint32_t count, uint32_t num_logits) {
  std::vector<absl::Span<const SlotIndex>> tables(tables_.begin(), tables_.begin() + batch);
  std::vector<SequenceInput> inputs;
  for (uint32_t s = 0; s < batch; ++s) {
    inputs.push_back({.tokens = absl::MakeConstSpan(tokens_).subspan(first, count),
                      .first_position = first,
                      .tables = {&tables[s], 1},
                      .num_logits = num_logits});
  }
  MakeInput(inputs, model_.windows(), kTokensPerBlock, input_);
  PAGODA_CHECK(model_.Forward(input_, layers_).ok(), "a benchmark's step is right");
}

void ModelSequences::Prefill(uint32_t tokens) {
  for (uint32_t first = 0; first < tokens; first += kChunkTokens) {
    const uint32_t count = std::min(kChunkTokens, tokens - first);
    Step(1, first, count, first + count == tokens ? 1 : 0);
  }
}

}  // namespace pagoda::bench
