// Admission: which samples are admitted, and how the scheduler learns of free capacity.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "engine/schedule/request_demand.h"
#include "engine/schedule/scheduler.h"

namespace pagoda {
namespace {

// The most samples that are admitted in one step.
constexpr size_t kMostProbes = 8;

// The blocks that a waiting search needs soon in addition to those of the waiting sample, which has
// the tokens that all beams have.
uint64_t BlocksOfOtherBeams(const Sample& sample, WindowSize window,
                            TokensPerBlock tokens_per_block) {
  if (!sample.is_beam()) return 0;
  const GenerateRequest& request = sample.request->request;
  const uint64_t common = sample.run.tokens().size();
  const uint64_t tokens =
      request.prompt.size() + sample.request->beams->search.beams().front().tokens.size() + 1;
  const uint64_t all = BeamBlocks(request.beam_width, common, std::min(tokens, MostTokens(request)),
                                  window, tokens_per_block);
  return all - std::min(all, BeamBlocks(1, common, common, window, tokens_per_block));
}

}  // namespace

absl::Status Scheduler::CheckCapacity(const CacheInfo& cache, const GenerateRequest& request) {
  for (const CacheInfo::Window& window : cache.windows) {
    const uint64_t blocks =
        MostBlocks(request, window.window, TokensPerBlock(cache.tokens_per_block));
    const uint32_t most = window.blocks_in(kPrimaryTier);
    if (blocks <= most) continue;
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("the prompt's ", Counted(request.prompt.size(), "token"), " and ",
                                  request.max_new_tokens, " new ones", InBeams(request), " take ",
                                  Counted(blocks, "block"), " of window ",
                                  WindowName(window.window), "; the cache has ", most));
  }
  return absl::OkStatus();
}

// Samples whose tenant rests or is at its quota, or that wait for their preparation or for a fetch,
// do not delay the others.
std::vector<Sample*> Scheduler::Head(size_t count) const {
  return waiting_.Head(count, [this](const Sample& sample) {
    return !sample.request->is_prepared || resting_.Has(sample) ||
           quotas_.IsFull(sample.owner(), options_.probe_pause) ||
           fetches_.IsFetching(sample.name());
  });
}

bool Scheduler::LacksSlots(const Sample& sample) const {
  const uint64_t taken = running_.Slots();
  const uint64_t needed = sample.is_beam() ? sample.request->request.beam_width : 1;
  return taken + needed > options_.max_running_sequences;
}

// Whether the sample fits in addition to the running ones if those of lower priority are preempted.
// So a search preempts none unless it can then begin.
bool Scheduler::MayTakeSlot(const Sample& sample) const {
  const int32_t priority = sample.request->request.priority;
  const Sample* const lowest = running_.Lowest();
  if (lowest == nullptr || lowest->request->request.priority >= priority) return false;
  const uint64_t kept = running_.SlotsOf(
      [&](const Sample& other) { return other.request->request.priority >= priority; });
  const uint64_t needed = sample.is_beam() ? sample.request->request.beam_width : 1;
  return kept + needed <= options_.max_running_sequences;
}

// How many tokens of the prompt's rest fit now: all that `budget` allows, or fewer if a sliding
// window's pool is small.
Scheduler::Fit Scheduler::FitFor(const Probe& probe, uint32_t rest, uint32_t budget,
                                 Taken& taken) const {
  const TokensPerBlock tokens_per_block(windows_.tokens_per_block);
  const std::string& owner = probe.sample->owner();
  std::vector<uint64_t>& taken_by_owner = taken.by_owner[owner];
  const size_t windows = probe.answer.windows.size();
  taken.blocks.resize(windows);
  taken_by_owner.resize(windows);
  // Each running sequence will need its next block soon.
  const uint64_t running = running_.Slots();
  const uint64_t running_of_owner =
      running_.SlotsOf([&](const Sample& sample) { return sample.owner() == owner; });
  uint32_t tokens = std::min(rest, budget);
  std::vector<uint64_t> needs;
  for (size_t w = 0; w < windows; ++w) {
    const WindowCapacity& capacity = probe.answer.windows[w];
    // If the quota is the tighter limit, the answer does not count the blocks of other tenants.
    const bool by_quota = capacity.quota_left_blocks.has_value() &&
                          *capacity.quota_left_blocks <= capacity.available_blocks;
    const uint64_t held =
        by_quota ? taken_by_owner[w] + running_of_owner : taken.blocks[w] + running;
    const Fit short_of{0, by_quota ? Shortage::kQuota : Shortage::kCapacity};
    if (held >= capacity.available_blocks) return short_of;
    const uint64_t available = capacity.available_blocks - held;
    uint64_t needed =
        capacity.blocks_now + BlocksOfOtherBeams(*probe.sample, capacity.window, tokens_per_block);
    if (capacity.window != kFullAttention && needed > available) {
      // The prompt is computed in chunks, and the window releases the blocks that it has passed.
      // The tokens of a window, and of a chunk, begin anywhere in a block.
      const uint64_t window = tokens_per_block.BlocksFor(capacity.window.value()) + 1;
      if (window >= available) return short_of;
      const uint64_t chunk = (available - window) * windows_.tokens_per_block;
      tokens = static_cast<uint32_t>(std::min<uint64_t>(tokens, chunk));
      needed = available;
    }
    if (needed > available) return short_of;
    needs.push_back(needed);
  }
  for (size_t w = 0; w < windows; ++w) {
    taken.blocks[w] += needs[w];
    taken_by_owner[w] += needs[w];
  }
  return {tokens, Shortage::kNone};
}

void Scheduler::Admit(uint32_t budget, StepBatch& batch) {
  if (probes_.empty()) return;
  Taken taken;
  blocked_ = false;
  for (const Probe& probe : std::exchange(probes_, {})) {
    const bool takes_slot = LacksSlots(*probe.sample);
    if (takes_slot ? !MayTakeSlot(*probe.sample) : budget == 0) return;
    if (resting_.Has(*probe.sample) ||
        quotas_.IsFull(probe.sample->owner(), options_.probe_pause)) {
      continue;
    }
    if (OrderFetch(probe, batch)) continue;
    const auto total = static_cast<uint32_t>(probe.sample->run.tokens().size());
    const uint32_t rest = total - std::min(probe.answer.matched_tokens, total - 1);
    const Fit fit = FitFor(probe, rest, std::max(budget, 1u), taken);
    if (fit.shortage != Shortage::kNone) {
      HeedShortage(probe, fit.shortage);
      if (fit.shortage == Shortage::kCapacity) return;
      continue;
    }
    // A sample that only lacks a slot is opened in the next step, when the slot is free.
    if (takes_slot) return Preempt(running_.Lowest());
    std::unique_ptr<Sample> sample = waiting_.Remove(probe.sample);
    if (sample == nullptr) continue;  // Cancelled since.
    budget -= fit.tokens;
    sample->fetched_tokens = std::max({sample->fetched_tokens, fetches_.Leave(sample->name()),
                                       sample->request->request.fetched_tokens});
    Open(std::move(sample), rest, fit.tokens, batch);
  }
}

void Scheduler::Open(std::unique_ptr<Sample> sample, uint32_t rest, uint32_t tokens,
                     StepBatch& batch) {
  const auto total = static_cast<uint32_t>(sample->run.tokens().size());
  sample->draft_tokens.clear();
  sample->num_tokens = tokens;
  if (!sample->request->admitted) shares_.Charge(sample->request->request.tenant, rest);
  sample->opening = true;
  sample->refused = false;
  sample->run.Open(SequenceId(++sequences_), total - rest + tokens, sample->request->lookup(),
                   batch);
  blocked_since_.reset();
  sample->request->at_quota_since.reset();
  running_.Add(std::move(sample));
}

// Preempts a sample of lower priority, unless a closing sample already releases blocks, which the
// next answers will count.
void Scheduler::HeedShortage(const Probe& probe, Shortage shortage) {
  const std::string& owner = probe.sample->owner();
  const auto counts = [&](const Sample& sample) {
    return shortage == Shortage::kCapacity || sample.owner() == owner;
  };
  lacks_blocks_ = lacks_blocks_ || shortage == Shortage::kCapacity;
  const bool gives_back =
      std::any_of(closing_.begin(), closing_.end(),
                  [&](const Closing& closing) { return counts(*closing.sample); });
  if (gives_back) return;
  Sample* const lowest = running_.LowestOf(counts);
  if (lowest != nullptr &&
      lowest->request->request.priority < probe.sample->request->request.priority) {
    Preempt(lowest);
  }
  if (shortage == Shortage::kCapacity) {
    blocked_ = true;
    const auto name = probe.sample->name();
    if (std::exchange(blocked_sample_, name) != name) blocked_since_.reset();
    return;
  }
  quotas_.NoteFull(owner);
  std::optional<SteadyTime>& since = probe.sample->request->at_quota_since;
  if (lowest != nullptr) return since.reset();
  if (!since.has_value()) since = SteadyNow();
  if (Since(*since) < options_.capacity_timeout) return;
  EndRequest(probe.sample->request,
             MakeError(Reason::kTenantQuotaExceeded,
                       absl::StrCat("other clients of the tenant '", owner,
                                    "' have held the rest of its quota for ",
                                    absl::FormatDuration(options_.capacity_timeout))));
}

// The cache reports its limits on sequences and their bytes only by refusing a sequence. The sample
// then waits for the tenant's own sequences in the engine, or preempts one of lower priority, like
// with a quota of blocks. It waits for the tenant's other clients for capacity_timeout.
void Scheduler::AwaitSequences(Sample* sample, const absl::Status& status) {
  const std::string& owner = sample->owner();
  const auto is_its = [&](const Sample& other) {
    return other.owner() == owner && other.run.is_open();
  };
  Sample* const lowest = running_.LowestOf(is_its);
  const bool gives_back =
      std::any_of(closing_.begin(), closing_.end(),
                  [&](const Closing& closing) { return is_its(*closing.sample); });
  std::optional<SteadyTime>& since = sample->request->refused_since;
  if (lowest != nullptr || gives_back) {
    since.reset();
  } else if (!since.has_value()) {
    since = SteadyNow();
  }
  if (since.has_value() && Since(*since) >= options_.capacity_timeout) {
    return EndRequest(sample->request, status);
  }
  quotas_.NoteFull(owner);
  sample->refused = true;
  Retire(sample, Then::kReturn);
  if (!gives_back && lowest != nullptr &&
      lowest->request->request.priority < sample->request->request.priority) {
    Preempt(lowest);
  }
}

// Whether the capacity for the first waiting sample could have changed since the last query.
bool Scheduler::MustProbe(const Sample& head) const {
  return !blocked_ || capacity_changed_ || blocked_sample_ != head.name() ||
         Since(probed_at_) >= options_.probe_pause;
}

void Scheduler::AddProbes(StepBatch& batch) {
  AskForQuotas(batch);
  if (waiting_.empty()) return;
  // If all slots are taken, a sample of higher priority takes the slot of a lower one, with its
  // part of the budget.
  const uint64_t running = running_.Slots();
  const bool taken = running >= options_.max_running_sequences;
  if (!taken && running_.TokensOfNextStep() >= options_.max_step_tokens) return;
  // If the first sample does not fit, no other sample passes it.
  const size_t free = taken ? kMostProbes : options_.max_running_sequences - running;
  std::vector<Sample*> head = Head(std::min<size_t>(blocked_ ? 1 : kMostProbes, free));
  if (taken) std::erase_if(head, [this](const Sample* next) { return !MayTakeSlot(*next); });
  if (head.empty() || !MustProbe(*head.front())) return;
  // A search waits for as many slots as it has beams.
  if (LacksSlots(*head.front()) && !MayTakeSlot(*head.front())) return;
  probed_at_ = SteadyNow();
  capacity_changed_ = false;
  for (const Sample* sample : head) AddProbe(sample, batch);
}

void Scheduler::AddProbe(const Sample* sample, StepBatch& batch) {
  const GenerateRequest& request = sample->request->request;
  QueryCapacity query{.name_space = request.name_space,
                      .tokens = sample->run.tokens(),
                      .max_new_tokens = sample->tokens_left(),
                      .tenant = request.tenant};
  batch.Add(std::move(query), [this, sample](absl::StatusOr<OperationResult> result) {
    if (sample->request->ending) return;
    if (!result.ok()) return EndRequest(sample->request, result.status());
    probes_.push_back({sample, std::get<CapacityAnswer>(*std::move(result))});
  });
  if (!fetches_.WantsMatch(sample->name())) return;
  MatchPrefix match{
      .name_space = request.name_space, .tokens = sample->run.tokens(), .tenant = request.tenant};
  batch.Add(std::move(match), [this, sample](absl::StatusOr<OperationResult> result) {
    if (!result.ok() || probes_.empty() || probes_.back().sample != sample) return;
    probes_.back().cached = CachedPrefix::From(std::get<MatchedPrefix>(*result));
    fetches_.Probed(sample->name(), *probes_.back().cached, SteadyNow());
  });
}

bool Scheduler::OrderFetch(const Probe& probe, StepBatch& batch) {
  if (!probe.cached.has_value() || probe.sample->request->ending) return false;
  const auto name = probe.sample->name();
  const std::optional<absl::Duration> wait = fetches_.Decide(name, *probe.cached, SteadyNow());
  if (!wait.has_value()) return false;
  PrefetchPrefix prefetch{.name_space = probe.sample->request->request.name_space,
                          .tokens = probe.sample->run.tokens(),
                          .target = PrefetchTarget::kMemory,
                          .deadline = *wait,
                          .tenant = probe.sample->request->request.tenant};
  batch.Add(std::move(prefetch), [this, name](absl::StatusOr<OperationResult> result) {
    fetches_.Ordered(name, result, SteadyNow());
  });
  return true;
}

// Sends one small query for each unknown tenant. So a request that the tenant's quota can never
// hold is refused however long the queue is.
void Scheduler::AskForQuotas(StepBatch& batch) {
  for (const std::string& owner : std::exchange(unknown_owners_, {})) {
    QueryCapacity query{
        .name_space = {.tenant = owner}, .tokens = {0}, .max_new_tokens = 1, .tenant = owner};
    batch.Add(std::move(query), [this, owner](absl::StatusOr<OperationResult> result) {
      if (result.ok()) LearnQuota(owner, std::get<CapacityAnswer>(*result));
    });
  }
}

void Scheduler::LearnQuota(const std::string& owner, const CapacityAnswer& answer) {
  quotas_.Learn(owner, answer.windows);
  EndWaiting([&](const Sample& sample) {
    return sample.owner() != owner
               ? absl::OkStatus()
               : quotas_.Check(sample.request->request, windows_.tokens_per_block);
  });
}

// Called when nothing was computed.
Scheduler::Progress Scheduler::WaitForCapacity() {
  if (!resting_.empty()) return Progress::kNone;  // The others lack what a resting tenant has.
  if (!running_.empty() || !closing_.empty() || waiting_.empty()) return Progress::kMade;
  const std::vector<Sample*> head = Head(1);
  // All samples are passed over: other clients of their tenants hold the quotas, or they wait for
  // fetches.
  if (head.empty()) return Progress::kNone;
  if (!blocked_ || blocked_sample_ != head.front()->name()) return Progress::kMade;
  // The first waiting sample does not fit in addition to other clients of the cache.
  if (!blocked_since_.has_value()) blocked_since_ = SteadyNow();
  if (Since(*blocked_since_) < options_.capacity_timeout) return Progress::kNone;
  EndRequest(head.front()->request,
             MakeError(Reason::kBlocksExhausted,
                       absl::StrCat("other clients of the cache have held the capacity that "
                                    "the request needs for ",
                                    absl::FormatDuration(options_.capacity_timeout))));
  return Progress::kMade;
}

}  // namespace pagoda
