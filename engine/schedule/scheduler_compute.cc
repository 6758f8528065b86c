// The scheduler's pass through the model, and the use of its logits.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/schedule/scheduler.h"

namespace pagoda {
namespace {

// The cost of a generated token for its tenant; a prompt token costs 1. A generated token keeps its
// sequence's blocks for a whole step.
constexpr uint64_t kGeneratedCost = 2;

constexpr char kNoNumbers[] = "one of the model's logits is NaN";

bool IsStop(const GenerateRequest& request, const GeneratedToken& generated) {
  const auto& stops = request.stop_tokens;  // In order: see Scheduler::Add.
  return std::binary_search(stops.begin(), stops.end(), generated.token) ||
         (request.ends_sample && request.ends_sample(generated));
}

// How the model's backend can choose the sample's token behind `ahead` of its draft tokens.
TokenDraw DrawOf(const Sample& sample, uint32_t ahead) {
  const GenerateRequest& request = sample.request->request;
  const SamplingParams& sampling = sample.sampling;
  const bool has_forks = request.num_samples > 1 && sample.index == 0 && sample.generated == 0;
  if (sample.is_beam() || sample.matcher != nullptr || has_forks ||
      sampling.top_logprobs.has_value() || sampling.repetition_penalty != 1.0f ||
      sampling.top_k > kMostRankedDraw) {
    return {.kind = TokenDraw::Kind::kLogits};
  }
  return {.kind = TokenDraw::Kind::kToken,
          .temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .uniform = UniformDraw(sampling.seed, sample.run.tokens().size() + ahead)};
}

// Fits the draft tokens to the reserved tokens behind those that are computed, and asks for logits
// behind the last of them and behind each draft token.
void SetLogits(Sample& sample) {
  const bool whole = sample.num_tokens == sample.run.uncomputed();
  const uint32_t reserved = whole ? sample.run.reserved_left() - sample.num_tokens : 0;
  if (sample.draft_tokens.size() > reserved) sample.draft_tokens.resize(reserved);
  sample.num_logits =
      whole && sample.wants_logits() ? 1 + static_cast<uint32_t>(sample.draft_tokens.size()) : 0;
}

void SetInput(Sample& sample) {
  const SequenceRun& run = sample.run;
  const auto next = run.tokens().begin() + run.computed();
  sample.step_tokens.assign(next, next + sample.num_tokens);
  sample.step_tokens.insert(sample.step_tokens.end(), sample.draft_tokens.begin(),
                            sample.draft_tokens.end());
  sample.tables.assign(run.tables().begin(), run.tables().end());
}

}  // namespace

struct Scheduler::Pass {
  void Add(Sample& sample);

  std::vector<Sample*> samples;
  std::vector<SequenceInput> sequences;  // The samples' inputs, in their order.
  uint32_t rows = 0;                     // The rows of logits.
  uint64_t prompt_tokens = 0;
};

void Scheduler::Pass::Add(Sample& sample) {
  SetLogits(sample);
  SetInput(sample);
  const SequenceRun& run = sample.run;
  sequences.push_back({.tokens = sample.step_tokens,
                       .first_position = run.computed(),
                       .tables = sample.tables,
                       .num_logits = sample.num_logits,
                       .adapter = sample.request->request.adapter_index,
                       .rotary_range = sample.request->request.rotary_range});
  sample.first_logits = std::exchange(rows, rows + sample.num_logits);
  if (sample.num_tokens > 1) prompt_tokens += sample.num_tokens;
  samples.push_back(&sample);
}

Scheduler::Progress Scheduler::Compute() {
  Pass pass;
  const std::set<const ActiveRequest*> copying = running_.SearchesThatCopy(completed_);
  for (const std::unique_ptr<Sample>& sample : running_) {
    SequenceRun& run = sample->run;
    if (!run.is_open()) continue;
    if (std::exchange(sample->opening, false)) {
      // A search has been refused nothing when all its beams have gone on.
      if (!sample->is_beam()) sample->request->refused_since.reset();
      NoteAdmission(*sample);
    }
    // A match can differ from the prediction, and a loss adds tokens to compute.
    sample->num_tokens = std::min({sample->num_tokens, run.uncomputed(), run.reserved_left()});
    if (sample->num_tokens == 0 || run.ready() > completed_) continue;
    if (copying.contains(sample->request.get())) continue;
    pass.Add(*sample);
  }
  if (pass.samples.empty()) return WaitForCopies();

  const absl::StatusOr<ModelOutput> output = RunModel(pass);
  if (!output.ok()) {
    EndAll(output.status());
    return Progress::kMade;
  }
  std::vector<SamplingTask> tasks = ChooseTokens(pass, *output);
  // A sample that ends meanwhile moves from running_ to closing_, and is still alive there.
  auto task = tasks.begin();
  for (Sample* sample : pass.samples) {
    if (sample->num_logits == 0) {
      sample->run.Computed(sample->num_tokens);
    } else {
      TakeChoice(*sample, *task++);
    }
  }
  std::set<ActiveRequest*> searches;
  for (const Sample* sample : pass.samples) {
    if (sample->is_beam() && searches.insert(sample->request.get()).second) {
      AdvanceBeams(sample->request);
    }
  }
  return Progress::kMade;
}

absl::StatusOr<ModelOutput> Scheduler::RunModel(const Pass& pass) {
  MakeInput(pass.sequences, windows_.sizes, windows_.tokens_per_block, input_);
  for (const Sample* sample : pass.samples) {
    for (uint32_t i = 0; i < sample->num_logits; ++i) input_.draws.push_back(DrawOf(*sample, i));
  }
  const absl::Duration model_time_before = stats_.model_time;
  absl::StatusOr<ModelOutput> output = ModelOutput();
  {
    const Stopwatch watch(stats_.model_time);
    output = forward_(input_);
  }
  if (!output.ok()) return output;
  if (2 * pass.prompt_tokens >= input_.tokens.size()) {
    fetches_.Computed(input_.tokens.size(), stats_.model_time - model_time_before);
  }
  ++stats_.steps;
  stats_.computed_tokens += input_.tokens.size();
  return output;
}

// One task for each sample that has logits, in their order.
std::vector<SamplingTask> Scheduler::ChooseTokens(const Pass& pass, const ModelOutput& output) {
  const uint64_t vocab_size = pass.rows == 0 ? 0 : output.logits.size() / pass.rows;
  std::vector<SamplingTask> tasks;
  for (const Sample* sample : pass.samples) {
    if (sample->num_logits == 0) continue;
    const GenerateRequest& request = sample->request->request;
    const size_t count = 1 + sample->draft_tokens.size();
    tasks.push_back(
        {.sampling = sample->sampling,
         .logits = output.logits.subspan(sample->first_logits * vocab_size, count * vocab_size),
         .drawn = output.tokens.empty() ? output.tokens
                                        : output.tokens.subspan(sample->first_logits, count),
         .tokens = sample->run.tokens(),
         .draft_tokens = sample->draft_tokens,
         .beam_width = sample->is_beam() ? request.beam_width : 0,
         .stop_tokens = request.stop_tokens,
         .matcher = sample->matcher.get(),
         .chosen = {},
         .logits_are_numbers = true});
  }
  const Stopwatch watch(stats_.sampling_time);
  sampler_.Run(absl::MakeSpan(tasks));
  return tasks;
}

// Called when nothing can be computed now.
Scheduler::Progress Scheduler::WaitForCopies() {
  const Ticket first = running_.FirstCopy(completed_);
  if (first == Ticket() || !closing_.empty()) return WaitForCapacity();
  StepBatch batch;
  // The wait can end before the copy does.
  batch.Add(WaitForTicket{first}, [](absl::StatusOr<OperationResult>) {});
  absl::Status status = RunBatch(batch);
  HeedLosses();
  if (!status.ok()) FailAll(status);
  return Progress::kMade;
}

void Scheduler::NoteAdmission(Sample& sample) {
  ActiveRequest& request = *sample.request;
  if (std::exchange(request.admitted, true)) return;
  request.place = {};
  GenerateReport& report = request.report;
  report.queue_time = Since(request.arrival);
  report.reused_tokens = std::min(sample.run.matched(), sample.run.computed());
  report.reused_lower_tokens = std::min(sample.run.matched_lower(), report.reused_tokens);
  report.fetched_tokens = std::min(sample.fetched_tokens, report.reused_tokens);
  --stats_.waiting_requests;
  ++stats_.running_requests;
  stats_.prompt_tokens += report.prompt_tokens;
  stats_.reused_tokens += report.reused_tokens;
  stats_.reused_lower_tokens += report.reused_lower_tokens;
  stats_.fetched_tokens += report.fetched_tokens;
}

void Scheduler::TakeChoice(Sample& sample, SamplingTask& task) {
  if (!task.logits_are_numbers) {
    // Its KV could be NaN too, so the KV of this step does not stay in the cache.
    return EndRequest(sample.request, absl::InternalError(kNoNumbers));
  }
  sample.run.Computed(sample.num_tokens);
  if (sample.request->ending) return;
  if (!task.status.ok()) return EndRequest(sample.request, task.status);
  if (sample.is_beam()) {
    sample.request->beams->candidates[sample.beams.front()] = std::move(task.candidates);
  } else {
    TakeTokens(sample, task);
  }
}

void Scheduler::TakeTokens(Sample& sample, const SamplingTask& task) {
  const uint64_t vocab_size = task.logits.size() / (1 + sample.draft_tokens.size());
  const auto row = [&](size_t i) {
    return task.is_drawn(i) ? absl::Span<const float>()
                            : task.logits.subspan(i * vocab_size, vocab_size);
  };
  const bool first = sample.generated == 0 && sample.index == 0;
  size_t accepted = 0;
  for (size_t i = 0; i < task.chosen.size(); ++i) {
    Take(sample, task.chosen[i], row(i));
    if (i == sample.draft_tokens.size() || task.chosen[i].token != sample.draft_tokens[i]) break;
    // The draft token's KV is computed already.
    sample.run.Computed(1);
    ++accepted;
    if (sample.ended || sample.request->ending) break;
  }
  stats_.drafted_tokens += sample.draft_tokens.size();
  stats_.accepted_draft_tokens += accepted;
  sample.request->report.drafted_tokens += static_cast<uint32_t>(sample.draft_tokens.size());
  sample.request->report.accepted_draft_tokens += static_cast<uint32_t>(accepted);
  if (accepted < sample.draft_tokens.size()) sample.run.RefuseDraftTokens();
  if (first && !sample.request->ending) ForkSamples(sample, row(0));
}

void Scheduler::Take(Sample& sample, const ChosenToken& chosen, absl::Span<const float> row) {
  const std::shared_ptr<ActiveRequest> request = sample.request;
  const GeneratedToken generated{.sample = sample.index,
                                 .token = chosen.token,
                                 .logprob = chosen.logprob,
                                 .top_logprobs = chosen.top_logprobs,
                                 .logits = row};
  sample.run.Push(chosen.token);
  ++sample.generated;
  ++stats_.generated_tokens;
  shares_.Charge(request->request.tenant, kGeneratedCost);
  if (request->report.generated_tokens++ == 0) {
    request->report.time_to_first_token = Since(request->arrival);
  }
  if (!request->on_token(generated)) {
    EndRequest(request, absl::CancelledError("the caller stopped the generation"));
  } else if (const bool stop = IsStop(request->request, generated) || chosen.ends;
             stop || sample.tokens_left() == 0) {
    request->report.finish_reasons[sample.index] =
        stop ? FinishReason::kStopToken : FinishReason::kLength;
    Retire(&sample, Then::kEnd);
  }
}

void Scheduler::ForkSamples(Sample& first, absl::Span<const float> row) {
  const std::shared_ptr<ActiveRequest> request = first.request;
  std::vector<std::unique_ptr<Sample>> forks;
  std::vector<SamplingTask> tasks;
  for (uint32_t i = 1; i < request->request.num_samples; ++i) {
    forks.push_back(std::make_unique<Sample>(request, i, windows_, request->request.prompt));
    tasks.push_back({.sampling = forks.back()->sampling,
                     .logits = row,
                     .tokens = forks.back()->run.tokens(),
                     .draft_tokens = {},
                     .stop_tokens = {},
                     .matcher = forks.back()->matcher.get(),
                     .chosen = {},
                     .logits_are_numbers = true});
  }
  {
    const Stopwatch watch(stats_.sampling_time);
    sampler_.Run(absl::MakeSpan(tasks));
  }
  for (size_t i = 0; i < forks.size() && !request->ending; ++i) {
    if (!tasks[i].logits_are_numbers) {
      return EndRequest(request, absl::InternalError(kNoNumbers));
    }
    if (!tasks[i].status.ok()) return EndRequest(request, tasks[i].status);
    Sample& fork = *forks[i];
    fork.fork_of = &first;
    first.has_forks = true;
    ++request->open_samples;
    running_.Add(std::move(forks[i]));
    Take(fork, tasks[i].chosen.front(), row);
    if (running_.Slots() <= options_.max_running_sequences) continue;
    const auto at = running_.Find(&fork);
    if (at == running_.end()) continue;  // That token was its last.
    // It matches the prompt when it is admitted.
    fork.fork_of = nullptr;
    waiting_.Add(running_.Remove(at));
  }
}

}  // namespace pagoda
