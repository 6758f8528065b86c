// Decides which tokens go through the model in which step, and asks the cache for their blocks.
#ifndef PAGODA_ENGINE_SCHEDULE_SCHEDULER_H_
#define PAGODA_ENGINE_SCHEDULE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/engine_options.h"
#include "base/stopwatch.h"
#include "engine/model/backend/model_input.h"
#include "engine/request/generate.h"
#include "engine/sampling/batch_sampler.h"
#include "engine/schedule/prefix_fetches.h"
#include "engine/schedule/resting_tenants.h"
#include "engine/schedule/running_samples.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/step_batch.h"
#include "engine/schedule/tenant_quotas.h"
#include "engine/schedule/tenant_shares.h"
#include "engine/schedule/waiting_places.h"
#include "engine/schedule/waiting_queue.h"
#include "kernels/execution/thread_pool.h"
#include "manager/api/cache_client.h"

namespace pagoda {

// The totals over all requests of an engine since its start.
struct SchedulerStats {
  uint64_t running_requests = 0;
  uint64_t waiting_requests = 0;  // Requests without an opened sample.
  uint64_t running_sequences = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t reused_lower_tokens = 0;
  uint64_t fetched_tokens = 0;     // Reused tokens that were fetched from disk for a request.
  uint64_t fetches = 0;            // Fetches from disk into memory, ordered for a request.
  uint64_t late_fetches = 0;       // Fetches that had not brought everything in time.
  uint64_t fetches_not_worth = 0;  // Requests without a fetch, because computing was predicted to
                                   // be faster.
  uint64_t computed_tokens = 0;    // Tokens that went through the model, prompt and generated.
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;
  uint64_t accepted_draft_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t steps = 0;  // Steps that ran the model.
  absl::Duration step_time;
  absl::Duration cache_time;     // Part of step_time: calls of the cache.
  absl::Duration model_time;     // Part of step_time: the model.
  absl::Duration sampling_time;  // Part of step_time: choosing tokens from logits.
};

// Continuous batching (Yu et al., "Orca", OSDI 2022) with chunked prefill (Agrawal et al.,
// "Sarathi-Serve", OSDI 2024). Each step takes one token of every sequence that generates, then
// tokens of prompts up to the budget. It asks the cache for all of them in one batch of operations.
// Thread-compatible: one thread runs the steps.
//
// Invariants
// 1. A sample is in exactly one of running_, closing_ and waiting_ until it has finished.
// 2. The earliest sample of the highest priority is preempted only if it runs alone and clients
// other than the engine hold the blocks that it needs. So requests make progress.
class Scheduler {
 public:
  struct Options {
    uint32_t max_step_tokens = 512;
    uint32_t max_running_sequences = 256;
    Preemption preemption = Preemption::kOffload;
    // If nothing else runs: how long a request waits for capacity that other clients of the cache
    // hold.
    absl::Duration capacity_timeout = absl::Seconds(10);
    // How often the scheduler polls for capacity that only other clients of the cache could have
    // released.
    absl::Duration probe_pause = absl::Milliseconds(4);
  };
  // Runs a step's tokens through the model. Returns logits [logit_rows][vocab_size], valid until
  // the next call.
  using Forward = std::function<absl::StatusOr<ModelOutput>(const ModelInput& input)>;

  // `client` outlives this, or is replaced by Attach. `windows` are the model's. Tokens are chosen
  // on `sampling_threads`, which outlive this; if null, on the caller's thread.
  Scheduler(const Options& options, CacheClient* client, std::vector<WindowSize> windows,
            Forward forward, kernels::cpu::ThreadPool* sampling_threads = nullptr);
  ~Scheduler();

  // INVALID_COUNT if the cache can never hold one of the request's sequences, or all beams of its
  // search.
  static absl::Status CheckCapacity(const CacheInfo& cache, const GenerateRequest& request);

  // Queues a request with its functions, arrival and place. A later ReportEnds calls `on_end`. A
  // request that is not prepared keeps its position, but waits for Prepared and gets no share.
  // REQUIRES: the request is valid.
  void Add(std::shared_ptr<ActiveRequest> request);
  // The preparation brought this many tokens of the prompt from other machines, or failed, which
  // ends the request. Does nothing if the request has ended.
  void Prepared(const std::shared_ptr<ActiveRequest>& request,
                const absl::StatusOr<uint32_t>& fetched_tokens);

  bool idle() const { return running_.empty() && closing_.empty() && waiting_.empty(); }

  enum class Progress {
    kMade,
    kNone,  // All requests wait: for their preparation, for fetches, or for others' capacity.
  };
  Progress Step();
  // Whether a request waits for a fetch. A step checks whether the fetch has ended.
  bool is_fetching() const { return fetches_.any_fetching(); }
  // Calls on_end of the ended requests. It is separate from Step, so that stats() already counts a
  // request when its on_end is called.
  void ReportEnds();

  // Ends all requests with the error, at once. ReportEnds calls their on_end.
  void Shutdown(const absl::Status& status);
  // Continues in another session, with a cache of the same model. The running requests start again
  // there, from the tokens that they have. A request that this cache can never hold ends with
  // INVALID_COUNT.
  void Attach(CacheClient* client);

  const SchedulerStats& stats() const { return stats_; }

 private:
  // What happens to a sample when its sequence is closed.
  enum class Then : uint8_t {
    kEnd,
    kReturn,  // To the waiting queue, to continue later.
  };
  struct Closing {
    std::unique_ptr<Sample> sample;
    Then then;
  };
  struct Probe {
    const Sample* sample;
    CapacityAnswer answer;
    std::optional<CachedPrefix> cached = std::nullopt;  // If asked for.
  };
  // The blocks that the samples admitted in this step take, by window, in the order of the answers.
  struct Taken {
    std::vector<uint64_t> blocks;
    std::map<std::string, std::vector<uint64_t>> by_owner;
  };
  enum class Shortage : uint8_t { kNone, kCapacity, kQuota };
  struct Fit {
    uint32_t tokens = 0;  // The tokens of the prompt's rest that fit; 0 if there is a shortage.
    Shortage shortage = Shortage::kNone;
  };
  // What goes through the model in a step: scheduler_compute.cc.
  struct Pass;

  Progress RunStep();
  // The phases of a step, in order.
  void EndCancelled();
  uint32_t ShareBudget();
  enum class Which : uint8_t { kWithoutForks, kAll };
  void AddForks(StepBatch& batch);
  void AddClosings(Which which, StepBatch& batch);
  void AddAdvances(StepBatch& batch);
  void Admit(uint32_t budget, StepBatch& batch);
  void AddProbes(StepBatch& batch);
  absl::Status RunBatch(StepBatch& batch);
  void HeedLosses();
  void HeedRefusals();
  Progress Compute();
  Progress WaitForCopies();
  Progress WaitForCapacity();

  // Whether the sample does not fit in addition to the running ones.
  bool LacksSlots(const Sample& sample) const;
  bool MayTakeSlot(const Sample& sample) const;
  Fit FitFor(const Probe& probe, uint32_t rest, uint32_t budget, Taken& taken) const;
  // Whether the sample waits for a fetch from now on. The fetch is put into the batch.
  bool OrderFetch(const Probe& probe, StepBatch& batch);
  void HeedShortage(const Probe& probe, Shortage shortage);
  // The cache refused the sample's sequence with `status`, because its tenant has as many as
  // allowed. The sample continues when some have ended.
  void AwaitSequences(Sample* sample, const absl::Status& status);
  void Open(std::unique_ptr<Sample> sample, uint32_t rest, uint32_t tokens, StepBatch& batch);
  bool MustProbe(const Sample& head) const;
  void AddProbe(const Sample* sample, StepBatch& batch);
  void AskForQuotas(StepBatch& batch);
  void LearnQuota(const std::string& owner, const CapacityAnswer& answer);
  std::vector<Sample*> Head(size_t count) const;
  void NoteAdmission(Sample& sample);
  absl::StatusOr<ModelOutput> RunModel(const Pass& pass);
  std::vector<SamplingTask> ChooseTokens(const Pass& pass, const ModelOutput& output);
  // Uses what the model said behind the sample's tokens of this step.
  void TakeChoice(Sample& sample, SamplingTask& task);
  void TakeTokens(Sample& sample, const SamplingTask& task);
  // Reports the sample's next token, which can end the sample.
  void Take(Sample& sample, const ChosenToken& chosen, absl::Span<const float> row);
  // Creates the samples after the first, from the same logits.
  void ForkSamples(Sample& first, absl::Span<const float> row);

  // Beam searches: scheduler_beams.cc.
  // The search's next step, if all candidates are there; then splits its samples.
  void AdvanceBeams(const std::shared_ptr<ActiveRequest>& request);
  void TakeBeams(const std::shared_ptr<ActiveRequest>& request);
  void SplitBeams(const std::shared_ptr<ActiveRequest>& request);
  // Reports the best hypotheses and ends the request.
  void FinishBeams(const std::shared_ptr<ActiveRequest>& request);
  // Closes all sequences of the search. It waits, and continues from its beams' tokens.
  void PauseBeams(const std::shared_ptr<ActiveRequest>& request);
  // One of the search's further sequences was refused.
  void HeedRefusedBeam(Sample* sample, const absl::Status& status);
  // If the sample's search runs alone among the samples for which `competes` is true, other clients
  // have what it lacks. Ends it with `status` if that has lasted too long; returns whether it did.
  bool EndBeamsAfterWait(const Sample& sample, absl::FunctionRef<bool(const Sample&)> competes,
                         const absl::Status& status);

  // Takes a sample out of running_. The next batch closes its sequence. A search returns as a
  // whole.
  void Retire(Sample* sample, Then then);
  void Preempt(Sample* sample);
  void EndRequest(const std::shared_ptr<ActiveRequest>& request, const absl::Status& status);
  void Finish(std::unique_ptr<Sample> sample);
  // Ends the waiting requests for which `check` returns an error, with that error.
  void EndWaiting(absl::FunctionRef<absl::Status(const Sample&)> check);
  // Ends all prepared requests. The others have nothing to do with the error.
  void EndAll(const absl::Status& status);
  void FailAll(const absl::Status& status);
  void FinishClosing();

  const Options options_;
  CacheClient* client_;
  const SequenceRun::Windows windows_;
  const Forward forward_;
  ModelInput input_;
  BatchSampler sampler_;
  TenantShares shares_;
  WaitingQueue waiting_;
  PrefixFetches fetches_;  // The fetches for the waiting samples.
  RunningSamples running_;
  std::vector<Closing> closing_;
  std::vector<std::shared_ptr<ActiveRequest>>
      ended_;                  // ReportEnds has not called their on_end yet.
  std::vector<Probe> probes_;  // Answers of the last batch.
  // Sequences to be freed when the client works again.
  std::vector<SequenceId> leftovers_;
  std::vector<ShortenedSequence> shortened_;
  Ticket completed_;
  TenantQuotas quotas_;                   // The quotas that the client has reported so far.
  std::set<std::string> unknown_owners_;  // Quotas to be asked for.
  RestingTenants resting_;
  bool lacks_blocks_ = false;  // A sample did, since the sequences were closed.
  // Whether the first waiting sample did not fit; which sample it was, and since when.
  bool blocked_ = false;
  std::pair<uint64_t, uint32_t> blocked_sample_;  // Sample::name().
  std::optional<SteadyTime> blocked_since_;
  bool capacity_changed_ = false;  // Since the last probe.
  SteadyTime probed_at_;
  uint64_t steps_ = 0;
  uint64_t requests_ = 0;
  uint64_t sequences_ = 0;
  SchedulerStats stats_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SCHEDULER_H_
