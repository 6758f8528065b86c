#include "tests/engine/model/model_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/base/require.h"

namespace pagoda {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in every element type.

class HostKvMemory final : public KvMemory {
 public:
  std::byte* Allocate(uint64_t bytes) override { return pieces_.emplace_back(bytes).data(); }
  void Fill(std::byte* target, std::byte value, uint64_t bytes) override {
    std::fill_n(target, bytes, value);
  }

 private:
  std::vector<std::vector<std::byte>> pieces_;
};

}  // namespace

std::unique_ptr<Transformer> LoadModel(const std::string& model_dir,
                                       std::unique_ptr<Backend> backend) {
  return Require(Transformer::Create(Require(LoadModelConfig(model_dir)),
                                     Require(Checkpoint::Open(model_dir)), std::move(backend)));
}

ModelRunner::ModelRunner(Transformer& model, const Options& options)
    : model_(model),
      options_(options),
      own_memory_(options.memory == nullptr ? std::make_unique<HostKvMemory>() : nullptr),
      memory_(options.memory == nullptr ? *own_memory_ : *options.memory) {
  const ModelConfig& config = model.config();
  for (const LayerConfig& layer : config.layers) {
    const uint64_t token = config.head_dim * kernels::ElementBytes(options.kv_type);
    const uint64_t head = token * options.tokens_per_block;
    const bool has_values = layer.kind == KvKind::kKeyAndValue;
    const uint64_t slot = head * layer.num_kv_heads * (has_values ? 2 : 1);
    std::byte* const bytes = memory_.Allocate(slot * options.num_slots);
    memory_.Fill(bytes, kPoison, slot * options.num_slots);
    layers_.push_back({.keys = bytes,
                       .values = has_values ? bytes + slot / 2 : bytes,
                       .type = options.kv_type,
                       .num_slots = options.num_slots,
                       .num_kv_heads = layer.num_kv_heads,
                       .tokens_per_block = options.tokens_per_block,
                       .head_dim = config.head_dim,
                       .value_dim = layer.value_dim,
                       .slot_stride_bytes = slot,
                       .head_stride_bytes = head,
                       .token_stride_bytes = token});
    if (kernels::IsFloat8(options.kv_type)) AddScales(layers_.back());
  }
  std::mt19937 random(options.seed);
  for (size_t window = 0; window < model.windows().size(); ++window) {
    std::vector<SlotIndex>& slots = free_.emplace_back();
    for (uint32_t slot = 0; slot < options.num_slots; ++slot) slots.push_back(SlotIndex(slot));
    std::shuffle(slots.begin(), slots.end(), random);
  }
}

void ModelRunner::AddScales(kernels::KvLayer& layer) {
  const bool has_values = layer.values != layer.keys;
  const uint64_t stride = uint64_t{has_values ? 2u : 1u} * layer.num_kv_heads;
  const uint64_t bytes = stride * layer.num_slots * sizeof(float);
  std::byte* const memory = memory_.Allocate(bytes);
  memory_.Fill(memory, kPoison, bytes);
  scales_.push_back(memory);
  const auto* keys = reinterpret_cast<const float*>(memory);
  layer.scales = {.keys = keys,
                  .values = keys + (has_values ? layer.num_kv_heads : 0),
                  .per_head = true,
                  .slot_stride = stride};
}

size_t ModelRunner::AddSequence(uint64_t limit, AdapterIndex adapter) {
  sequences_.push_back({.range = RotaryRangeOf(model_.config(), limit),
                        .adapter = adapter,
                        .tables = std::vector<std::vector<SlotIndex>>(free_.size())});
  return sequences_.size() - 1;
}

void ModelRunner::Prepare(absl::Span<const Share> shares) {
  std::vector<std::vector<absl::Span<const SlotIndex>>> tables;
  std::vector<SequenceInput> inputs;
  for (const Share& share : shares) {
    Sequence& sequence = sequences_[share.sequence];
    Reserve(sequence, static_cast<uint32_t>(share.tokens.size()));
    tables.emplace_back(sequence.tables.begin(), sequence.tables.end());
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    inputs.push_back({.tokens = shares[i].tokens,
                      .first_position = sequences_[shares[i].sequence].num_tokens,
                      .tables = tables[i],
                      .num_logits = shares[i].num_logits,
                      .adapter = sequences_[shares[i].sequence].adapter,
                      .rotary_range = sequences_[shares[i].sequence].range});
  }
  MakeInput(inputs, model_.windows(), options_.tokens_per_block, input_);
}

void ModelRunner::Finish(absl::Span<const Share> shares) {
  for (const Share& share : shares) {
    sequences_[share.sequence].num_tokens += static_cast<uint32_t>(share.tokens.size());
  }
}

ModelOutput ModelRunner::RunWithDraws(absl::Span<const Share> shares,
                                      std::vector<TokenDraw> draws) {
  Prepare(shares);
  input_.draws = std::move(draws);
  const ModelOutput output = Require(model_.ForwardWithDraws(input_, layers_));
  Finish(shares);
  return output;
}

std::vector<std::vector<float>> ModelRunner::Run(absl::Span<const Share> shares) {
  Prepare(shares);
  const absl::Span<const float> logits = Require(model_.Forward(input_, layers_));
  Finish(shares);
  std::vector<std::vector<float>> rows;
  const uint64_t vocab = model_.config().vocab_size;
  for (uint64_t first = 0; first < logits.size(); first += vocab) {
    rows.emplace_back(logits.begin() + first, logits.begin() + first + vocab);
  }
  return rows;
}

void ModelRunner::Reserve(Sequence& sequence, uint32_t new_tokens) {
  const uint32_t block_tokens = options_.tokens_per_block;
  const uint32_t blocks = (sequence.num_tokens + new_tokens + block_tokens - 1) / block_tokens;
  for (size_t w = 0; w < free_.size(); ++w) {
    std::vector<SlotIndex>& table = sequence.tables[w];
    // The next token sees the window's size less one tokens before itself.
    const uint32_t window = model_.windows()[w].value();
    for (uint32_t block = 0; block < table.size(); ++block) {
      const uint64_t end = uint64_t{block + 1} * block_tokens;
      if (table[block] == kNoSlot || end + window > uint64_t{sequence.num_tokens} + 1) continue;
      Poison(w, table[block]);
      free_[w].push_back(table[block]);
      table[block] = kNoSlot;
    }
    while (table.size() < blocks) {
      PAGODA_CHECK(!free_[w].empty(), "a test's memory is large enough");
      table.push_back(free_[w].back());
      free_[w].pop_back();
    }
  }
}

void ModelRunner::Poison(size_t window, SlotIndex slot) {
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    if (WindowOf(layer) != window) continue;
    const uint64_t bytes = layers_[layer].slot_stride_bytes;
    memory_.Fill(layers_[layer].keys + slot.value() * bytes, kPoison, bytes);
    if (scales_.empty()) continue;
    const uint64_t scale_bytes = layers_[layer].scales.slot_stride * sizeof(float);
    memory_.Fill(scales_[layer] + slot.value() * scale_bytes, kPoison, scale_bytes);
  }
}

size_t ModelRunner::WindowOf(uint32_t layer) const {
  const absl::Span<const WindowSize> windows = model_.windows();
  return std::find(windows.begin(), windows.end(), model_.config().layers[layer].window) -
         windows.begin();
}

std::string ModelRunner::TokenBytes(size_t sequence, uint32_t layer, uint32_t position) const {
  const uint32_t block_tokens = options_.tokens_per_block;
  const SlotIndex slot = sequences_[sequence].tables[WindowOf(layer)][position / block_tokens];
  std::string bytes;
  if (slot == kNoSlot) return bytes;
  const kernels::KvLayer& kv = layers_[layer];
  for (const std::byte* part : std::set<const std::byte*>{kv.keys, kv.values}) {
    for (uint32_t head = 0; head < kv.num_kv_heads; ++head) {
      const std::byte* token = part + kv.offset_bytes(slot.value(), head, position % block_tokens);
      bytes.append(reinterpret_cast<const char*>(token), kv.token_stride_bytes);
    }
  }
  return bytes;
}

uint64_t ModelRunner::WrittenBytes(uint32_t layer) const {
  const uint64_t element = kernels::ElementBytes(options_.kv_type);
  const std::byte* const bytes = layers_[layer].keys;
  uint64_t written = 0;
  for (uint64_t i = 0; i < layers_[layer].slot_stride_bytes * options_.num_slots; i += element) {
    const std::byte* const begin = bytes + i;
    const std::byte* const end = begin + element;
    if (std::any_of(begin, end, [](std::byte byte) { return byte != kPoison; })) written += element;
  }
  return written;
}

}  // namespace pagoda
