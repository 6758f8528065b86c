#include "engine/schedule/step_batch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pagoda {
namespace {

// The next blocks of a step that belong to one sequence, as tables. Removes them from `blocks`.
std::vector<BlockTable> TakeTables(const AppendedStep::Growth& growth, const CacheInfo& cache,
                                   absl::Span<const BlockHandle>& blocks) {
  std::vector<BlockTable> tables;
  for (const CacheInfo::Window& window : cache.windows) {
    const auto of_window = blocks.first(growth.blocks);
    tables.push_back({.window = window.window,
                      .first_block = growth.first_block,
                      .blocks = {of_window.begin(), of_window.end()}});
    blocks.remove_prefix(growth.blocks);
  }
  return tables;
}

// Whether a step's result fits this number of sequences. It can come from another process.
bool IsWhole(const AppendedStep& step, size_t num_sequences, const CacheInfo& cache) {
  uint64_t blocks = 0;
  for (const AppendedStep::Growth& growth : step.grown) {
    if (growth.index >= num_sequences) return false;
    blocks += uint64_t{growth.blocks} * cache.windows.size();
  }
  for (const AppendedStep::Failure& failure : step.failed) {
    if (failure.index >= num_sequences) return false;
  }
  return blocks == step.blocks.size();
}

// The step's result for each of its sequences.
std::vector<absl::StatusOr<StepBatch::Appended>> Spread(const AppendedStep& step,
                                                        size_t num_sequences,
                                                        const CacheInfo& cache) {
  std::vector<absl::StatusOr<StepBatch::Appended>> each(num_sequences, StepBatch::Appended());
  absl::Span<const BlockHandle> blocks = step.blocks;
  for (const AppendedStep::Growth& growth : step.grown) {
    each[growth.index] =
        StepBatch::Appended{.added = TakeTables(growth, cache, blocks), .ready = growth.ready};
  }
  for (const AppendedStep::Failure& failure : step.failed) each[failure.index] = failure.status;
  return each;
}

}  // namespace

void StepBatch::AddAppend(AppendTokens append, AppendTaker taker) {
  AppendStep* step =
      entries_.empty() ? nullptr : std::get_if<AppendStep>(&entries_.back().operation);
  if (step == nullptr || step->sequences.size() == kMaxStepSequences) {
    entries_.push_back({AppendStep{.tokens = {}}, std::vector<AppendTaker>()});
    step = &std::get<AppendStep>(entries_.back().operation);
  }
  step->sequences.push_back(append.sequence);
  step->token_counts.push_back(static_cast<uint32_t>(append.tokens.size()));
  step->computed_tokens.push_back(append.computed_tokens);
  step->known_losses.push_back(append.known_losses);
  step->tokens.insert(step->tokens.end(), append.tokens.begin(), append.tokens.end());
  std::get<std::vector<AppendTaker>>(entries_.back().takers).push_back(std::move(taker));
}

void StepBatch::Give(absl::StatusOr<OperationResult> result, const CacheInfo& cache,
                     const Takers& takers) {
  if (const auto* taker = std::get_if<Taker>(&takers)) return (*taker)(std::move(result));
  const auto& appends = std::get<std::vector<AppendTaker>>(takers);
  if (result.ok() && !IsWhole(std::get<AppendedStep>(*result), appends.size(), cache)) {
    result = absl::InternalError("the daemon's answer to a step does not match the step");
  }
  if (!result.ok()) {
    for (const AppendTaker& taker : appends) taker(result.status());
    return;
  }
  auto each = Spread(std::get<AppendedStep>(*result), appends.size(), cache);
  for (size_t i = 0; i < appends.size(); ++i) appends[i](std::move(each[i]));
}

absl::StatusOr<StepBatch::Outcome> StepBatch::Run(CacheClient& client) {
  std::vector<Operation> operations;
  std::vector<Takers> takers;
  for (Entry& entry : std::exchange(entries_, {})) {
    operations.push_back(std::move(entry.operation));
    takers.push_back(std::move(entry.takers));
  }
  Outcome outcome;
  for (size_t begin = 0; begin < operations.size(); begin += kMaxBatchOperations) {
    const auto part = absl::MakeConstSpan(operations).subspan(begin, kMaxBatchOperations);
    absl::StatusOr<BatchResult> batch = client.Execute(part);
    if (!batch.ok()) return batch.status();
    for (size_t i = 0; i < part.size(); ++i) {
      Give(std::move(batch->results[i]), client.info(), takers[begin + i]);
    }
    outcome = {.completed = batch->completed,
               .completed_fetch = batch->completed_fetch,
               .shortened = std::move(batch->shortened)};
  }
  return outcome;
}

}  // namespace pagoda
