// What the scheduler has under way: requests, and the samples that answer them.
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
#include "engine/generate.h"
#include "engine/schedule/sequence_run.h"
#include "engine/schedule/stopwatch.h"
#include "engine/schedule/waiting_places.h"

namespace pagoda {

// Called once, on the engine's thread, when nothing of the request is in the cache's hands any
// more.
using EndCallback = std::function<void(absl::StatusOr<GenerateReport> report)>;

struct ActiveRequest {
  GenerateRequest request;
  TokenCallback on_token;
  EndCallback on_end;
  SteadyTime arrival;
  uint64_t number = 0;  // In the order of arrival.
  GenerateReport report;
  WaitingPlaces::Place place;  // Until it is admitted, or ends before that.
  bool admitted = false;       // One of its samples has been opened.
  bool ending = false;         // No more of its tokens are wanted.
  uint64_t asked_in_step = 0;  // Whether it is cancelled.
  // Since when others alone, not the engine, keep its tenant at its quota.
  std::optional<SteadyTime> at_quota_since;
  // Since when its sequences are refused because others than the engine have as many, or as many
  // bytes of them, as its tenant may have.
  std::optional<SteadyTime> refused_since;
  uint32_t open_samples = 0;  // Samples that are not done with.
  absl::Status status;        // How it ends.
};

// One answer to a request. Its sequence refers to the request, which all its samples keep.
struct Sample {
  Sample(std::shared_ptr<ActiveRequest> of, uint32_t number, const SequenceRun::Windows& windows,
         std::vector<TokenId> known)
      : request(std::move(of)),
        index(number),
        sampling(request->request.sampling),
        run(request->request, windows, std::move(known)) {
    sampling.seed += number;
  }

  const std::shared_ptr<ActiveRequest> request;
  const uint32_t index;
  SamplingParams sampling;
  SequenceRun run;
  uint32_t generated = 0;
  bool ended = false;
  // Not in the cache yet: to be forked from this sample's sequence, which then is still open.
  Sample* fork_of = nullptr;
  bool opening = false;  // Its sequence was opened with the batch at hand.
  bool refused = false;  // The cache refused its sequence, so its leaving gives nothing back.
  uint32_t fetched_tokens = 0;  // That came into memory from disk for it.

  // What it does in the step at hand.
  uint32_t num_tokens = 0;
  std::vector<TokenId> draft_tokens;
  std::vector<TokenId> step_tokens;                 // And the drafts behind them.
  std::vector<absl::Span<const SlotIndex>> tables;  // Of `run`.
  uint32_t first_logits = 0;  // Row of the step's logits, where its last token is computed.

  // None before the first token, where samples are forked behind the prompt.
  uint32_t most_draft_tokens() const {
    const GenerateRequest& asked = request->request;
    return generated == 0 && asked.num_samples > 1 ? 0 : asked.max_draft_tokens;
  }
  // Its request's number and its own: no other sample has them.
  std::pair<uint64_t, uint32_t> name() const { return {request->number, index}; }
  // Whose quota its blocks are in.
  const std::string& owner() const { return request->request.charged(); }
  uint32_t tokens_left() const { return request->request.max_new_tokens - generated; }
  // Whether `a` goes before `b`, and takes its room where there is not enough.
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
