// The part of BlockExchange::Core that runs jobs and talks to the cache.
#include "manager/exchange/exchange_core.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/operation_checks.h"

namespace pagoda {

BlockExchange::Core::Core(SharedManager* manager, PoolSet* pools, Store* store, Options options)
    : manager_(*manager),
      pools_(*pools),
      store_(*store),
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
      capacity_(manager->info().windows[0].blocks_in(Tier::kPrimary)),
      next_probe_(SharedManager::Now() + options.probe_interval) {}

absl::Status BlockExchange::Core::Start() {
  // Without a lease: an operator cannot end it.
  absl::StatusOr<BlockManager::OpenedSession> session =
      manager_.OpenSession("store", absl::InfiniteDuration());
  if (!session.ok()) return session.status();
  session_ = session->ref;
  absl::MutexLock lock(&stop_mutex_);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::exception& error) {
    manager_.CloseSession(session_).IgnoreError();
    return absl::ResourceExhaustedError(absl::StrCat("an exchange's thread: ", error.what()));
  }
  return absl::OkStatus();
}

void BlockExchange::Core::Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done) {
  auto job = std::make_shared<FetchJob>();
  job->prompt = std::move(prompt);
  job->done = std::move(done);
  job->deadline = SharedManager::Now() + most;
  job->prompt_bytes = BytesOf(job->prompt);
  const FetchOutcome refused = Begin(job->prompt_bytes, [this, job] { StartFetch(job); });
  if (refused == FetchOutcome::kFetched) return;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.fetches[static_cast<size_t>(refused)];
  }
  job->done({.outcome = refused});
}

void BlockExchange::Core::Publish(StoredPrompt prompt, PublishDone done) {
  auto job = std::make_shared<PublishJob>();
  job->prompt = std::move(prompt);
  job->done = std::move(done);
  job->prompt_bytes = BytesOf(job->prompt);
  if (Begin(job->prompt_bytes, [this, job] { StartPublish(job); }) != FetchOutcome::kFetched) {
    job->done({});
  }
}

void BlockExchange::Core::Stop() {
  absl::MutexLock stop_lock(&stop_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) return;
  thread_.join();
  manager_.CloseSession(session_).IgnoreError();
}

ExchangeStats BlockExchange::Core::stats() const {
  absl::MutexLock lock(&mutex_);
  ExchangeStats stats = stats_;
  stats.waiting = jobs_;
  return stats;
}

// --- Jobs ---

void BlockExchange::Core::Run() {
  while (true) {
    Step step;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &Core::HasWorkOrEnds),
                              next_expiry_ - SharedManager::Now());
      if (steps_.empty() && stopping_ && jobs_ == 0) return;
      if (!steps_.empty()) {
        step = std::move(steps_.front());
        steps_.pop_front();
      }
    }
    if (step) step();
    if (next_expiry_ <= SharedManager::Now()) ExpireWaiters();
  }
}

bool BlockExchange::Core::HasWorkOrEnds() const {
  return !steps_.empty() || (stopping_ && jobs_ == 0);
}

// Takes a job. kFetched: taken; else why not.
FetchOutcome BlockExchange::Core::Begin(size_t prompt_bytes, Step step) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return FetchOutcome::kCancelled;
  if (jobs_ >= options_.max_waiting || prompt_bytes > options_.max_waiting_bytes - prompt_bytes_) {
    return FetchOutcome::kRefused;
  }
  ++jobs_;
  prompt_bytes_ += prompt_bytes;
  steps_.push_back(std::move(step));
  return FetchOutcome::kFetched;
}

void BlockExchange::Core::Post(Step step) {
  absl::MutexLock lock(&mutex_);
  steps_.push_back(std::move(step));
}

bool BlockExchange::Core::is_stopping() const {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void BlockExchange::Core::EndJob(size_t prompt_bytes,
                                 const std::function<void(ExchangeStats&)>& change) {
  absl::MutexLock lock(&mutex_);
  change(stats_);
  --jobs_;
  prompt_bytes_ -= prompt_bytes;
}

// --- The cache ---

absl::StatusOr<OperationResult> BlockExchange::Core::RunOne(const Operation& operation) {
  absl::StatusOr<BatchResult> batch = manager_.Execute(session_, {&operation, 1});
  if (!batch.ok()) return batch.status();
  return std::move(batch->results.front());
}

absl::StatusOr<AddedSequence> BlockExchange::Core::Hold(const StoredPrompt& prompt,
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
                                    .keys = prompt.keys});
  if (!added.ok()) return added;
  held.sequence = id;
  held.table = added->tables[0].blocks;
  return added;
}

// The store does not touch the slots any more.
void BlockExchange::Core::LetGo(Held& held) {
  if (held.sequence == SequenceId()) return;
  Do<FreedSequence>(FreeSequence{.sequence = held.sequence}).status().IgnoreError();
  held.sequence = SequenceId();
}

absl::StatusOr<MatchedPrefix> BlockExchange::Core::Match(const StoredPrompt& prompt) {
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
StoredPrompt BlockExchange::Core::Longer(const StoredPrompt& prompt) const {
  if (prompt.name_space.keyed) return prompt;
  const uint32_t whole = prompt.whole_blocks(tokens_per_block_) * tokens_per_block_.value();
  if (prompt.tokens.size() > whole) return FirstOf(prompt, tokens_per_block_, whole + 1);
  StoredPrompt longer = prompt;
  longer.tokens.push_back(0);
  if (!longer.extra_token_ids.empty()) longer.extra_token_ids.push_back(0);
  return longer;
}

StoreKey BlockExchange::Core::KeyOf(const ContentDigest& digest) const {
  return {.layout = layout_.bytes, .digest = digest.bytes, .window_size = 0};
}

}  // namespace pagoda
