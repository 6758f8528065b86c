#include "manager/exchange/block_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/operation.h"

namespace pagoda {
namespace {

constexpr std::array<const char*, kFetchOutcomes> kOutcomeNames = {
    "fetched", "cached",  "missing", "partly",   "failed",
    "slower",  "no_room", "refused", "cancelled"};

// The weight of the newest fetch in the measured rate.
constexpr double kRateWeight = 0.2;

AddSequence SequenceOf(SequenceId id, StoredPrompt prompt, uint32_t reserved_tokens) {
  return {.sequence = id,
          .name_space = std::move(prompt.name_space),
          .tokens = std::move(prompt.tokens),
          .reserved_tokens = reserved_tokens,
          .extra_token_ids = std::move(prompt.extra_token_ids),
          .multimodal_items = std::move(prompt.multimodal_items),
          .retention = {},
          .tenant = std::move(prompt.tenant),
          .whole_blocks_only = true,
          .keys = std::move(prompt.keys)};
}

}  // namespace

const char* FetchOutcomeName(FetchOutcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

// Everything but Post and the calls from outside runs on one thread, so a job's steps need no lock.
// A step that waits ends, and its callback posts the next step.
class BlockExchange::Core : public std::enable_shared_from_this<BlockExchange::Core> {
 public:
  Core(SharedManager* manager, PoolSet* pools, Store* store, Options options, SessionRef session)
      : manager_(*manager),
        pools_(*pools),
        store_(*store),
        options_(options),
        session_(session),
        tokens_per_block_(manager->info().tokens_per_block),
        layout_(StoredLayout(pools->layout(), 0)),
        block_bytes_([pools] {
          uint64_t bytes = 0;
          for (const PoolLayout& pool : pools->layout().windows()[0].pools) {
            bytes += pool.slot_stride_bytes();
          }
          return bytes;
        }()) {}

  absl::Status Start() {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(absl::StrCat("an exchange's thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  void Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done) {
    auto job = std::make_shared<FetchJob>();
    job->prompt = std::move(prompt);
    job->done = std::move(done);
    job->deadline = SharedManager::Now() + most;
    const FetchOutcome refused = Begin([this, job] { StartFetch(job); });
    if (refused == FetchOutcome::kFetched) return;
    {
      absl::MutexLock lock(&mutex_);
      ++stats_.fetches[static_cast<size_t>(refused)];
    }
    job->done({.outcome = refused});
  }

  void Publish(StoredPrompt prompt, PublishDone done) {
    auto job = std::make_shared<PublishJob>();
    job->prompt = std::move(prompt);
    job->done = std::move(done);
    if (Begin([this, job] { StartPublish(job); }) != FetchOutcome::kFetched) job->done({});
  }

  void Stop() {
    absl::MutexLock stop_lock(&stop_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    if (!thread_.joinable()) return;
    thread_.join();
    manager_.CloseSession(session_).IgnoreError();
  }

  ExchangeStats stats() const {
    absl::MutexLock lock(&mutex_);
    ExchangeStats stats = stats_;
    stats.waiting = jobs_;
    return stats;
  }

 private:
  struct FetchJob {
    StoredPrompt prompt;
    FetchDone done;
    absl::Time deadline;
    std::vector<std::shared_ptr<FetchJob>> waiters;  // They lack the same block.

    std::vector<ContentDigest> digests;  // Of the whole blocks.
    uint32_t cached = 0;                 // Blocks from the start.
    uint32_t end = 0;                    // Blocks from the start that the cache or the store has.
    SequenceId sequence;
    uint32_t from = 0;  // The first block that is fetched.
    std::vector<BlockHandle> table;
    absl::Time began;
  };
  struct PublishJob {
    StoredPrompt prompt;
    PublishDone done;
    PublishedPrefix result;
    std::vector<ContentDigest> digests;
    SequenceId sequence;
    std::vector<BlockHandle> table;
    std::vector<uint32_t> missing;  // Blocks that the store lacks.
  };
  using Step = std::function<void()>;

  // --- The thread ---

  void Run() {
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
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !steps_.empty() || (stopping_ && jobs_ == 0);
  }

  // Takes a job. kFetched: taken; else why not.
  FetchOutcome Begin(Step step) {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return FetchOutcome::kCancelled;
    if (jobs_ >= options_.max_waiting) return FetchOutcome::kRefused;
    ++jobs_;
    steps_.push_back(std::move(step));
    return FetchOutcome::kFetched;
  }
  void Post(Step step) {
    absl::MutexLock lock(&mutex_);
    steps_.push_back(std::move(step));
  }
  bool is_stopping() const {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }
  void EndJob(const std::function<void(ExchangeStats&)>& change) {
    absl::MutexLock lock(&mutex_);
    change(stats_);
    --jobs_;
  }

  // --- The cache ---

  template <class Result>
  absl::StatusOr<Result> RunOne(const Operation& operation) {
    absl::StatusOr<BatchResult> batch = manager_.Execute(session_, {&operation, 1});
    if (!batch.ok()) return batch.status();
    absl::StatusOr<OperationResult>& result = batch->results.front();
    if (!result.ok()) return result.status();
    return std::get<Result>(*std::move(result));
  }

  void Free(SequenceId sequence) {
    if (sequence == SequenceId()) return;
    RunOne<FreedSequence>(FreeSequence{.sequence = sequence}).status().IgnoreError();
  }

  absl::StatusOr<MatchedPrefix> Match(const StoredPrompt& prompt) {
    // One token more than the whole blocks, because a match never takes the last one.
    return RunOne<MatchedPrefix>(MatchPrefix{.name_space = prompt.name_space,
                                             .tokens = Longer(prompt).tokens,
                                             .extra_token_ids = Longer(prompt).extra_token_ids,
                                             .multimodal_items = prompt.multimodal_items,
                                             .keys = prompt.keys});
  }

  // The prompt's whole blocks and one token, so that all of them can match.
  StoredPrompt Longer(const StoredPrompt& prompt) const {
    if (prompt.name_space.keyed) return prompt;
    const uint32_t whole = prompt.whole_blocks(tokens_per_block_) * tokens_per_block_.value();
    if (prompt.tokens.size() > whole) return FirstOf(prompt, tokens_per_block_, whole + 1);
    StoredPrompt longer = prompt;
    longer.tokens.push_back(0);
    if (!longer.extra_token_ids.empty()) longer.extra_token_ids.push_back(0);
    return longer;
  }

  StoreKey KeyOf(const ContentDigest& digest) const {
    return {.layout = layout_.bytes, .digest = digest.bytes, .window_size = 0};
  }

  template <class Byte>
  std::vector<absl::Span<Byte>> Pieces(const BlockHandle& block) const {
    std::vector<absl::Span<Byte>> pieces;
    const size_t pools = pools_.layout().windows()[0].pools.size();
    for (uint32_t pool = 0; pool < pools; ++pool) {
      pieces.push_back(pools_.pool(0, pool).slot(block.slot));
    }
    return pieces;
  }

  // --- A fetch ---

  void StartFetch(const std::shared_ptr<FetchJob>& job) {
    const uint32_t whole = job->prompt.whole_blocks(tokens_per_block_);
    if (is_stopping()) return EndFetch(*job, FetchOutcome::kCancelled);
    const absl::StatusOr<MatchedPrefix> match = Match(job->prompt);
    if (!match.ok()) return EndFetch(*job, FetchOutcome::kRefused);
    // What is on disk comes from there: it is nearer.
    const uint32_t tokens = std::max(match->matched_tokens, match->cached_tokens);
    job->cached = std::min(tokens / tokens_per_block_.value(), whole);
    if (job->cached == whole) return EndFetch(*job, FetchOutcome::kCached);
    if (match->cached_tokens / tokens_per_block_.value() >
        match->matched_tokens / tokens_per_block_.value()) {
      // A sequence would not match the blocks on disk, and would need room for them.
      return EndFetch(*job, FetchOutcome::kCached);
    }
    job->digests = DigestsOf(job->prompt, tokens_per_block_, whole);
    const auto [running, is_first] = fetches_.try_emplace(job->digests[job->cached], job);
    if (!is_first) {
      running->second->waiters.push_back(job);
      next_expiry_ = std::min(next_expiry_, job->deadline);
      absl::MutexLock lock(&mutex_);
      ++stats_.joined_fetches;
      return;
    }
    job->deadline = std::min(job->deadline, SharedManager::Now() + Allowed(whole - job->cached));
    std::vector<StoreKey> keys;
    for (uint32_t i = job->cached; i < whole; ++i) keys.push_back(KeyOf(job->digests[i]));
    store_.Exists(std::move(keys), job->deadline - SharedManager::Now(),
                  [core = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                    core->Post([core, job, outcomes] { core->FoundBlocks(job, outcomes); });
                  });
  }

  // Ends the waiting fetches whose deadline has passed.
  void ExpireWaiters() {
    const absl::Time now = SharedManager::Now();
    next_expiry_ = absl::InfiniteFuture();
    std::vector<std::shared_ptr<FetchJob>> expired;
    for (auto& [digest, job] : fetches_) {
      std::erase_if(job->waiters, [&](const std::shared_ptr<FetchJob>& waiter) {
        if (waiter->deadline <= now) {
          expired.push_back(waiter);
          return true;
        }
        next_expiry_ = std::min(next_expiry_, waiter->deadline);
        return false;
      });
    }
    for (const std::shared_ptr<FetchJob>& waiter : expired) {
      EndFetch(*waiter, FetchOutcome::kFailed);
    }
  }

  absl::Duration Allowed(uint32_t blocks) const {
    return options_.fetch_base +
           options_.fetch_per_1k_tokens * (blocks * tokens_per_block_.value() / 1000.0);
  }

  void FoundBlocks(const std::shared_ptr<FetchJob>& job,
                   const std::vector<StoreOutcome>& outcomes) {
    const auto gap = std::find_if(outcomes.begin(), outcomes.end(), [](StoreOutcome outcome) {
      return outcome != StoreOutcome::kOk;
    });
    const auto found = static_cast<uint32_t>(gap - outcomes.begin());
    if (is_stopping()) return LeaveFetch(job, FetchOutcome::kCancelled, 0);
    if (found == 0) {
      const bool is_missing = *gap == StoreOutcome::kMissing;
      return LeaveFetch(job, is_missing ? FetchOutcome::kMissing : FetchOutcome::kFailed, 0);
    }
    if (IsSlower(found)) return LeaveFetch(job, FetchOutcome::kSlower, 0);
    job->end = job->cached + found;
    Reserve(job);
  }

  // Whether computing the blocks is predicted to take less time than fetching them.
  bool IsSlower(uint32_t blocks) const {
    if (options_.recompute_tokens_per_second <= 0) return false;
    absl::MutexLock lock(&mutex_);
    const double rate =
        stats_.bytes_per_second > 0 ? stats_.bytes_per_second : options_.assumed_bytes_per_second;
    const double fetch = static_cast<double>(blocks * block_bytes_) / rate;
    const double compute =
        blocks * tokens_per_block_.value() / options_.recompute_tokens_per_second;
    return fetch > compute;
  }

  void Reserve(const std::shared_ptr<FetchJob>& job) {
    const uint32_t tokens = job->end * tokens_per_block_.value();
    const SequenceId id = NextSequence();
    absl::StatusOr<AddedSequence> added = RunOne<AddedSequence>(
        SequenceOf(id, FirstOf(job->prompt, tokens_per_block_, tokens), tokens));
    if (!added.ok()) {
      const bool is_full = absl::IsResourceExhausted(added.status()) ||
                           ReasonOf(added.status()) == Reason::kInvalidCount;
      return LeaveFetch(job, is_full ? FetchOutcome::kNoRoom : FetchOutcome::kRefused, 0);
    }
    job->sequence = id;
    // The cache can have more or fewer blocks than when the job began.
    job->from = added->matched_tokens / tokens_per_block_.value();
    job->table = std::move(added->tables[0].blocks);
    // If blocks at the beginning have gone meanwhile, the sequence lacks blocks that were not asked
    // for. They may be in the store, and if not, the fetch ends before them.
    manager_.NotifyWhenDone(added->ready, [core = shared_from_this(), job] {
      core->Post([core, job] { core->GetBlocks(job); });
    });
  }

  void GetBlocks(const std::shared_ptr<FetchJob>& job) {
    if (is_stopping()) return LeaveFetch(job, FetchOutcome::kCancelled, 0);
    std::vector<Store::Read> reads;
    for (uint32_t i = job->from; i < job->end; ++i) {
      reads.push_back({KeyOf(job->digests[i]), Pieces<std::byte>(job->table[i])});
    }
    job->began = SharedManager::Now();
    store_.Get(std::move(reads), job->deadline - job->began,
               [core = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                 core->Post([core, job, outcomes] { core->GotBlocks(job, outcomes); });
               });
  }

  void GotBlocks(const std::shared_ptr<FetchJob>& job, const std::vector<StoreOutcome>& outcomes) {
    const auto gap = std::find_if(outcomes.begin(), outcomes.end(), [](StoreOutcome outcome) {
      return outcome != StoreOutcome::kOk;
    });
    const auto good = static_cast<uint32_t>(gap - outcomes.begin());
    NoteRate(*job, outcomes);
    if (good == 0) return LeaveFetch(job, FetchOutcome::kFailed, 0);
    const uint32_t computed = (job->from + good) * tokens_per_block_.value();
    const absl::Status committed =
        RunOne<CommittedTokens>(
            CommitTokens{.sequence = job->sequence, .tokens = {}, .computed_tokens = computed})
            .status();
    if (!committed.ok()) return LeaveFetch(job, FetchOutcome::kFailed, 0);
    LeaveFetch(job, gap == outcomes.end() ? FetchOutcome::kFetched : FetchOutcome::kPartly, good);
  }

  void NoteRate(const FetchJob& job, const std::vector<StoreOutcome>& outcomes) {
    const auto count = [&outcomes](StoreOutcome outcome) {
      return static_cast<uint64_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
    };
    const uint64_t good = count(StoreOutcome::kOk);
    const double seconds = absl::ToDoubleSeconds(SharedManager::Now() - job.began);
    absl::MutexLock lock(&mutex_);
    stats_.invalid_blocks += count(StoreOutcome::kInvalid);
    // A fetch that brought nothing by its deadline says that the store is slow.
    if (good == 0 && count(StoreOutcome::kTimedOut) == 0) return;
    const double rate = static_cast<double>(good * block_bytes_) / std::max(seconds, 1e-6);
    double& known = stats_.bytes_per_second;
    known = known > 0 ? known + kRateWeight * (rate - known) : rate;
    known = std::max(known, 1.0);
  }

  // The job lets others ask for its blocks, and ends. `good`: blocks that it brought.
  void LeaveFetch(const std::shared_ptr<FetchJob>& job, FetchOutcome outcome, uint32_t good) {
    Free(job->sequence);
    fetches_.erase(job->digests[job->cached]);
    const std::vector<std::shared_ptr<FetchJob>> waiters = std::exchange(job->waiters, {});
    EndFetch(*job, outcome, good);
    for (const std::shared_ptr<FetchJob>& waiter : waiters) {
      // It may want more blocks than came. If none came, none would come for it either.
      if (good > 0 && waiter->deadline > SharedManager::Now()) {
        StartFetch(waiter);
      } else {
        EndFetch(*waiter, outcome);
      }
    }
  }

  void EndFetch(FetchJob& job, FetchOutcome outcome, uint32_t good = 0) {
    EndJob([&](ExchangeStats& stats) {
      ++stats.fetches[static_cast<size_t>(outcome)];
      stats.fetched_blocks += good;
      stats.fetched_bytes += good * block_bytes_;
    });
    job.done({.outcome = outcome,
              .cached_tokens = job.cached * tokens_per_block_.value(),
              .fetched_tokens = good * tokens_per_block_.value()});
  }

  // --- A publish ---

  void StartPublish(const std::shared_ptr<PublishJob>& job) {
    if (is_stopping()) return EndPublish(*job);
    const absl::StatusOr<MatchedPrefix> match = Match(job->prompt);
    if (!match.ok()) return EndPublish(*job);
    const uint32_t blocks = std::min(match->matched_tokens / tokens_per_block_.value(),
                                     job->prompt.whole_blocks(tokens_per_block_));
    if (blocks == 0) return EndPublish(*job);
    const uint32_t tokens = blocks * tokens_per_block_.value();
    job->prompt = FirstOf(job->prompt, tokens_per_block_, tokens);
    job->digests = DigestsOf(job->prompt, tokens_per_block_, blocks);
    std::vector<StoreKey> keys;
    for (const ContentDigest& digest : job->digests) keys.push_back(KeyOf(digest));
    store_.Exists(std::move(keys), options_.publish_timeout,
                  [core = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                    core->Post([core, job, outcomes] { core->FoundMissing(job, outcomes); });
                  });
  }

  void FoundMissing(const std::shared_ptr<PublishJob>& job,
                    const std::vector<StoreOutcome>& outcomes) {
    if (is_stopping()) return EndPublish(*job);
    for (uint32_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i] == StoreOutcome::kOk) ++job->result.blocks;
      if (outcomes[i] == StoreOutcome::kMissing) job->missing.push_back(i);
    }
    // The store is not there for the others.
    job->result.failed =
        static_cast<uint32_t>(outcomes.size() - job->missing.size()) - job->result.blocks;
    const uint32_t allowed = TakeBudget(static_cast<uint32_t>(job->missing.size()));
    job->result.skipped = static_cast<uint32_t>(job->missing.size()) - allowed;
    job->missing.resize(allowed);
    if (job->missing.empty()) return EndPublish(*job);
    // A sequence holds the blocks while they are read. It takes no new ones.
    const SequenceId id = NextSequence();
    const uint32_t tokens = static_cast<uint32_t>(job->digests.size()) * tokens_per_block_.value();
    absl::StatusOr<AddedSequence> added =
        RunOne<AddedSequence>(SequenceOf(id, Longer(job->prompt), tokens));
    if (!added.ok()) {
      job->result.failed += static_cast<uint32_t>(job->missing.size());
      return EndPublish(*job);
    }
    job->sequence = id;
    job->table = std::move(added->tables[0].blocks);
    // Blocks can have gone since the match.
    const uint32_t matched = added->matched_tokens / tokens_per_block_.value();
    const size_t before = job->missing.size();
    std::erase_if(job->missing, [matched](uint32_t block) { return block >= matched; });
    job->result.failed += static_cast<uint32_t>(before - job->missing.size());
    if (job->missing.empty()) return EndPublish(*job);
    manager_.NotifyWhenDone(added->ready, [core = shared_from_this(), job] {
      core->Post([core, job] { core->PutBlocks(job); });
    });
  }

  // How many of the blocks may be written now.
  uint32_t TakeBudget(uint32_t blocks) {
    const double rate = options_.publish_bytes_per_second;
    if (rate <= 0) return blocks;
    const absl::Time now = SharedManager::Now();
    // A block that is larger than a second's budget is written when all of the budget is there.
    const double most = std::max(rate, static_cast<double>(block_bytes_));
    budget_ = budget_at_ == absl::InfinitePast()
                  ? most
                  : std::min(most, budget_ + rate * absl::ToDoubleSeconds(now - budget_at_));
    budget_at_ = now;
    const double whole = std::floor(budget_ / static_cast<double>(block_bytes_));
    const auto allowed = static_cast<uint32_t>(std::min<double>(whole, blocks));
    budget_ -= static_cast<double>(allowed * block_bytes_);
    return allowed;
  }

  void PutBlocks(const std::shared_ptr<PublishJob>& job) {
    if (is_stopping()) return EndPublish(*job);
    std::vector<Store::Write> writes;
    for (const uint32_t block : job->missing) {
      writes.push_back({KeyOf(job->digests[block]), Pieces<const std::byte>(job->table[block])});
    }
    store_.Put(std::move(writes), options_.time_to_live, options_.publish_timeout,
               [core = shared_from_this(), job](const std::vector<StoreOutcome>& outcomes) {
                 core->Post([core, job, outcomes] {
                   const auto written = static_cast<uint32_t>(
                       std::count(outcomes.begin(), outcomes.end(), StoreOutcome::kOk));
                   job->result.blocks += written;
                   job->result.written = written;
                   job->result.failed += static_cast<uint32_t>(outcomes.size()) - written;
                   core->EndPublish(*job);
                 });
               });
  }

  void EndPublish(PublishJob& job) {
    Free(job.sequence);
    EndJob([&](ExchangeStats& stats) {
      stats.published_blocks += job.result.written;
      stats.published_bytes += job.result.written * block_bytes_;
      stats.skipped_blocks += job.result.skipped;
      stats.failed_blocks += job.result.failed;
    });
    job.done(job.result);
  }

  SequenceId NextSequence() { return SequenceId(++last_sequence_); }

  SharedManager& manager_;
  PoolSet& pools_;
  Store& store_;
  const Options options_;
  const SessionRef session_;
  const TokensPerBlock tokens_per_block_;
  const ContentDigest layout_;
  const uint64_t block_bytes_;
  std::thread thread_ ABSL_GUARDED_BY(stop_mutex_);

  // Of the thread.
  absl::flat_hash_map<ContentDigest, std::shared_ptr<FetchJob>> fetches_;  // By the first missing
                                                                           // block.
  absl::Time next_expiry_ = absl::InfiniteFuture();                        // Of a waiting fetch.
  uint64_t last_sequence_ = 0;
  double budget_ = 0;  // Bytes that may be published now, as of budget_at_.
  absl::Time budget_at_ = absl::InfinitePast();

  absl::Mutex stop_mutex_;  // Before mutex_.
  mutable absl::Mutex mutex_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  size_t jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ExchangeStats stats_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<BlockExchange>> BlockExchange::Create(SharedManager* manager,
                                                                     PoolSet* pools, Store* store,
                                                                     Options options) {
  const CacheLayout& layout = pools->layout();
  if (layout.spec().model_fingerprint.empty()) {
    return InvalidArgument(
        "a cache that exchanges blocks with a store needs a model fingerprint: without it, blocks "
        "of different models could mix");
  }
  if (layout.windows().size() != 1 || layout.windows()[0].window != kFullAttention) {
    return absl::UnimplementedError("blocks of sliding windows are not exchanged with a store");
  }
  if (pools->place(Tier::kPrimary).kind != MemoryKind::kHost) {
    return absl::UnimplementedError("blocks on a device are not exchanged with a store");
  }
  absl::StatusOr<BlockManager::OpenedSession> session =
      manager->OpenSession("store", absl::InfiniteDuration());
  if (!session.ok()) return session.status();
  auto core = std::make_shared<Core>(manager, pools, store, options, session->ref);
  if (absl::Status status = core->Start(); !status.ok()) {
    manager->CloseSession(session->ref).IgnoreError();
    return status;
  }
  return absl::WrapUnique(new BlockExchange(std::move(core)));
}

BlockExchange::BlockExchange(std::shared_ptr<Core> core) : core_(std::move(core)) {}

BlockExchange::~BlockExchange() { Stop(); }

void BlockExchange::Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done) {
  core_->Fetch(std::move(prompt), most, std::move(done));
}

void BlockExchange::Publish(StoredPrompt prompt, PublishDone done) {
  core_->Publish(std::move(prompt), std::move(done));
}

void BlockExchange::Stop() { core_->Stop(); }

ExchangeStats BlockExchange::stats() const { return core_->stats(); }

}  // namespace pagoda
