#include "tests/engine/cuda/played_steps.h"

#include <algorithm>
#include <random>

namespace pagoda {
namespace {

struct Active {
  size_t sequence = 0;
  std::vector<TokenId> next;  // The tokens of its next step.
  TokenDraw draw;
};

// The draws of a sequence: the host chooses, the most likely token, or a random one.
TokenDraw DrawOfKind(uint32_t kind) {
  switch (kind % 4) {
    case 0:
      return {};
    case 1:
      return {.kind = TokenDraw::Kind::kToken};
    case 2:
      return {.kind = TokenDraw::Kind::kToken, .temperature = 0.9f, .top_k = 20, .top_p = 0.9f};
    default:
      return {.kind = TokenDraw::Kind::kToken, .temperature = 1.2f};
  }
}

}  // namespace

Played Play(Transformer& model, KvMemory* memory, const PlayOptions& options) {
  constexpr uint32_t kTokensPerBlock = 8;
  constexpr uint32_t kNumSlots = 512;
  std::mt19937 random(options.seed);
  ModelRunner runner(model, {.kv_type = options.kv_type,
                             .tokens_per_block = kTokensPerBlock,
                             .num_slots = kNumSlots,
                             .seed = options.seed,
                             .memory = memory});
  const uint64_t vocab = model.config().vocab_size;
  Played played;
  std::vector<Active> active;
  for (uint32_t step = 0; step < options.steps; ++step) {
    const bool joins =
        active.empty() || (active.size() < options.most_sequences && random() % 5 == 0);
    if (active.size() > 1 && random() % 8 == 0) {
      active.erase(active.begin() + static_cast<std::ptrdiff_t>(random() % active.size()));
    }
    if (joins) {
      // Steps with adapters and without them.
      const uint32_t adapter = random() % (options.num_adapters + 4);
      Active& added = active.emplace_back();
      added.sequence = runner.AddSequence(
          /*limit=*/random() % 2 == 0 ? 1 : 1'000'000,
          adapter >= options.num_adapters ? kNoAdapter : AdapterIndex(adapter));
      // Attention over the first context is cut, unless there are many others.
      added.next.resize(step == 0 ? 280 : 1 + random() % 14);
      for (TokenId& token : added.next) token = static_cast<TokenId>(random() % vocab);
      added.draw = DrawOfKind(static_cast<uint32_t>(random()));
    }
    std::vector<ModelRunner::Share> shares;
    std::vector<TokenDraw> draws;
    for (Active& one : active) {
      shares.push_back({.sequence = one.sequence, .tokens = one.next, .num_logits = 1});
      one.draw.uniform = static_cast<double>(random()) * 0x1p-32;
      draws.push_back(one.draw);
    }
    const ModelOutput output = runner.RunWithDraws(shares, draws);
    std::vector<TokenId>& tokens = played.tokens.emplace_back();
    std::vector<float>& logits = played.logits.emplace_back();
    for (size_t row = 0; row < active.size(); ++row) {
      if (output.has_logits(row)) {
        const auto scores = output.logits.subspan(row * vocab, vocab);
        logits.insert(logits.end(), scores.begin(), scores.end());
        tokens.push_back(
            static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
      } else {
        tokens.push_back(output.tokens[row]);
      }
      active[row].next = {tokens.back()};
    }
  }
  return played;
}

}  // namespace pagoda
