#include "tests/sim/exchange/exchange.h"

#include <algorithm>

#include "manager/cache_lists.h"
#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Text;

// A withdrawn value has no bytes and ends at once.
bool IsWithdrawal(const std::vector<Store::Write>& batch) {
  return !batch.empty() && batch.front().pieces.empty();
}

}  // namespace

SimExchange::SimExchange(Surroundings* surroundings, SimCache* cache,
                         std::array<Values*, kSources> values, uint64_t stream)
    : surroundings_(*surroundings),
      cache_(*cache),
      options_(cache->config().exchange),
      pump_(std::make_shared<SimPump>(&surroundings->timeline)) {
  for (size_t i = 0; i < kSources; ++i) {
    sources_[i] = std::make_unique<Source>();
    Source& source = *sources_[i];
    source.exchange = this;
    source.index = i;
    source.store =
        std::make_shared<SimStore>(surroundings, values[i], &source, stream * kSources + i);
    source.speed = std::make_shared<FetchSource>(source.store);
  }
  jobs_ = std::make_shared<ExchangeJobs>(&cache->manager(), &cache->pools(),
                                         sources_[kOwnStore]->store.get(), options_, pump_);
  for (const PoolLayout& pool : surroundings->library.pools()) {
    block_bytes_ += pool.slot_stride_bytes();
  }
  SIM_CHECK(jobs_->OpenSession().ok(), "no session");
  for (const SessionRow& row : cache->manager().Read([&](const BlockManager& core) {
         return core.lists().Sessions(SessionId(0), 100, cache->manager().now());
       })) {
    if (row.client_name == "store") session_.id = row.session;
  }
}

SimExchange::~SimExchange() { SIM_CHECK(is_closed_, "an exchange is dropped while it works"); }

// --- Jobs ---

size_t SimExchange::NewJob(absl::Time deadline) {
  all_jobs_.push_back({.deadline = deadline});
  return all_jobs_.size() - 1;
}

void SimExchange::Fetch(const StoredPrompt& prompt, absl::Duration most, size_t source) {
  const TokensPerBlock per_block(surroundings_.config.tokens_per_block);
  surroundings_.library.Name(cache_.config().model, prompt);
  const uint32_t whole = std::min(prompt.whole_blocks(per_block), cache_.config().blocks);
  const absl::Duration allowed =
      options_.fetch_base + options_.fetch_per_1k_tokens * (whole * per_block.value() / 1000.0);
  const size_t job = NewJob(surroundings_.timeline.now() + std::min(most, allowed));
  if (surroundings_.trace->on()) {
    surroundings_.trace->Add(Text("  fetch ", job, ": ", whole, " blocks, at most ",
                                  absl::FormatDuration(std::min(most, allowed)),
                                  source == kPeer ? ", from the peer" : ""));
  }
  pump_->In({.kind = Context::Kind::kFetch}, [&] {
    const auto done = [this, job, whole, prompt, source](const FetchedPrefix& fetched) {
      Report(job, FetchOutcomeName(fetched.outcome));
      CheckOutcome(fetched, whole);
      last_fetch_ = fetched;
      surroundings_.coverage.Add(static_cast<Met>(fetched.outcome));
      if (fetched.fetched_tokens > 0 && prompt.name_space.keyed) {
        surroundings_.coverage.Add(Met::kKeyed);
      }
      if (fetched.fetched_tokens > 0 && !prompt.name_space.tenant.empty()) {
        surroundings_.coverage.Add(Met::kOfTenant);
      }
      if (fetched.fetched_tokens > 0 && source == kPeer) {
        surroundings_.coverage.Add(Met::kFromPeer);
      }
      // A report can begin the next one.
      if (all_jobs_.size() % 16 != 0 || fetched.outcome == FetchOutcome::kRefused ||
          fetched.outcome == FetchOutcome::kCancelled) {
        return;
      }
      surroundings_.coverage.Add(Met::kNested);
      Fetch(prompt, absl::Milliseconds(20), kOwnStore);
    };
    jobs_->Fetch(prompt, most, done, source == kPeer ? sources_[kPeer]->speed : nullptr);
  });
}

void SimExchange::CheckOutcome(const FetchedPrefix& fetched, uint32_t whole_blocks) {
  surroundings_.Note(static_cast<uint64_t>(fetched.outcome) << 32 | fetched.fetched_tokens);
  const uint32_t size = surroundings_.config.tokens_per_block;
  SIM_CHECK(fetched.cached_tokens % size == 0 && fetched.fetched_tokens % size == 0,
            "a fetch brings whole blocks");
  SIM_CHECK(fetched.cached_tokens + fetched.fetched_tokens <= whole_blocks * size,
            "a fetch brings more than its prompt has");
  const bool brought =
      fetched.outcome == FetchOutcome::kFetched || fetched.outcome == FetchOutcome::kPartly;
  SIM_CHECK(fetched.outcome <= FetchOutcome::kCancelled, "an exchange with a store has a source");
  SIM_CHECK(brought == (fetched.fetched_tokens > 0), "a fetch that is ",
            FetchOutcomeName(fetched.outcome), " has brought ", fetched.fetched_tokens);
}

void SimExchange::Publish(const StoredPrompt& prompt) {
  surroundings_.library.Name(cache_.config().model, prompt);
  const size_t job = NewJob(absl::InfiniteFuture());
  if (surroundings_.trace->on()) surroundings_.trace->Add(Text("  publish ", job));
  pump_->In({.kind = Context::Kind::kPublish}, [&] {
    jobs_->Publish(prompt, [this, job](const PublishedPrefix& published) {
      Report(job, "published");
      SIM_CHECK(published.written <= published.blocks, "more blocks written than in the store");
      last_publish_ = published;
      published_blocks_ += published.written;
      surroundings_.coverage.Add(Met::kWritten, published.written);
      surroundings_.coverage.Add(Met::kFound, published.blocks - published.written);
      surroundings_.coverage.Add(Met::kUnwritten, published.failed);
      surroundings_.coverage.Add(Met::kOverBudget, published.skipped);
    });
  });
}

void SimExchange::Report(size_t job, const char* what) {
  Job& reported = all_jobs_[job];
  if (surroundings_.trace->on()) {
    surroundings_.trace->Add(Text("  job ", job, " ends: ", what, " at ",
                                  absl::FormatTime(surroundings_.timeline.now())));
  }
  SIM_CHECK(!reported.is_reported, "job ", job, " is reported twice");
  SIM_CHECK(!is_closed_, "job ", job, " is reported after the end of its exchange");
  reported.is_reported = true;
  surroundings_.Note(job);
  // The store can report a lag after the deadline, and after that the withdrawal of what it read.
  const absl::Duration late = surroundings_.timeline.now() - reported.deadline;
  SIM_CHECK(late <= 2 * surroundings_.config.store.lag, "a fetch ends ", absl::FormatDuration(late),
            " after its deadline");
}

// --- Steps ---

void SimExchange::RunStep() {
  auto [step, context] = pump_->Take();
  const double rate = RateOf(context.source);
  const std::vector<SequenceId> before = HeldSequences();
  if (context.first.has_value()) asked_.erase({context.source, *context.first});
  const bool decides = context.found > 0 && !is_stopping_;
  pump_->In({.kind = context.kind}, step);
  step = nullptr;
  if (!context.first.has_value()) return;
  const std::vector<SequenceId> after = HeldSequences();
  const bool is_begun = after.size() > before.size();
  if (is_begun) fetched_[after.back()] = {context.source, *context.first};
  if (decides) CheckDecision(context, rate, is_begun);
}

void SimExchange::Expire() {
  const uint64_t failed = jobs_->stats().fetches[static_cast<size_t>(FetchOutcome::kFailed)];
  pump_->In({.kind = Context::Kind::kFetch}, [&] { jobs_->Expire(); });
  surroundings_.coverage.Add(
      Met::kExpired, jobs_->stats().fetches[static_cast<size_t>(FetchOutcome::kFailed)] - failed);
}

double SimExchange::RateOf(size_t source) const {
  return source == kOwnStore ? jobs_->stats().bytes_per_second
                             : sources_[source]->speed->bytes_per_second();
}

// A fetch that is predicted slower than computing is begun only as a probe.
void SimExchange::CheckDecision(const Context& context, double rate, bool is_begun) {
  if (options_.recompute_tokens_per_second <= 0) return;
  const double compute =
      context.found * surroundings_.config.tokens_per_block / options_.recompute_tokens_per_second;
  const double known = rate > 0 ? rate : options_.assumed_bytes_per_second;
  if (static_cast<double>(context.found * block_bytes_) / known <= compute) return;
  const absl::Time now = surroundings_.timeline.now();
  absl::Time& slow_since = sources_[context.source]->slow_since;
  slow_since = std::min(slow_since, now);
  const bool is_probe = now >= slow_since + options_.probe_interval;
  if (surroundings_.trace->on()) {
    surroundings_.trace->Add(Text("  ", context.found, " blocks at ", known, " B/s are slower",
                                  is_probe ? ", a probe" : ""));
  }
  SIM_CHECK(is_probe || !is_begun,
            "a fetch is begun that is predicted to be slower than computing");
  if (!is_probe) return;
  slow_since = now;
  surroundings_.coverage.Add(Met::kProbe);
}

// Ascending, so the newest is the last.
std::vector<SequenceId> SimExchange::HeldSequences() const {
  std::vector<SequenceId> held;
  for (const SequenceRow& row : cache_.manager().Read([&](const BlockManager& core) {
         return core.lists().Sequences(session_.id, SequenceKey{}, 1000);
       })) {
    held.push_back(row.sequence);
  }
  return held;
}

void SimExchange::Check() {
  const ExchangeStats stats = jobs_->stats();
  const auto open = static_cast<size_t>(std::count_if(
      all_jobs_.begin(), all_jobs_.end(), [](const Job& job) { return !job.is_reported; }));
  SIM_CHECK(stats.waiting == open, stats.waiting, " jobs wait, and ", open, " are not reported");
  SIM_CHECK(stats.waiting <= options_.max_waiting, "more jobs wait than allowed");
  for (size_t i = 0; i < all_jobs_.size(); ++i) {
    const Job& job = all_jobs_[i];
    SIM_CHECK(job.is_reported ||
                  surroundings_.timeline.now() <= job.deadline + 2 * surroundings_.config.store.lag,
              "fetch ", i, " waits after its deadline");
  }
  SIM_CHECK(HeldSequences().size() <= stats.waiting, "an ended job holds slots");
  if (stats.waiting > 0) return;
  for (const std::unique_ptr<Source>& source : sources_) {
    SIM_CHECK(source->to_withdraw.empty(), "an invalid value stays in the store");
    SIM_CHECK(!source->store->has_calls(), "a store has the memory of an ended job");
  }
  uint64_t fetches = 0;
  for (const uint64_t count : stats.fetches) fetches += count;
  SIM_CHECK(stats.published_blocks == published_blocks_, "published blocks are miscounted");
}

void SimExchange::Close() {
  SIM_CHECK(!pump_->has_steps(), "a step waits, and no job is left");
  pump_->Close();
  jobs_->CloseSession();
  Check();
  for (const Job& job : all_jobs_) SIM_CHECK(job.is_reported, "a job is never reported");
  const ExchangeStats stats = jobs_->stats();
  surroundings_.coverage.Add(Met::kJoined, stats.joined_fetches);
  surroundings_.coverage.Add(Met::kInvalid, stats.invalid_blocks);
  is_closed_ = true;
}

// --- What the stores see ---

StoreWatcher::Around SimExchange::Source::Got(const std::vector<Store::Read>& batch) {
  if (exchange->cache_.config().model != "org/model") {
    exchange->surroundings_.coverage.Add(Met::kForeign);
  }
  std::vector<Key> keys;
  for (const Store::Read& read : batch) keys.push_back(read.key.digest);
  return [this, keys](const std::vector<StoreOutcome>& outcomes, const Store::Done& done) {
    for (size_t i = 0; i < outcomes.size(); ++i) {
      // What another machine has cached is not ours to withdraw.
      if (outcomes[i] == StoreOutcome::kInvalid && index == kOwnStore) ++to_withdraw[keys[i]];
    }
    exchange->pump_->In({.kind = Context::Kind::kFetch}, [&] { done(outcomes); });
  };
}

StoreWatcher::Around SimExchange::Source::Put(const std::vector<Store::Write>& batch,
                                              absl::Duration time_to_live) {
  SIM_CHECK(index == kOwnStore, "a block is written to a peer");
  const bool withdraws = IsWithdrawal(batch);
  if (!withdraws) exchange->CheckBudget(batch.size() * exchange->block_bytes_);
  for (const Store::Write& write : batch) {
    SIM_CHECK(write.pieces.empty() == withdraws, "a block is published without bytes");
    if (!withdraws) continue;
    SIM_CHECK(time_to_live == absl::Milliseconds(1), "a withdrawn value ends at once");
    const auto found = to_withdraw.find(write.key.digest);
    SIM_CHECK(found != to_withdraw.end(), "a value is withdrawn that is good");
    if (--found->second == 0) to_withdraw.erase(found);
    exchange->surroundings_.coverage.Add(Met::kWithdrawn);
  }
  const auto kind = withdraws ? Context::Kind::kFetch : Context::Kind::kPublish;
  return [this, kind](const std::vector<StoreOutcome>& outcomes, const Store::Done& done) {
    exchange->pump_->In({.kind = kind}, [&] { done(outcomes); });
  };
}

StoreWatcher::Around SimExchange::Source::Asked(const std::vector<StoreKey>& batch) {
  const Context::Kind kind = exchange->pump_->context().kind;
  SIM_CHECK(kind != Context::Kind::kUnknown, "a question whose job is unknown");
  const Key first = batch.front().digest;
  if (kind == Context::Kind::kFetch) exchange->CheckOneAsks({index, first});
  return [this, kind, first](const std::vector<StoreOutcome>& outcomes, const Store::Done& done) {
    Context context{.kind = kind, .source = index};
    if (kind == Context::Kind::kFetch) {
      const auto end = std::find_if(outcomes.begin(), outcomes.end(), [](StoreOutcome outcome) {
        return outcome != StoreOutcome::kOk;
      });
      context.first = first;
      context.found = static_cast<uint32_t>(end - outcomes.begin());
    }
    exchange->pump_->In(context, [&] { done(outcomes); });
  };
}

// Among the fetches from a source that lack the same block, only one asks for it. The others wait
// until it has freed its slots.
void SimExchange::CheckOneAsks(const Question& first) {
  const std::vector<SequenceId> held = HeldSequences();
  std::erase_if(fetched_, [&held](const auto& fetch) {
    return std::find(held.begin(), held.end(), fetch.first) == held.end();
  });
  const bool is_fetched = std::any_of(fetched_.begin(), fetched_.end(),
                                      [&](const auto& fetch) { return fetch.second == first; });
  SIM_CHECK(!is_fetched && asked_.insert(first).second,
            "two fetches ask a source for one block at a time");
}

// In any span of time, at most a burst and what the span allows.
void SimExchange::CheckBudget(uint64_t bytes) {
  const double rate = options_.publish_bytes_per_second;
  if (rate <= 0) return;
  const absl::Time now = surroundings_.timeline.now();
  sent_.emplace_back(now, bytes);
  const double burst = std::max(rate, static_cast<double>(block_bytes_));
  double sum = 0;
  for (size_t i = sent_.size(); i-- > 0;) {
    sum += static_cast<double>(sent_[i].second);
    const double allowed = burst + rate * absl::ToDoubleSeconds(now - sent_[i].first);
    SIM_CHECK(sum <= allowed + 1, "in ", absl::FormatDuration(now - sent_[i].first), ' ', sum,
              " bytes are published, and ", allowed, " are allowed");
  }
}

}  // namespace pagoda::exchange_sim
