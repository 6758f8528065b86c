// The part of ExchangeJobs that counts jobs and talks to the cache.
#include "manager/exchange/exchange_jobs.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "manager/sequences/operation_checks.h"

namespace pagoda {

ExchangeJobs::ExchangeJobs(SharedManager* manager, PoolSet* pools, Store* store, Options options,
                           std::shared_ptr<ExchangePump> pump)
    : manager_(*manager),
      pools_(*pools),
      // The owner of the exchange owns the store.
      own_(store == nullptr ? nullptr
                            : std::make_shared<FetchSource>(
                                  std::shared_ptr<Store>(std::shared_ptr<void>(), store), true)),
      options_(options),
      tokens_per_block_(manager->info().tokens_per_block),
      layout_(StoredLayout(pools->layout(), 0)),
      block_bytes_([pools] {
        uint64_t bytes = 0;
        for (const PoolLayout& pool : pools->layout().windows()[0].pools) {
          bytes += pool.slot_stride_bytes();
        }
        return bytes;
      }()),
      capacity_(manager->info().windows[0].blocks_in(kPrimaryTier)),
      pump_(std::move(pump)) {}

absl::Status ExchangeJobs::OpenSession() {
  // Without a lease: an operator cannot end it.
  absl::StatusOr<BlockManager::OpenedSession> session =
      manager_.OpenSession("store", absl::InfiniteDuration());
  if (!session.ok()) return session.status();
  session_ = session->ref;
  return absl::OkStatus();
}

void ExchangeJobs::CloseSession() { manager_.CloseSession(session_).IgnoreError(); }

void ExchangeJobs::Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done,
                         std::shared_ptr<FetchSource> source) {
  auto job = std::make_shared<FetchJob>();
  if (source == nullptr) source = own_;
  job->source = std::move(source);
  job->prompt = std::move(prompt);
  job->done = std::move(done);
  job->deadline = Now() + most;
  job->prompt_bytes = BytesOf(job->prompt);
  const FetchOutcome refused = job->source == nullptr
                                   ? FetchOutcome::kNoSource
                                   : Begin(job->prompt_bytes, [this, job] { StartFetch(job); });
  if (refused == FetchOutcome::kFetched) return;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.fetches[static_cast<size_t>(refused)];
  }
  job->done({.outcome = refused});
}

void ExchangeJobs::Publish(StoredPrompt prompt, PublishDone done) {
  auto job = std::make_shared<PublishJob>();
  job->prompt = std::move(prompt);
  job->done = std::move(done);
  job->prompt_bytes = BytesOf(job->prompt);
  if (own_ == nullptr ||
      Begin(job->prompt_bytes, [this, job] { StartPublish(job); }) != FetchOutcome::kFetched) {
    job->done({});
  }
}

void ExchangeJobs::BeginStop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

bool ExchangeJobs::has_ended() const {
  absl::MutexLock lock(&mutex_);
  return stopping_ && jobs_ == 0;
}

ExchangeStats ExchangeJobs::stats() const {
  absl::MutexLock lock(&mutex_);
  ExchangeStats stats = stats_;
  stats.waiting = jobs_;
  if (own_ != nullptr) stats.bytes_per_second = own_->bytes_per_second();
  return stats;
}

// --- Jobs ---

// Takes a job. kFetched: taken; else why not.
FetchOutcome ExchangeJobs::Begin(size_t prompt_bytes, Step step) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return FetchOutcome::kCancelled;
    if (jobs_ >= options_.max_waiting ||
        prompt_bytes > options_.max_waiting_bytes - prompt_bytes_) {
      return FetchOutcome::kRefused;
    }
    ++jobs_;
    prompt_bytes_ += prompt_bytes;
  }
  Post(std::move(step));  // The job counts, so the pump still runs steps.
  return FetchOutcome::kFetched;
}

bool ExchangeJobs::is_stopping() const {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void ExchangeJobs::EndJob(size_t prompt_bytes, const std::function<void(ExchangeStats&)>& change) {
  absl::MutexLock lock(&mutex_);
  change(stats_);
  --jobs_;
  prompt_bytes_ -= prompt_bytes;
}

// --- The cache ---

absl::StatusOr<OperationResult> ExchangeJobs::RunOne(const Operation& operation) {
  absl::StatusOr<BatchResult> batch = manager_.Execute(session_, {&operation, 1});
  if (!batch.ok()) return batch.status();
  return std::move(batch->results.front());
}

absl::StatusOr<AddedSequence> ExchangeJobs::Hold(const StoredPrompt& prompt,
                                                 uint32_t reserved_tokens, Held& held) {
  const SequenceId id(++last_sequence_);
  absl::StatusOr<AddedSequence> added =
      Do<AddedSequence>(AddSequence{.sequence = id,
                                    .name_space = prompt.name_space,
                                    .tokens = prompt.tokens,
                                    .reserved_tokens = reserved_tokens,
                                    .extra_token_ids = prompt.extra_token_ids,
                                    .multimodal_items = prompt.multimodal_items,
                                    .retention = {},
                                    .tenant = prompt.tenant,
                                    .whole_blocks_only = true,
                                    .keys = prompt.keys,
                                    .uncounted = true});
  if (!added.ok()) return added;
  held.sequence = id;
  held.table = added->tables[0].blocks;
  return added;
}

// The store does not touch the slots any more.
void ExchangeJobs::EndHold(Held& held) {
  if (held.sequence == SequenceId()) return;
  Do<FreedSequence>(FreeSequence{.sequence = held.sequence}).status().IgnoreError();
  held.sequence = SequenceId();
}

absl::StatusOr<MatchedPrefix> ExchangeJobs::Match(const StoredPrompt& prompt) {
  absl::Status status = CheckContent(prompt.tokens.size(), prompt.extra_token_ids.size(),
                                     prompt.multimodal_items, nullptr);
  if (!status.ok()) return status;
  if (prompt.name_space.keyed != prompt.tokens.empty() ||
      prompt.name_space.keyed == prompt.keys.empty()) {
    return InvalidArgument("a keyed prompt has keys, and any other has tokens");
  }
  // One token more than the whole blocks, because a match never takes the last one.
  StoredPrompt longer = Longer(prompt);
  return Do<MatchedPrefix>(MatchPrefix{.name_space = std::move(longer.name_space),
                                       .tokens = std::move(longer.tokens),
                                       .extra_token_ids = std::move(longer.extra_token_ids),
                                       .multimodal_items = std::move(longer.multimodal_items),
                                       .keys = std::move(longer.keys)});
}

// The prompt's whole blocks and one token, so that all of them can match.
StoredPrompt ExchangeJobs::Longer(const StoredPrompt& prompt) const {
  if (prompt.name_space.keyed) return prompt;
  const uint32_t whole = prompt.whole_blocks(tokens_per_block_) * tokens_per_block_.value();
  if (prompt.tokens.size() > whole) return FirstOf(prompt, tokens_per_block_, whole + 1);
  StoredPrompt longer = prompt;
  longer.tokens.push_back(0);
  if (!longer.extra_token_ids.empty()) longer.extra_token_ids.push_back(0);
  return longer;
}

StoreKey ExchangeJobs::KeyOf(const ContentDigest& digest) const {
  return {.layout = layout_.bytes, .digest = digest.bytes, .window_size = 0};
}

}  // namespace pagoda
