#include "engine/sampling/batch_sampler.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/error.h"

namespace pagoda {

BatchSampler::BatchSampler(kernels::cpu::ThreadPool* threads)
    : threads_(threads), samplers_(threads == nullptr ? 1 : threads->num_threads()) {}

void BatchSampler::Run(absl::Span<SamplingTask> tasks) {
  if (threads_ == nullptr || tasks.size() < 2) {
    for (SamplingTask& task : tasks) Choose(samplers_.front(), task);
    return;
  }
  // Tasks differ in cost, so each worker takes the next one.
  std::atomic<size_t> next = 0;
  threads_->Run([&](uint32_t worker) {
    for (size_t i = next++; i < tasks.size(); i = next++) Choose(samplers_[worker], tasks[i]);
  });
}

// Twice the width is enough unless stop tokens are among the most likely ones.
void BatchSampler::RankCandidates(Sampler& sampler, SamplingTask& task) {
  const auto ends = [&](TokenId token) {
    return std::binary_search(task.stop_tokens.begin(), task.stop_tokens.end(), token);
  };
  const size_t vocab_size = task.logits.size();
  for (size_t count = size_t{2} * task.beam_width;; count *= 2) {
    const auto ranked = sampler.MostLikely(task.logits, count);
    task.logits_are_numbers = ranked.has_value();
    if (!task.logits_are_numbers) return;
    task.candidates.clear();
    uint32_t that_go_on = 0;
    for (const TokenLogprob& row : *ranked) {
      task.candidates.push_back({row.token, row.logprob, ends(row.token)});
      that_go_on += task.candidates.back().ends ? 0 : 1;
    }
    if (that_go_on >= task.beam_width || count >= vocab_size) return;
  }
}

void BatchSampler::Choose(Sampler& sampler, SamplingTask& task) {
  if (task.beam_width != 0) return RankCandidates(sampler, task);
  task.chosen.clear();
  const size_t vocab_size = task.logits.size() / (1 + task.draft_tokens.size());
  for (size_t i = 0; i <= task.draft_tokens.size(); ++i) {
    const absl::Span<const float> row = task.logits.subspan(i * vocab_size, vocab_size);
    const TokenMask* allowed = nullptr;
    if (task.matcher != nullptr) {
      const absl::StatusOr<const TokenMask*> mask = task.matcher->Mask();
      task.status = mask.status();
      if (!mask.ok()) return;
      allowed = *mask;
      if (!AllowsAnyBelow(**mask, vocab_size)) {
        // The tokenizer can have more tokens than the model.
        task.status = InvalidArgument("grammar: no token of the model can continue the text");
        return;
      }
    }
    std::optional<TokenId> token;
    if (!task.is_drawn(i)) {
      token = sampler.Choose(task.sampling, row, task.tokens, task.draft_tokens.first(i), allowed);
    } else if (task.drawn[i] != kNoNumber) {
      token = task.drawn[i];
    }
    task.logits_are_numbers = token.has_value();
    if (!task.logits_are_numbers) return;
    ChosenToken chosen{.token = *token};
    if (task.sampling.top_logprobs.has_value()) {
      const auto [logprob, top] = sampler.Logprobs(row, chosen.token, *task.sampling.top_logprobs);
      chosen.logprob = logprob;
      chosen.top_logprobs = {top.begin(), top.end()};
    }
    if (task.matcher != nullptr) {
      task.status = task.matcher->Accept(chosen.token);
      if (!task.status.ok()) return;
      chosen.ends = task.matcher->has_ended();
    }
    task.chosen.push_back(std::move(chosen));
    if (task.chosen.back().ends) return;
    if (i == task.draft_tokens.size() || task.chosen.back().token != task.draft_tokens[i]) return;
  }
}

}  // namespace pagoda
