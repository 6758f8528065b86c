#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/schedule/ngram_proposer.h"
#include "engine/schedule/stopwatch.h"
#include "pools/error.h"

namespace pagoda {
namespace {

// How many of those who wait may be admitted in one step.
constexpr size_t kMostProbes = 8;

}  // namespace

Scheduler::Scheduler(const Options& options, CacheClient* client, std::vector<WindowSize> windows,
                     Forward forward, kernels::cpu::ThreadPool* sampling_threads)
    : options_(options),
      client_(client),
      windows_{std::move(windows), client->info().tokens_per_block},
      forward_(std::move(forward)),
      sampler_(sampling_threads),
      waiting_(&shares_) {}

Scheduler::~Scheduler() {
  Shutdown(absl::CancelledError("the engine ends"));
  TellEnds();
}

absl::Status Scheduler::CheckRoom(const CacheInfo& cache, const GenerateRequest& request) {
  const TokensPerBlock tokens_per_block(cache.tokens_per_block);
  // The last token that is generated gets no KV.
  const uint64_t total = request.prompt.size() + uint64_t{request.max_new_tokens} - 1;
  for (const CacheInfo::Window& window : cache.windows) {
    uint64_t blocks = tokens_per_block.BlocksFor(total);
    if (window.window != kFullAttention) {
      // A window's tokens, and those of a step, begin and end anywhere in a block.
      blocks = std::min(blocks, uint64_t{tokens_per_block.BlocksFor(window.window.value())} + 2);
    }
    if (blocks <= window.primary_blocks) continue;
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat("the prompt's ", request.prompt.size(), " tokens and ", request.max_new_tokens,
                     " new ones take ", blocks, " blocks of window ", WindowName(window.window),
                     "; the cache has ", window.primary_blocks));
  }
  return absl::OkStatus();
}

void Scheduler::Add(GenerateRequest request, TokenCallback on_token, EndCallback on_end,
                    absl::Time arrival) {
  auto active = std::make_shared<ActiveRequest>();
  active->request = std::move(request);
  active->on_token = std::move(on_token);
  active->on_end = std::move(on_end);
  active->arrival = arrival;
  active->number = ++requests_;
  active->open_samples = 1;
  const GenerateRequest& asked = active->request;
  active->report.prompt_tokens = static_cast<uint32_t>(asked.prompt.size());
  active->report.finish_reasons.resize(asked.num_samples, FinishReason::kLength);
  shares_.Enter(asked.tenant);
  ++stats_.waiting_requests;
  waiting_.Add(std::make_unique<Sample>(active, 0, windows_, asked.prompt));
}

Scheduler::Progress Scheduler::Step() {
  const Stopwatch watch(stats_.step_time);
  const Progress progress = RunStep();
  stats_.running_sequences = running_.size();
  return progress;
}

Scheduler::Progress Scheduler::RunStep() {
  EndCancelled();
  StepBatch batch;
  if (running_.empty() && closing_.empty() && probes_.empty() && !waiting_.empty()) {
    // Who comes when nothing runs begins with this step.
    AddProbes(batch);
    if (absl::Status status = RunBatch(batch); !status.ok()) {
      FailAll(status);
      return Progress::kMade;
    }
  }
  for (const SequenceId leftover : leftovers_) {
    batch.Add(FreeSequence{leftover}, [](absl::StatusOr<OperationResult>) {});
  }
  AddForks(batch);
  AddClosings(batch);
  const uint32_t budget = ShareBudget();
  AddAdvances(batch);
  Admit(budget, batch);
  AddProbes(batch);
  if (absl::Status status = RunBatch(batch); !status.ok()) {
    FailAll(status);
    return Progress::kMade;
  }
  leftovers_.clear();
  FinishClosing();
  HeedLosses();
  HeedRefusals();
  return Compute();
}

// --- Before the batch ---

// Asks once a request, whichever of its samples are left.
void Scheduler::EndCancelled() {
  ++steps_;
  std::vector<std::shared_ptr<ActiveRequest>> cancelled;
  const auto look = [&](const Sample& sample) {
    ActiveRequest& request = *sample.request;
    if (request.asked_in_step == steps_ || request.ending || !request.request.cancelled) return;
    request.asked_in_step = steps_;
    if (request.request.cancelled()) cancelled.push_back(sample.request);
  };
  for (const auto& sample : running_) look(*sample);
  for (const auto& sample : waiting_.samples()) look(*sample);
  for (const auto& request : cancelled) {
    EndRequest(request, absl::CancelledError("the caller cancelled the request"));
  }
}

void Scheduler::AddForks(StepBatch& batch) {
  SampleList unborn;
  for (std::unique_ptr<Sample>& sample : running_) {
    if (sample->fork_of == nullptr) continue;
    Sample* const origin = std::exchange(sample->fork_of, nullptr);
    if (origin == nullptr || !origin->run.is_open()) {
      unborn.push_back(std::move(sample));
      continue;
    }
    origin->run.Publish(batch);
    sample->run.Fork(SequenceId(++sequences_), origin->run, batch);
  }
  std::erase(running_, nullptr);
  for (std::unique_ptr<Sample>& sample : unborn) waiting_.Add(std::move(sample));
}

void Scheduler::AddClosings(StepBatch& batch) {
  for (Closing& closing : closing_) {
    SequenceRun& run = closing.sample->run;
    if (!run.is_open()) continue;
    const uint32_t computed = run.computed();
    run.Close(batch);
    if (!closing.returns || options_.preemption != Preemption::kOffload || computed == 0) continue;
    if (!HasSecondaryTier()) continue;
    OffloadPrefix offload{.name_space = closing.sample->request->request.name_space,
                          .tokens = {run.tokens().begin(), run.tokens().begin() + computed}};
    batch.Add(std::move(offload), [](absl::StatusOr<OperationResult>) {});
  }
}

// One token, and drafts, for each sequence that generates; then the rest of prompts, the first in
// rank first. Returns what is left.
uint32_t Scheduler::ShareBudget() {
  std::sort(running_.begin(), running_.end(),
            [](const auto& a, const auto& b) { return Outranks(*a, *b); });
  uint32_t budget = options_.max_step_tokens;
  for (const std::unique_ptr<Sample>& sample : running_) {
    sample->num_tokens = 0;
    sample->drafts.clear();
    if (sample->run.uncomputed() != 1 || budget == 0) continue;
    sample->num_tokens = 1;
    --budget;
  }
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (sample->num_tokens == 1) {
      const uint32_t most = std::min({sample->most_drafts(), sample->tokens_left() - 1, budget});
      if (most > 0) sample->drafts = ProposeByNgram(sample->run.tokens(), most);
      budget -= static_cast<uint32_t>(sample->drafts.size());
    } else {
      sample->num_tokens = std::min(sample->run.uncomputed(), budget);
      budget -= sample->num_tokens;
    }
  }
  return budget;
}

void Scheduler::AddAdvances(StepBatch& batch) {
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (sample->num_tokens == 0) continue;
    sample->run.Advance(sample->num_tokens, static_cast<uint32_t>(sample->drafts.size()), batch);
  }
}

bool Scheduler::HasSecondaryTier() const {
  const auto& windows = client_->info().windows;
  return std::any_of(windows.begin(), windows.end(),
                     [](const auto& window) { return window.secondary_blocks > 0; });
}

// How many tokens of the prompt's rest have room now: 0, or all that `budget` lets through, or
// fewer where a sliding window's pool is small. `taken` is what others of this step take, by window
// of the answer.
uint32_t Scheduler::RoomFor(const Probe& probe, uint32_t rest, uint32_t budget,
                            std::vector<uint64_t>& taken) const {
  const TokensPerBlock tokens_per_block(windows_.tokens_per_block);
  taken.resize(probe.answer.windows.size());
  uint32_t tokens = std::min(rest, budget);
  std::vector<uint64_t> needs;
  for (size_t w = 0; w < taken.size(); ++w) {
    const WindowCapacity& capacity = probe.answer.windows[w];
    // Each that runs will want its next block soon.
    const uint64_t held = taken[w] + running_.size();
    if (held >= capacity.available_blocks) return 0;
    const uint64_t available = capacity.available_blocks - held;
    uint64_t needed = capacity.blocks_now;
    if (capacity.window != kFullAttention && needed > available) {
      // It goes in piece by piece, and the window lets go of what it has passed. A window's tokens
      // begin anywhere in a block, and so do those of a chunk.
      const uint64_t window = tokens_per_block.BlocksFor(capacity.window.value()) + 1;
      if (window >= available) return 0;
      const uint64_t chunk = (available - window) * windows_.tokens_per_block;
      tokens = static_cast<uint32_t>(std::min<uint64_t>(tokens, chunk));
      needed = available;
    }
    if (needed > available) return 0;
    needs.push_back(needed);
  }
  for (size_t w = 0; w < taken.size(); ++w) taken[w] += needs[w];
  return tokens;
}

void Scheduler::Admit(uint32_t budget, StepBatch& batch) {
  std::vector<uint64_t> taken;
  blocked_ = false;
  for (const Probe& probe : std::exchange(probes_, {})) {
    if (budget == 0 || running_.size() >= options_.max_running_sequences) return;
    Sample* const lowest = LowestRunning(nullptr);
    const auto total = static_cast<uint32_t>(probe.sample->run.tokens().size());
    const uint32_t rest = total - std::min(probe.answer.matched_tokens, total - 1);
    const uint32_t tokens = RoomFor(probe, rest, budget, taken);
    if (tokens == 0) {
      // The room of those who are closing now shows in the next answers.
      blocked_ = closing_.empty();
      if (lowest != nullptr && closing_.empty() &&
          lowest->request->request.priority < probe.sample->request->request.priority) {
        Preempt(lowest);
      }
      return;
    }
    std::unique_ptr<Sample> sample = waiting_.Remove(probe.sample);
    if (sample == nullptr) continue;  // Cancelled since.
    sample->drafts.clear();
    sample->num_tokens = tokens;
    budget -= sample->num_tokens;
    if (!sample->request->admitted) shares_.Charge(sample->request->request.tenant, rest);
    sample->opening = true;
    sample->run.Open(SequenceId(++sequences_), total - rest + sample->num_tokens, batch);
    blocked_since_ = absl::InfiniteFuture();
    running_.push_back(std::move(sample));
  }
}

void Scheduler::AddProbes(StepBatch& batch) {
  if (running_.size() >= options_.max_running_sequences) return;
  // Where the head does not fit, nobody passes it.
  const size_t count = std::min<size_t>(blocked_ ? 1 : kMostProbes,
                                        options_.max_running_sequences - running_.size());
  for (const Sample* sample : waiting_.Head(count)) {
    QueryCapacity query{.name_space = sample->request->request.name_space,
                        .tokens = sample->run.tokens(),
                        .max_new_tokens = sample->tokens_left()};
    batch.Add(std::move(query), [this, sample](absl::StatusOr<OperationResult> result) {
      if (sample->request->ending) return;
      if (result.ok()) {
        probes_.push_back({sample, std::get<CapacityAnswer>(*std::move(result))});
      } else {
        EndRequest(sample->request, result.status());
      }
    });
  }
}

// --- The batch ---

absl::Status Scheduler::RunBatch(StepBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  const Stopwatch watch(stats_.cache_time);
  absl::StatusOr<StepBatch::Outcome> outcome = batch.Run(*client_);
  if (!outcome.ok()) return outcome.status();
  completed_ = outcome->completed;
  shortened_ = std::move(outcome->shortened);
  return absl::OkStatus();
}

void Scheduler::HeedLosses() {
  for (const ShortenedSequence& shortened : shortened_) {
    const auto it = std::find_if(running_.begin(), running_.end(), [&](const auto& sample) {
      return sample->run.is_open() && sample->run.id() == shortened.sequence;
    });
    // What a sliding window has passed is computed again from the beginning.
    if (it == running_.end()) continue;
    Sample& sample = **it;
    if (!sample.run.Shorten(shortened)) Retire(&sample, /*returns=*/true);
    if (sample.generated > 0) continue;
    // It was not reused after all.
    GenerateReport& report = sample.request->report;
    const uint32_t reused = std::min(report.reused_tokens, sample.run.computed());
    stats_.reused_tokens -= report.reused_tokens - reused;
    report.reused_tokens = reused;
    const uint32_t secondary = std::min(report.reused_secondary_tokens, reused);
    stats_.reused_secondary_tokens -= report.reused_secondary_tokens - secondary;
    report.reused_secondary_tokens = secondary;
  }
  shortened_.clear();
}

void Scheduler::HeedRefusals() {
  bool short_of_room = false;
  std::vector<Sample*> refused;
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (!sample->run.status().ok()) refused.push_back(sample.get());
  }
  for (Sample* sample : refused) {
    const absl::Status status = sample->run.status();
    sample->num_tokens = 0;
    const Reason reason = ReasonOf(status);
    const bool no_room =
        reason == Reason::kBlocksExhausted || reason == Reason::kTenantQuotaExceeded;
    if (!sample->run.is_open() && (no_room || reason == Reason::kKvLost)) {
      Retire(sample, true);
    } else if (reason == Reason::kKvLost) {
      continue;  // Its next commit tells that it knows.
    } else if (reason == Reason::kTenantQuotaExceeded) {
      // Only what the tenant itself gives back helps.
      Preempt(LowestRunning(&sample->request->request.tenant));
    } else if (no_room) {
      short_of_room = true;
    } else {
      EndRequest(sample->request, status);
    }
  }
  if (short_of_room && closing_.empty()) Preempt(LowestRunning(nullptr));
}

}  // namespace pagoda
