#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/schedule/ngram_proposer.h"

namespace pagoda {
namespace {

// Whether the refusal is for the number or the bytes of the tenant's sequences, which end by
// themselves.
bool IsOfSequences(Reason reason) {
  return reason == Reason::kTooManySequences || reason == Reason::kSequenceBytesExhausted;
}

}  // namespace

Scheduler::Scheduler(const Options& options, CacheClient* client, std::vector<WindowSize> windows,
                     Forward forward, kernels::cpu::ThreadPool* sampling_threads)
    : options_(options),
      client_(client),
      windows_{std::move(windows), client->info().tokens_per_block},
      forward_(std::move(forward)),
      sampler_(sampling_threads),
      waiting_(&shares_),
      fetches_(client->info()) {}

Scheduler::~Scheduler() {
  Shutdown(absl::CancelledError("the engine is shutting down"));
  ReportEnds();
}

void Scheduler::Add(std::shared_ptr<ActiveRequest> request) {
  GenerateRequest& asked = request->request;
  // Each chosen token is looked up in them on the engine's thread.
  std::vector<TokenId>& stops = asked.stop_tokens;
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  request->number = ++requests_;
  request->open_samples = 1;
  request->report.prompt_tokens = static_cast<uint32_t>(asked.prompt.size());
  request->report.finish_reasons.resize(asked.num_samples, FinishReason::kLength);
  if (asked.is_beam_search()) {
    request->beams = std::make_unique<BeamRun>(
        BeamRun{.search = BeamSearch({.width = asked.beam_width,
                                      .max_tokens = asked.max_new_tokens,
                                      .length_penalty = asked.length_penalty,
                                      .early_stopping = asked.early_stopping}),
                .candidates = std::vector<std::vector<BeamSearch::Candidate>>(1)});
  }
  ++stats_.waiting_requests;
  auto sample = std::make_unique<Sample>(request, 0, windows_, asked.prompt);
  if (sample->is_beam()) sample->beams = {0};
  waiting_.Add(std::move(sample));
  if (request->is_prepared) Prepared(request, 0);
}

void Scheduler::Prepared(const std::shared_ptr<ActiveRequest>& request,
                         const absl::StatusOr<uint32_t>& fetched_tokens) {
  if (request->ending) return;
  if (!fetched_tokens.ok()) return EndRequest(request, fetched_tokens.status());
  GenerateRequest& asked = request->request;
  asked.fetched_tokens = *fetched_tokens;
  request->is_prepared = true;
  shares_.Enter(asked.tenant);
  if (!quotas_.Knows(asked.charged())) {
    unknown_owners_.insert(asked.charged());
  } else if (absl::Status status = quotas_.Check(asked, windows_.tokens_per_block); !status.ok()) {
    EndRequest(request, status);
  }
}

Scheduler::Progress Scheduler::Step() {
  const Stopwatch watch(stats_.step_time);
  const Progress progress = RunStep();
  stats_.running_sequences = running_.size();
  stats_.fetches = fetches_.counts().fetches;
  stats_.late_fetches = fetches_.counts().late_fetches;
  stats_.fetches_not_worth = fetches_.counts().fetches_not_worth;
  return progress;
}

Scheduler::Progress Scheduler::RunStep() {
  EndCancelled();
  if (shares_.empty()) {  // No request is prepared.
    FinishClosing();
    return Progress::kNone;
  }
  resting_.Find(*client_, running_, waiting_);
  StepBatch batch;
  if (running_.empty() && closing_.empty() && probes_.empty() && !waiting_.empty()) {
    // A request that arrives while nothing runs starts with this step.
    AddProbes(batch);
    if (absl::Status status = RunBatch(batch); !status.ok()) {
      FailAll(status);
      return Progress::kMade;
    }
  }
  for (const SequenceId leftover : leftovers_) {
    batch.Add(FreeSequence{leftover}, [](absl::StatusOr<OperationResult>) {});
  }
  AddClosings(Which::kWithoutForks, batch);
  AddForks(batch);
  AddClosings(Which::kAll, batch);
  lacks_blocks_ = false;
  const uint32_t budget = ShareBudget();
  AddAdvances(batch);
  Admit(budget, batch);
  AddProbes(batch);
  if (batch.empty() && fetches_.any_fetching()) {
    // Every batch reports the finished fetches. This one does nothing else.
    batch.Add(WaitForTicket{.ticket = fetches_.completed(), .lane = Lane::kFetch},
              [](absl::StatusOr<OperationResult>) {});
  }
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

// Asks each request once, through any of its remaining samples.
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
  waiting_.ForEach(look);
  for (const auto& request : cancelled) {
    EndRequest(request, absl::CancelledError("the caller cancelled the request"));
  }
}

void Scheduler::AddForks(StepBatch& batch) {
  std::vector<const Sample*> unborn;
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (sample->fork_of == nullptr) continue;
    Sample* const origin = std::exchange(sample->fork_of, nullptr);
    origin->has_forks = false;
    if (!origin->run.is_open()) {
      if (sample->is_beam()) continue;  // It is opened with its tokens.
      unborn.push_back(sample.get());
      continue;
    }
    origin->run.Publish(batch);
    sample->run.Fork(SequenceId(++sequences_), origin->run, batch);
  }
  for (const Sample* sample : unborn) waiting_.Add(running_.Remove(running_.Find(sample)));
}

// Sequences are closed before others are forked, so that a search has no more than its width.
void Scheduler::AddClosings(Which which, StepBatch& batch) {
  for (Closing& closing : closing_) {
    SequenceRun& run = closing.sample->run;
    // If blocks are lacking, those of a tenant that rests are released at the cost of the wait.
    if (!run.is_open() || (resting_.Has(*closing.sample) && !lacks_blocks_)) continue;
    if (which == Which::kWithoutForks && closing.sample->has_forks) continue;
    const uint32_t kept =
        closing.then == Then::kReturn ? run.computed() : closing.sample->kept_tokens;
    run.Close(batch);
    if (options_.preemption != Preemption::kOffload || kept == 0) continue;
    if (!client_->info().has_lower_tiers()) continue;
    OffloadPrefix offload{.name_space = closing.sample->request->request.name_space,
                          .tokens = {run.tokens().begin(), run.tokens().begin() + kept},
                          .tenant = closing.sample->request->request.tenant};
    batch.Add(std::move(offload), [](absl::StatusOr<OperationResult>) {});
  }
}

// Gives one token to each sequence that generates. Then, by rank, gives draft tokens to these and
// prompt tokens to the others. Returns the rest of the budget.
uint32_t Scheduler::ShareBudget() {
  running_.SortByRank();
  uint32_t budget = options_.max_step_tokens;
  for (const std::unique_ptr<Sample>& sample : running_) {
    sample->num_tokens = 0;
    sample->draft_tokens.clear();
    if (sample->run.uncomputed() != 1 || budget == 0 || resting_.Has(*sample)) continue;
    sample->num_tokens = 1;
    --budget;
  }
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (sample->num_tokens == 1) {
      const uint32_t most =
          std::min({sample->most_draft_tokens(), sample->tokens_left() - 1, budget});
      if (most > 0) sample->draft_tokens = ProposeByNgram(sample->run.tokens(), most);
      budget -= static_cast<uint32_t>(sample->draft_tokens.size());
    } else if (!resting_.Has(*sample)) {
      sample->num_tokens = std::min(sample->run.uncomputed(), budget);
      budget -= sample->num_tokens;
    }
  }
  return budget;
}

void Scheduler::AddAdvances(StepBatch& batch) {
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (sample->num_tokens == 0) continue;
    if (!sample->run.is_open()) {
      // A beam that could not be forked. It matches the cached tokens that it shares.
      sample->run.Open(SequenceId(++sequences_), sample->num_tokens, sample->request->lookup(),
                       batch);
      continue;
    }
    sample->run.Advance(sample->num_tokens, static_cast<uint32_t>(sample->draft_tokens.size()),
                        batch);
  }
}

// --- The batch ---

absl::Status Scheduler::RunBatch(StepBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  const Stopwatch watch(stats_.cache_time);
  absl::StatusOr<StepBatch::Outcome> outcome = batch.Run(*client_);
  if (!outcome.ok()) return outcome.status();
  completed_ = outcome->completed;
  fetches_.Heed(outcome->completed_fetch, SteadyNow());
  shortened_ = std::move(outcome->shortened);
  return absl::OkStatus();
}

void Scheduler::HeedLosses() {
  for (const ShortenedSequence& shortened : shortened_) {
    const auto it = std::find_if(running_.begin(), running_.end(), [&](const auto& sample) {
      return sample->run.is_open() && sample->run.id() == shortened.sequence;
    });
    // If a sliding window has passed the lost KV, the sequence can only be closed. The sample is
    // then computed again from the beginning.
    if (it == running_.end()) continue;
    Sample& sample = **it;
    if (!sample.run.Shorten(shortened)) Retire(&sample, Then::kReturn);
    // Its logits are computed again.
    if (sample.is_beam() && sample.run.uncomputed() > 0 && sample.wants_logits()) {
      sample.request->beams->candidates[sample.beams.front()].clear();
    }
    if (sample.generated > 0) continue;
    // The lost KV was not reused.
    GenerateReport& report = sample.request->report;
    const uint32_t reused = std::min(report.reused_tokens, sample.run.computed());
    stats_.reused_tokens -= report.reused_tokens - reused;
    report.reused_tokens = reused;
    const uint32_t lower = std::min(report.reused_lower_tokens, reused);
    stats_.reused_lower_tokens -= report.reused_lower_tokens - lower;
    report.reused_lower_tokens = lower;
    const uint32_t fetched = std::min(report.fetched_tokens, reused);
    stats_.fetched_tokens -= report.fetched_tokens - fetched;
    report.fetched_tokens = fetched;
  }
  shortened_.clear();
}

void Scheduler::HeedRefusals() {
  absl::Status short_of_blocks;
  std::map<std::string, absl::Status> at_quota;
  std::vector<Sample*> refused;
  for (const std::unique_ptr<Sample>& sample : running_) {
    if (!sample->run.status().ok()) refused.push_back(sample.get());
  }
  for (Sample* sample : refused) {
    if (sample->ended) continue;  // With its request, or it returns with its search.
    const absl::Status status = sample->run.status();
    sample->num_tokens = 0;
    const Reason reason = ReasonOf(status);
    const bool of_sequences = IsOfSequences(reason);
    const bool quota = reason == Reason::kTenantQuotaExceeded || of_sequences;
    const bool no_blocks = quota || reason == Reason::kBlocksExhausted;
    if (sample->is_beam() && !sample->run.is_open() && !sample->opening && no_blocks) {
      HeedRefusedBeam(sample, status);
    } else if (!sample->run.is_open() && of_sequences) {
      AwaitSequences(sample, status);
    } else if (!sample->run.is_open() && (no_blocks || reason == Reason::kKvLost)) {
      if (quota) quotas_.NoteFull(sample->owner());
      Retire(sample, Then::kReturn);
    } else if (reason == Reason::kKvLost) {
      continue;  // Its next commit acknowledges the loss.
    } else if (quota) {
      at_quota.emplace(sample->owner(), status);
    } else if (no_blocks) {
      short_of_blocks = status;
    } else {
      EndRequest(sample->request, status);
    }
  }
  // Only the tenant's own releases help against its quota, or against its limit on sequences'
  // bytes.
  for (const auto& [owner, status] : at_quota) {
    const auto is_its = [&owner = owner](const Sample& sample) { return sample.owner() == owner; };
    const bool gives_back =
        std::any_of(closing_.begin(), closing_.end(),
                    [&](const Closing& closing) { return is_its(*closing.sample); });
    Sample* const lowest = running_.LowestOf(is_its);
    if (gives_back || lowest == nullptr || EndBeamsAfterWait(*lowest, is_its, status)) continue;
    Preempt(lowest);
  }
  if (short_of_blocks.ok()) return;
  lacks_blocks_ = true;
  if (!closing_.empty()) return;
  Sample* const lowest = running_.Lowest();
  const auto any = [](const Sample&) { return true; };
  if (!EndBeamsAfterWait(*lowest, any, short_of_blocks)) Preempt(lowest);
}

}  // namespace pagoda
