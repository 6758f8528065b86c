// Which tokens go through the model when, and what the cache is asked for them.
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
#include "engine/choices.h"
#include "engine/generate.h"
#include "engine/model/model_input.h"
#include "engine/schedule/batch_sampler.h"
#include "engine/schedule/prefix_fetches.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/step_batch.h"
#include "engine/schedule/stopwatch.h"
#include "engine/schedule/tenant_quotas.h"
#include "engine/schedule/tenant_shares.h"
#include "engine/schedule/waiting_places.h"
#include "engine/schedule/waiting_queue.h"
#include "kernels/cpu/thread_pool.h"
#include "manager/cache_client.h"

namespace pagoda {

// What all requests of an engine have done since its start.
struct SchedulerStats {
  uint64_t running_requests = 0;
  uint64_t waiting_requests = 0;  // None of whose samples has been opened yet.
  uint64_t running_sequences = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t reused_secondary_tokens = 0;
  uint64_t fetched_tokens = 0;     // Of the reused ones, those that came from disk for a request.
  uint64_t fetches = 0;            // From disk into memory, ordered for a request.
  uint64_t late_fetches = 0;       // Of these, those that had not brought all in time.
  uint64_t fetches_not_worth = 0;  // None was ordered: computing was predicted to be faster.
  uint64_t computed_tokens = 0;    // Tokens that went through the model, prompt and generated.
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;
  uint64_t accepted_draft_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t steps = 0;  // Those that went through the model.
  absl::Duration step_time;
  absl::Duration cache_time;     // Of it, in calls of the cache.
  absl::Duration model_time;     // Of it, in the model.
  absl::Duration sampling_time;  // Of it, choosing tokens from logits.
};

// Continuous batching (Yu et al., "Orca", OSDI 2022) with chunked prefill (Agrawal et al.,
// "Sarathi-Serve", OSDI 2024): each step takes one token of every sequence that generates, then
// prompts' tokens up to its budget, and asks the cache for all of them in one batch of operations.
// Thread-compatible: one thread runs the steps.
//
// Invariants
// 1. A sample is in exactly one of running_, closing_ and waiting_ until it is done with.
// 2. Who is earliest among those of the highest priority is preempted only where it runs alone, and
// others than the engine hold what it needs; so requests get on.
class Scheduler {
 public:
  struct Options {
    uint32_t max_step_tokens = 512;
    uint32_t max_running_sequences = 256;
    Preemption preemption = Preemption::kOffload;
    // How long a request waits, when nothing else runs, for room that other clients of the cache
    // hold.
    absl::Duration capacity_timeout = absl::Seconds(10);
    // How often room is looked for that only other clients of the cache could have given back.
    absl::Duration probe_pause = absl::Milliseconds(4);
  };
  // Runs a step's tokens through the model: logits [logit_rows][vocab_size], valid until the next
  // call.
  using Forward = std::function<absl::StatusOr<absl::Span<const float>>(const ModelInput& input)>;

  // `client` outlives it, or its replacement does. `windows` are the model's. Tokens are chosen on
  // `sampling_threads`, which outlive it; on the caller's where that is null.
  Scheduler(const Options& options, CacheClient* client, std::vector<WindowSize> windows,
            Forward forward, kernels::cpu::ThreadPool* sampling_threads = nullptr);
  ~Scheduler();

  // INVALID_COUNT where the cache can never hold one of the request's sequences.
  static absl::Status CheckCapacity(const CacheInfo& cache, const GenerateRequest& request);

  // The request is valid. `on_end` comes with a later TellEnds. `place` is given back when the
  // request is admitted, or ends before that.
  void Add(GenerateRequest request, TokenCallback on_token, EndCallback on_end, SteadyTime arrival,
           WaitingPlaces::Place place = {});

  bool idle() const { return running_.empty() && closing_.empty() && waiting_.empty(); }

  enum class Progress {
    kMade,
    kNone,  // Everything waits: for room that others hold, or for fetches.
  };
  Progress Step();
  // Whether a request waits for a fetch. A step looks whether it has ended.
  bool is_fetching() const { return fetches_.any_fetching(); }
  // Calls on_end of the requests that have ended: apart from the step, so that whoever hears of an
  // end finds it in stats() already.
  void TellEnds();

  // Ends all requests with the error, at once. TellEnds tells.
  void Shutdown(const absl::Status& status);
  // Goes on in another session, with a cache of the same model: what was under way begins anew
  // there, from the tokens that it has.
  void Attach(CacheClient* client);

  const SchedulerStats& stats() const { return stats_; }

 private:
  using SampleList = std::vector<std::unique_ptr<Sample>>;
  // What comes of a sample whose sequence is closed.
  enum class Then : uint8_t {
    kEnd,
    kReturn,  // To the waiting room, where it goes on.
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
  // What those take who are admitted in the step at hand, by window of the answers.
  struct Taken {
    std::vector<uint64_t> blocks;
    std::map<std::string, std::vector<uint64_t>> by_owner;
  };
  enum class Shortage : uint8_t { kNone, kCapacity, kQuota };
  struct Fit {
    uint32_t tokens = 0;  // Of the prompt's rest; 0 where there is a shortage.
    Shortage shortage = Shortage::kNone;
  };

  Progress RunStep();
  // The phases of a step, in order.
  void EndCancelled();
  uint32_t ShareBudget();
  void AddForks(StepBatch& batch);
  void AddClosings(StepBatch& batch);
  void AddAdvances(StepBatch& batch);
  void Admit(uint32_t budget, StepBatch& batch);
  void AddProbes(StepBatch& batch);
  absl::Status RunBatch(StepBatch& batch);
  void HeedLosses();
  void HeedRefusals();
  Progress Compute();
  Progress WaitForCopies();
  Progress WaitForCapacity();

  bool SlotsAreTaken() const;
  bool MayTakeSlot(const Sample& sample) const;
  Fit FitFor(const Probe& probe, uint32_t rest, uint32_t budget, Taken& taken) const;
  // Whether the sample waits for a fetch from now on, which goes into the batch.
  bool OrderFetch(const Probe& probe, StepBatch& batch);
  void HeedShortage(const Probe& probe, Shortage shortage);
  // The cache refused the sample's sequence with `status`, because its tenant has as many as it may
  // have: it goes on when some have ended.
  void AwaitSequences(Sample* sample, const absl::Status& status);
  void Open(std::unique_ptr<Sample> sample, uint32_t rest, uint32_t tokens, StepBatch& batch);
  bool MustProbe(const Sample& head) const;
  void AddProbe(const Sample* sample, StepBatch& batch);
  void AskForQuotas(StepBatch& batch);
  void LearnQuota(const std::string& owner, const CapacityAnswer& answer);
  uint32_t BudgetOfNextStep() const;
  std::vector<Sample*> Head(size_t count) const;
  void NoteAdmission(Sample& sample);
  std::vector<SamplingTask> ChooseTokens(absl::Span<Sample* const> computing, uint32_t rows,
                                         absl::Span<const float> logits);
  void TakeTokens(Sample& sample, const SamplingTask& task);
  // Tells of the sample's next token, with which it may end.
  void Take(Sample& sample, const ChosenToken& chosen, absl::Span<const float> row);
  // The samples beside the first, from the same logits.
  void ForkSamples(Sample& first, absl::Span<const float> row);

  // A running sample leaves: its sequence is closed with the next batch.
  void Retire(Sample* sample, Then then);
  void Preempt(Sample* sample);
  void EndRequest(const std::shared_ptr<ActiveRequest>& request, const absl::Status& status);
  void Finish(std::unique_ptr<Sample> sample);
  void EndAll(const absl::Status& status);
  void FailAll(const absl::Status& status);
  void FreeLeftovers();
  void FinishClosing();
  // Null where nobody runs, or nobody who counts.
  Sample* LowestRunning() const;
  Sample* LowestRunningOf(absl::FunctionRef<bool(const Sample&)> counts) const;

  const Options options_;
  CacheClient* client_;
  const SequenceRun::Windows windows_;
  const Forward forward_;
  ModelInput input_;
  BatchSampler sampler_;
  TenantShares shares_;
  WaitingQueue waiting_;
  PrefixFetches fetches_;  // Of those who wait.
  SampleList running_;
  std::vector<Closing> closing_;
  std::vector<std::shared_ptr<ActiveRequest>> ended_;  // Not told yet.
  std::vector<Probe> probes_;                          // Answers of the last batch.
  std::vector<SequenceId> leftovers_;  // To be freed when the client can be asked again.
  std::vector<ShortenedSequence> shortened_;
  Ticket completed_;
  TenantQuotas quotas_;                   // As far as the client has told.
  std::set<std::string> unknown_owners_;  // To be asked for.
  // The head of those who wait did not fit: who that was, and since when.
  bool blocked_ = false;
  std::pair<uint64_t, uint32_t> blocked_sample_;  // Its request's number and its own.
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
