// The part of ExchangeJobs that publishes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "manager/exchange/exchange_jobs.h"

namespace pagoda {

void ExchangeJobs::StartPublish(const std::shared_ptr<PublishJob>& job) {
  if (is_stopping()) return EndPublish(*job);
  const absl::StatusOr<MatchedPrefix> match = Match(job->prompt);
  if (!match.ok()) return EndPublish(*job);
  const uint32_t blocks = std::min(match->matched_tokens / tokens_per_block_.value(),
                                   job->prompt.whole_blocks(tokens_per_block_));
  if (blocks == 0) return EndPublish(*job);
  job->prompt = FirstOf(job->prompt, tokens_per_block_, blocks * tokens_per_block_.value());
  job->digests = DigestsOf(job->prompt, tokens_per_block_, blocks);
  std::vector<StoreKey> keys;
  for (const ContentDigest& digest : job->digests) keys.push_back(KeyOf(digest));
  own_->store().Exists(std::move(keys), options_.publish_timeout,
                       [jobs = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                         jobs->Post([jobs, job, outcomes] { jobs->FoundMissing(job, outcomes); });
                       });
}

void ExchangeJobs::FoundMissing(const std::shared_ptr<PublishJob>& job,
                                const std::vector<StoreOutcome>& outcomes) {
  if (is_stopping()) return EndPublish(*job);
  for (uint32_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] == StoreOutcome::kOk) ++job->result.blocks;
    if (outcomes[i] == StoreOutcome::kMissing) job->missing.push_back(i);
  }
  // The store is not there for the others.
  job->result.failed =
      static_cast<uint32_t>(outcomes.size() - job->missing.size()) - job->result.blocks;
  CutToBudget(*job);
  if (job->missing.empty()) return EndPublish(*job);
  // A sequence holds the blocks while they are read.
  const uint32_t tokens = static_cast<uint32_t>(job->digests.size()) * tokens_per_block_.value();
  absl::StatusOr<AddedSequence> added = Hold(Longer(job->prompt), tokens, job->held);
  const uint32_t fewer = tokens - tokens_per_block_.value();
  if (ReasonOf(added.status()) == Reason::kInvalidCount && fewer > 0 &&
      !job->prompt.name_space.keyed) {
    // The prefix fills the tier or the tenant's quota, so there is no place for the token behind
    // it. Its last block is left out.
    added = Hold(FirstOf(job->prompt, tokens_per_block_, fewer + 1), fewer, job->held);
  }
  // Blocks can have gone since the match.
  DropMissing(*job, added.ok() ? added->matched_tokens / tokens_per_block_.value() : 0);
  if (job->missing.empty()) return EndPublish(*job);
  manager_.NotifyWhenDone(added->ready, [jobs = shared_from_this(), job] {
    jobs->Post([jobs, job] { jobs->PutBlocks(job); });
  });
}

// Leaves out the blocks that the budget does not allow now. Returns the bytes of the others.
double ExchangeJobs::CutToBudget(PublishJob& job) {
  const auto bytes = static_cast<double>(block_bytes_);
  const double rate = options_.publish_bytes_per_second;
  if (rate <= 0) return 0;
  const absl::Time now = Now();
  // A block that is larger than a second's budget is written when all of the budget is there.
  const double most = std::max(rate, bytes);
  budget_ = budget_at_ == absl::InfinitePast()
                ? most
                : std::min(most, budget_ + rate * absl::ToDoubleSeconds(now - budget_at_));
  budget_at_ = now;
  const auto blocks = static_cast<double>(job.missing.size());
  const double allowed = std::min(std::floor(budget_ / bytes), blocks);
  job.result.skipped += static_cast<uint32_t>(blocks - allowed);
  job.missing.resize(static_cast<size_t>(allowed));
  return allowed * bytes;
}

// Blocks from `end` on cannot be read.
void ExchangeJobs::DropMissing(PublishJob& job, uint32_t end) {
  job.result.failed += static_cast<uint32_t>(
      std::erase_if(job.missing, [end](uint32_t block) { return block >= end; }));
}

void ExchangeJobs::PutBlocks(const std::shared_ptr<PublishJob>& job) {
  if (is_stopping()) return EndPublish(*job);
  // A copy into the first tier can have failed. Then the sequence is shorter now.
  const absl::StatusOr<DescribedSequence> now =
      Do<DescribedSequence>(DescribeSequence{.sequence = job->held.sequence});
  DropMissing(*job, now.ok() ? now->computed_tokens / tokens_per_block_.value() : 0);
  // Taken when the blocks are written: copies can have held up several publishes, which then write
  // at once.
  const double taken = CutToBudget(*job);
  budget_ -= taken;
  if (job->missing.empty()) return EndPublish(*job);
  std::vector<Store::Write> writes;
  for (const uint32_t block : job->missing) {
    writes.push_back({KeyOf(job->digests[block]), Pieces<const std::byte>(job->held.table[block])});
  }
  own_->store().Put(std::move(writes), options_.time_to_live, options_.publish_timeout,
                    [jobs = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                      jobs->Post([jobs, job, outcomes] { jobs->PutDone(job, outcomes); });
                    });
}

void ExchangeJobs::PutDone(const std::shared_ptr<PublishJob>& job,
                           const std::vector<StoreOutcome>& outcomes) {
  const auto written =
      static_cast<uint32_t>(std::count(outcomes.begin(), outcomes.end(), StoreOutcome::kOk));
  job->result.blocks += written;
  job->result.written = written;
  job->result.failed += static_cast<uint32_t>(outcomes.size()) - written;
  EndPublish(*job);
}

void ExchangeJobs::EndPublish(PublishJob& job) {
  EndHold(job.held);
  EndJob(job.prompt_bytes, [&](ExchangeStats& stats) {
    stats.published_blocks += job.result.written;
    stats.published_bytes += job.result.written * block_bytes_;
    stats.skipped_blocks += job.result.skipped;
    stats.failed_blocks += job.result.failed;
  });
  job.done(job.result);
}

}  // namespace pagoda
