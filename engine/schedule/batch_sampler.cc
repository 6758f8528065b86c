#include "engine/schedule/batch_sampler.h"

#include <atomic>
#include <optional>
#include <utility>

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

void BatchSampler::Choose(Sampler& sampler, SamplingTask& task) {
  task.chosen.clear();
  const size_t vocab_size = task.logits.size() / (1 + task.draft_tokens.size());
  for (size_t i = 0; i <= task.draft_tokens.size(); ++i) {
    const absl::Span<const float> row = task.logits.subspan(i * vocab_size, vocab_size);
    const std::optional<TokenId> token =
        sampler.Choose(task.sampling, row, task.tokens, task.draft_tokens.first(i));
    task.logits_are_numbers = token.has_value();
    if (!task.logits_are_numbers) return;
    ChosenToken chosen{.token = *token};
    if (task.sampling.top_logprobs.has_value()) {
      const auto [logprob, top] = sampler.Logprobs(row, chosen.token, *task.sampling.top_logprobs);
      chosen.logprob = logprob;
      chosen.top_logprobs = {top.begin(), top.end()};
    }
    task.chosen.push_back(std::move(chosen));
    if (i == task.draft_tokens.size() || task.chosen.back().token != task.draft_tokens[i]) return;
  }
}

}  // namespace pagoda
