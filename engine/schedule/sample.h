// The scheduler's requests, and the samples that answer them.
#ifndef PAGODA_ENGINE_SCHEDULE_SAMPLE_H_
#define PAGODA_ENGINE_SCHEDULE_SAMPLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stopwatch.h"
#include "engine/request/generate.h"
#include "engine/sampling/beam_search.h"
#include "engine/schedule/sequence_run.h"
#include "engine/schedule/waiting_places.h"

namespace pagoda {

// Called once, on the engine's thread, when the cache holds nothing of the request any more.
using EndCallback = std::function<void(absl::StatusOr<GenerateReport> report)>;

// A running beam search: scheduler_beams.cc.
struct BeamRun {
  BeamSearch search;
  // By beam, what the model said behind it; empty: nothing yet.
  std::vector<std::vector<BeamSearch::Candidate>> candidates;
  uint32_t next_index = 1;  // The index of its next sample.
};

struct ActiveRequest {
  GenerateRequest request;
  TokenCallback on_token;
  EndCallback on_end;
  SteadyTime arrival;
  uint64_t number = 0;  // Counts arrivals.
  GenerateReport report;
  WaitingPlaces::Place place;  // Held until the request is admitted or ends.
  bool is_prepared = true;     // If not, it is passed over.
  bool admitted = false;       // One of its samples has been opened.
  bool ending = false;         // Its further tokens are not used.
  uint64_t asked_in_step = 0;  // The last step that called `cancelled`.
  // The time since when its tenant has been at its quota, if only other clients than the engine
  // hold it.
  std::optional<SteadyTime> at_quota_since;
  // Since when its sequences have been refused because other clients of its tenant have all the
  // sequences, or all their bytes, that the tenant may have. For a beam search also: or because
  // other clients of the cache have its blocks.
  std::optional<SteadyTime> refused_since;
  std::unique_ptr<BeamRun> beams;  // Null if it is no beam search.
  uint32_t open_samples = 0;       // Samples that have not finished.
  absl::Status status;             // How it ends.

  // Whether the cache counts the lookup of the next sample that is opened.
  SequenceRun::Lookup lookup() const {
    return admitted ? SequenceRun::Lookup::kUncounted : SequenceRun::Lookup::kCounted;
  }
};

// One answer to a request. All samples of a request own it together; each sample's sequence refers
// to it. A beam search has a sample for each beam that differs from the others so far.
struct Sample {
  Sample(std::shared_ptr<ActiveRequest> of, uint32_t number, const SequenceRun::Windows& windows,
         std::vector<TokenId> known)
      : request(std::move(of)),
        index(number),
        sampling(request->request.sampling),
        run(request->request, windows, std::move(known)) {
    sampling.seed += number;
    const GenerateRequest& asked = request->request;
    if (asked.grammar != nullptr) matcher = asked.grammar->NewMatcher(asked.stop_tokens);
  }

  const std::shared_ptr<ActiveRequest> request;
  const uint32_t index;
  SamplingParams sampling;
  SequenceRun run;
  // Has accepted the generated tokens. Null if the request has no grammar.
  std::unique_ptr<GrammarMatcher> matcher;
  uint32_t generated = 0;
  bool ended = false;
  // If set, it is not in the cache yet: it will be forked from this sample's sequence, which is
  // still open then.
  Sample* fork_of = nullptr;
  bool has_forks = false;  // Such samples exist, so its sequence must stay open until then.
  // For a beam search: the beams that begin with its tokens, by their index in the search.
  std::vector<uint32_t> beams;
  // For a beam search that pauses: how many of its tokens are worth offloading.
  uint32_t kept_tokens = 0;
  bool opening = false;         // The current batch opens its sequence.
  bool refused = false;         // The cache refused its sequence, so closing it releases nothing.
  uint32_t fetched_tokens = 0;  // Fetched from disk into memory for it.

  // Its work in the current step.
  uint32_t num_tokens = 0;
  std::vector<TokenId> draft_tokens;
  std::vector<TokenId> step_tokens;                 // With the draft tokens behind them.
  std::vector<absl::Span<const SlotIndex>> tables;  // The block tables of `run`, by window.
  uint32_t first_logits = 0;                        // First row of its logits in the step's.
  uint32_t num_logits =
      0;  // 0 if it does not compute its last token, or its logits are not needed.

  bool is_beam() const { return request->beams != nullptr; }
  // Whether logits behind its last token are needed. Not if the tokens that its beams have next are
  // known.
  bool wants_logits() const {
    if (!is_beam()) return true;
    const size_t answer = run.tokens().size() - request->request.prompt.size();
    return request->beams->search.beams()[beams.front()].tokens.size() == answer;
  }
  // None before the first token if samples are forked behind the prompt.
  uint32_t most_draft_tokens() const {
    const GenerateRequest& asked = request->request;
    return generated == 0 && asked.num_samples > 1 ? 0 : asked.max_draft_tokens;
  }
  // Its request's number and its own; unique.
  std::pair<uint64_t, uint32_t> name() const { return {request->number, index}; }
  // The tenant whose quota counts its blocks.
  const std::string& owner() const { return request->request.charged(); }
  uint32_t tokens_left() const { return request->request.max_new_tokens - generated; }
  // Whether `a` is served before `b`, and can preempt it.
  friend bool Outranks(const Sample& a, const Sample& b) {
    const int32_t priority_a = a.request->request.priority;
    const int32_t priority_b = b.request->request.priority;
    if (priority_a != priority_b) return priority_a > priority_b;
    if (a.request->number != b.request->number) return a.request->number < b.request->number;
    return a.index < b.index;
  }
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SAMPLE_H_
