// The scheduler's part of a beam search: which sequence serves which beams. A sequence goes on with
// the beams that begin with its tokens, and is forked where their tokens differ. So the beams hold
// each block of common tokens once. BeamSearch alone has the state of a search: after a pause, the
// sequences are made again from the tokens of its beams.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/schedule/scheduler.h"

namespace pagoda {
namespace {

// The cost of a beam's token for its tenant: as for any generated token.
constexpr uint64_t kBeamTokenCost = 2;

// The tokens of the answer that the sample's sequence has.
size_t AnswerTokens(const Sample& sample) {
  return sample.run.tokens().size() - sample.request->request.prompt.size();
}

const std::vector<TokenId>& TokensOf(const Sample& sample, uint32_t beam) {
  return sample.request->beams->search.beams()[beam].tokens;
}

// Gives the sequence the further tokens that all its beams have.
void PushCommonTokens(Sample& sample) {
  const std::vector<TokenId>& first = TokensOf(sample, sample.beams.front());
  for (size_t at = AnswerTokens(sample); at < first.size(); ++at) {
    const bool is_common =
        std::all_of(sample.beams.begin(), sample.beams.end(),
                    [&](uint32_t beam) { return TokensOf(sample, beam)[at] == first[at]; });
    if (!is_common) break;
    sample.run.Push(first[at]);
  }
  sample.generated = static_cast<uint32_t>(AnswerTokens(sample));
}

// The sample's beams by their next token, in the order of their first beams.
std::vector<std::vector<uint32_t>> BeamsByNextToken(const Sample& sample) {
  const size_t at = AnswerTokens(sample);
  std::vector<std::vector<uint32_t>> groups;
  for (const uint32_t beam : sample.beams) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& other) {
      return TokensOf(sample, other.front())[at] == TokensOf(sample, beam)[at];
    });
    if (group == groups.end()) {
      groups.push_back({beam});
    } else {
      group->push_back(beam);
    }
  }
  return groups;
}

}  // namespace

void Scheduler::AdvanceBeams(const std::shared_ptr<ActiveRequest>& request) {
  if (request->ending) return;
  const auto& candidates = request->beams->candidates;
  if (std::none_of(candidates.begin(), candidates.end(),
                   [](const auto& of_beam) { return of_beam.empty(); })) {
    TakeBeams(request);
  }
  if (request->beams->search.ended()) return FinishBeams(request);
  SplitBeams(request);
}

// Every beam has a sample of its own here. The samples of beams without children end.
void Scheduler::TakeBeams(const std::shared_ptr<ActiveRequest>& request) {
  BeamRun& beams = *request->beams;
  shares_.Charge(request->request.tenant, kBeamTokenCost * beams.candidates.size());
  request->refused_since.reset();
  const std::vector<uint32_t> parents = beams.search.Advance(beams.candidates);
  if (beams.search.ended()) return;
  beams.candidates.assign(parents.size(), {});
  for (Sample* sample : running_.Of(*request)) {
    PAGODA_CHECK(sample->beams.size() == 1, "beams that have candidates are apart");
    const uint32_t parent = std::exchange(sample->beams, {}).front();
    for (uint32_t child = 0; child < parents.size(); ++child) {
      if (parents[child] == parent) sample->beams.push_back(child);
    }
    if (sample->beams.empty()) Retire(sample, Then::kEnd);
  }
}

// The first beams of a sequence keep it. The next batch forks it for the others.
void Scheduler::SplitBeams(const std::shared_ptr<ActiveRequest>& request) {
  for (Sample* sample : running_.Of(*request)) {
    if (!sample->run.is_open() || sample->run.uncomputed() > 0 || sample->wants_logits()) continue;
    std::vector<std::vector<uint32_t>> groups = BeamsByNextToken(*sample);
    for (size_t i = 1; i < groups.size(); ++i) {
      auto fork = std::make_unique<Sample>(request, request->beams->next_index++, windows_,
                                           sample->run.tokens());
      fork->fork_of = sample;
      sample->has_forks = true;
      fork->beams = std::move(groups[i]);
      PushCommonTokens(*fork);
      ++request->open_samples;
      running_.Add(std::move(fork));
    }
    sample->beams = std::move(groups.front());
    PushCommonTokens(*sample);
  }
}

void Scheduler::FinishBeams(const std::shared_ptr<ActiveRequest>& request) {
  GenerateReport& report = request->report;
  report.time_to_first_token = Since(request->arrival);
  const auto& hypotheses = request->beams->search.hypotheses();
  const size_t count = std::min<size_t>(request->request.num_samples, hypotheses.size());
  for (uint32_t i = 0; i < count; ++i) {
    const BeamSearch::Hypothesis& hypothesis = hypotheses[i];
    report.beam_scores.push_back(static_cast<float>(hypothesis.score));
    report.finish_reasons[i] =
        hypothesis.ended_by_token ? FinishReason::kStopToken : FinishReason::kLength;
    for (const TokenId token : hypothesis.tokens) {
      ++report.generated_tokens;
      ++stats_.generated_tokens;
      if (request->on_token({.sample = i, .token = token, .top_logprobs = {}, .logits = {}})) {
        continue;
      }
      return EndRequest(request, absl::CancelledError("the caller stopped the generation"));
    }
  }
  for (Sample* sample : running_.Of(*request)) Retire(sample, Then::kEnd);
}

void Scheduler::PauseBeams(const std::shared_ptr<ActiveRequest>& request) {
  BeamRun& beams = *request->beams;
  auto first = std::make_unique<Sample>(request, 0, windows_, request->request.prompt);
  first->beams.resize(beams.search.beams().size());
  std::iota(first->beams.begin(), first->beams.end(), 0u);
  PushCommonTokens(*first);
  const auto common = static_cast<uint32_t>(first->run.tokens().size());
  bool kept = false;
  for (Sample* sample : running_.Of(*request)) {
    if (sample->run.is_open() && !std::exchange(kept, true)) {
      sample->kept_tokens = std::min(sample->run.computed(), common);
    }
    Retire(sample, Then::kEnd);
  }
  for (auto& of_beam : beams.candidates) of_beam.clear();
  ++request->open_samples;
  waiting_.Add(std::move(first));
}

void Scheduler::HeedRefusedBeam(Sample* sample, const absl::Status& status) {
  sample->run.ClearStatus();
  const Reason reason = ReasonOf(status);
  const auto competes = [&](const Sample& other) {
    return other.run.is_open() &&
           (reason == Reason::kBlocksExhausted || other.owner() == sample->owner());
  };
  const auto is_other = [&](const Sample& other) {
    return other.request != sample->request && competes(other);
  };
  // What closes now is free before the sequence is opened in the next step.
  if (std::any_of(closing_.begin(), closing_.end(),
                  [&](const Closing& closing) { return competes(*closing.sample); })) {
    return;
  }
  if (EndBeamsAfterWait(*sample, competes, status)) return;
  Sample* const lowest = running_.LowestOf(is_other);
  if (lowest != nullptr && Outranks(*sample, *lowest)) return Preempt(lowest);
  quotas_.NoteFull(sample->owner());
  Retire(sample, Then::kReturn);
}

bool Scheduler::EndBeamsAfterWait(const Sample& sample,
                                  absl::FunctionRef<bool(const Sample&)> competes,
                                  const absl::Status& status) {
  if (!sample.is_beam()) return false;
  std::optional<SteadyTime>& since = sample.request->refused_since;
  const bool is_alone = std::all_of(running_.begin(), running_.end(), [&](const auto& other) {
    return other->request == sample.request || !other->run.is_open() || !competes(*other);
  });
  if (!is_alone) {
    since.reset();
    return false;
  }
  if (!since.has_value()) since = SteadyNow();
  if (Since(*since) < options_.capacity_timeout) return false;
  EndRequest(sample.request, status);
  return true;
}

}  // namespace pagoda
