// The part of ExchangeJobs that fetches.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/error.h"
#include "manager/exchange/exchange_jobs.h"

namespace pagoda {
namespace {

// The number of outcomes before the first that is not kOk.
uint32_t GoodOnes(const std::vector<StoreOutcome>& outcomes) {
  const auto bad = std::find_if(outcomes.begin(), outcomes.end(),
                                [](StoreOutcome outcome) { return outcome != StoreOutcome::kOk; });
  return static_cast<uint32_t>(bad - outcomes.begin());
}

}  // namespace

void ExchangeJobs::StartFetch(const std::shared_ptr<FetchJob>& job) {
  if (is_stopping()) return EndFetch(*job, FetchOutcome::kCancelled);
  if (!CheckReaders(*job->source, job->prompt).ok()) return EndFetch(*job, FetchOutcome::kRefused);
  const absl::StatusOr<MatchedPrefix> match = Match(job->prompt);
  if (!match.ok()) return EndFetch(*job, FetchOutcome::kRefused);
  // A sequence cannot have more blocks than the first tier. So a long prompt costs no more either.
  const uint32_t whole = std::min(job->prompt.whole_blocks(tokens_per_block_), capacity_);
  const uint32_t in_memory = match->matched_tokens / tokens_per_block_.value();
  // What is on disk comes from there: it is nearer. A sequence would not match it.
  const uint32_t anywhere = match->cached_tokens / tokens_per_block_.value();
  job->cached = job->from = std::min(std::max(in_memory, anywhere), whole);
  if (job->cached == whole || anywhere > in_memory) return EndFetch(*job, FetchOutcome::kCached);
  if (!std::exchange(job->is_bounded, true)) {
    job->deadline = std::min(job->deadline, Now() + Allowed(whole - job->cached));
  }
  if (job->digests.empty()) job->digests = DigestsOf(job->prompt, tokens_per_block_, whole);
  const auto [running, is_first] = fetches_.try_emplace(NameOf(*job), job);
  if (!is_first) {
    running->second->waiters.push_back(job);
    next_expiry_ = std::min(next_expiry_, job->deadline);
    absl::MutexLock lock(&mutex_);
    ++stats_.joined_fetches;
    return;
  }
  std::vector<StoreKey> keys;
  for (uint32_t i = job->cached; i < whole; ++i) keys.push_back(KeyOf(job->digests[i]));
  job->source->store().Exists(
      std::move(keys), job->deadline - Now(),
      [jobs = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
        jobs->Post([jobs, job, outcomes] { jobs->FoundBlocks(job, outcomes); });
      });
}

void ExchangeJobs::Expire() {
  const absl::Time now = Now();
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteFuture();
  std::vector<std::shared_ptr<FetchJob>> waiting, copying;
  const auto is_expired = [&](const FetchJob& job) {
    if (job.deadline <= now) return true;
    next_expiry_ = std::min(next_expiry_, job.deadline);
    return false;
  };
  for (auto& [name, job] : fetches_) {
    std::erase_if(job->waiters, [&](const std::shared_ptr<FetchJob>& waiter) {
      if (!is_expired(*waiter)) return false;
      waiting.push_back(waiter);
      return true;
    });
    if (job->awaits_copies && is_expired(*job)) copying.push_back(job);
  }
  for (const std::shared_ptr<FetchJob>& job : waiting) EndFetch(*job, FetchOutcome::kFailed);
  for (const std::shared_ptr<FetchJob>& job : copying) LeaveFetch(job, FetchOutcome::kFailed, 0);
}

absl::Duration ExchangeJobs::Allowed(uint32_t blocks) const {
  return options_.fetch_base +
         options_.fetch_per_1k_tokens * (blocks * tokens_per_block_.value() / 1000.0);
}

void ExchangeJobs::FoundBlocks(const std::shared_ptr<FetchJob>& job,
                               const std::vector<StoreOutcome>& outcomes) {
  const uint32_t found = GoodOnes(outcomes);
  if (is_stopping()) return LeaveFetch(job, FetchOutcome::kCancelled, 0);
  if (found == 0) {
    const bool is_missing = outcomes.front() == StoreOutcome::kMissing;
    return LeaveFetch(job, is_missing ? FetchOutcome::kMissing : FetchOutcome::kFailed, 0);
  }
  if (IsSlower(*job, found)) return LeaveFetch(job, FetchOutcome::kSlower, 0);
  job->end = job->cached + found;
  Reserve(job);
}

// Whether computing the blocks is predicted to take less time than fetching them.
bool ExchangeJobs::IsSlower(const FetchJob& job, uint32_t blocks) {
  if (options_.recompute_tokens_per_second <= 0) return false;
  const double compute = blocks * tokens_per_block_.value() / options_.recompute_tokens_per_second;
  return job.source->IsSlower(blocks * block_bytes_, absl::Seconds(compute),
                              options_.assumed_bytes_per_second, options_.probe_interval, Now());
}

void ExchangeJobs::Reserve(const std::shared_ptr<FetchJob>& job) {
  if (Now() >= job->deadline) return LeaveFetch(job, FetchOutcome::kFailed, 0);
  const uint32_t tokens = job->end * tokens_per_block_.value();
  const absl::StatusOr<AddedSequence> added =
      Hold(FirstOf(job->prompt, tokens_per_block_, tokens), tokens, job->held);
  if (!added.ok()) {
    const bool is_full = absl::IsResourceExhausted(added.status()) ||
                         ReasonOf(added.status()) == Reason::kInvalidCount;
    return LeaveFetch(job, is_full ? FetchOutcome::kNoRoom : FetchOutcome::kRefused, 0);
  }
  // The cache can have more or fewer blocks than when the job began. If blocks at the beginning
  // have gone, they are fetched too, without having been asked for.
  job->from = added->matched_tokens / tokens_per_block_.value();
  if (job->from >= job->end) return LeaveFetch(job, FetchOutcome::kCached, 0);
  // A copy has no deadline, so the fetch can expire first.
  job->awaits_copies = true;
  next_expiry_ = std::min(next_expiry_, job->deadline);
  manager_.NotifyWhenDone(added->ready, [jobs = shared_from_this(), job] {
    jobs->Post([jobs, job] { jobs->GetBlocks(job); });
  });
}

void ExchangeJobs::GetBlocks(const std::shared_ptr<FetchJob>& job) {
  if (!job->awaits_copies) return;  // It has expired.
  job->awaits_copies = false;
  if (is_stopping()) return LeaveFetch(job, FetchOutcome::kCancelled, 0);
  std::vector<Store::Read> reads;
  for (uint32_t i = job->from; i < job->end; ++i) {
    reads.push_back({KeyOf(job->digests[i]), Pieces<std::byte>(job->held.table[i])});
  }
  job->began = Now();
  job->source->store().Get(
      std::move(reads), job->deadline - job->began,
      [jobs = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
        jobs->Post([jobs, job, outcomes] { jobs->GotBlocks(job, outcomes); });
      });
}

void ExchangeJobs::GotBlocks(const std::shared_ptr<FetchJob>& job,
                             const std::vector<StoreOutcome>& outcomes) {
  const uint32_t good = GoodOnes(outcomes);
  NoteRate(*job, outcomes);
  FetchOutcome outcome = FetchOutcome::kFailed;
  uint32_t brought = 0;
  const uint32_t computed = (job->from + good) * tokens_per_block_.value();
  // Fails if a copy of the matched blocks has failed.
  if (good > 0 &&
      Do<CommittedTokens>(
          CommitTokens{.sequence = job->held.sequence, .tokens = {}, .computed_tokens = computed})
          .ok()) {
    outcome = good == outcomes.size() ? FetchOutcome::kFetched : FetchOutcome::kPartly;
    brought = good;
  }
  // Invalid values are withdrawn from the own store. Else the next publish would find them there,
  // and the prefix would stay broken. The fetch ends after that, so a publish that follows it is
  // not withdrawn too.
  std::vector<Store::Write> withdrawn;
  for (uint32_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] != StoreOutcome::kInvalid || job->source != own_) continue;
    withdrawn.push_back({KeyOf(job->digests[job->from + i]), {}});
  }
  if (withdrawn.empty()) return LeaveFetch(job, outcome, brought);
  own_->store().Put(
      std::move(withdrawn), absl::Milliseconds(1), job->deadline - Now(),
      [jobs = shared_from_this(), job, outcome, brought](const std::vector<StoreOutcome>&) {
        jobs->Post([jobs, job, outcome, brought] { jobs->LeaveFetch(job, outcome, brought); });
      });
}

void ExchangeJobs::NoteRate(const FetchJob& job, const std::vector<StoreOutcome>& outcomes) {
  const auto count = [&outcomes](StoreOutcome outcome) {
    return static_cast<uint64_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
  };
  const uint64_t good = count(StoreOutcome::kOk);
  {
    absl::MutexLock lock(&mutex_);
    stats_.invalid_blocks += count(StoreOutcome::kInvalid);
  }
  // A fetch that brought nothing by its deadline says that the source is slow.
  if (good == 0 && count(StoreOutcome::kTimedOut) == 0) return;
  job.source->Note(good * block_bytes_, Now() - job.began);
}

// Frees the job's slots, lets others ask for its blocks, and ends it. `good`: blocks that it
// brought.
void ExchangeJobs::LeaveFetch(const std::shared_ptr<FetchJob>& job, FetchOutcome outcome,
                              uint32_t good) {
  EndHold(job->held);
  job->awaits_copies = false;
  fetches_.erase(NameOf(*job));
  const std::vector<std::shared_ptr<FetchJob>> waiters = std::exchange(job->waiters, {});
  EndFetch(*job, outcome, good);
  const absl::Time now = Now();
  // These hold for each fetch that lacks the block. Otherwise a fetch can have more time, more room
  // or more blocks to fetch.
  const bool is_of_all = outcome == FetchOutcome::kMissing || outcome == FetchOutcome::kSlower ||
                         outcome == FetchOutcome::kCancelled ||
                         (outcome == FetchOutcome::kFailed && now < job->deadline);
  for (const std::shared_ptr<FetchJob>& waiter : waiters) {
    if (is_of_all) {
      EndFetch(*waiter, outcome);
    } else if (waiter->deadline <= now) {
      EndFetch(*waiter, FetchOutcome::kFailed);
    } else {
      StartFetch(waiter);
    }
  }
}

void ExchangeJobs::EndFetch(FetchJob& job, FetchOutcome outcome, uint32_t good) {
  EndJob(job.prompt_bytes, [&](ExchangeStats& stats) {
    ++stats.fetches[static_cast<size_t>(outcome)];
    stats.fetched_blocks += good;
    stats.fetched_bytes += good * block_bytes_;
    stats.fetched_tokens += uint64_t{good} * tokens_per_block_.value();
  });
  job.done({.outcome = outcome,
            .cached_tokens = job.from * tokens_per_block_.value(),
            .fetched_tokens = good * tokens_per_block_.value()});
}

}  // namespace pagoda
