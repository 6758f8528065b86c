#include "server/store/cache_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "wire/prefix_fields.h"

namespace pagoda::server {
namespace {

// A tenant can have one part in so many of the fetches that may wait.
constexpr uint32_t kTenantsPart = 4;

// The most calls of PrefetchPrefix for one fetch. Each brings a part of the last tier in memory.
constexpr int kMaxDiskRounds = 16;

absl::StatusOr<OperationResult> RunOne(SharedManager& manager, SessionRef session,
                                       const Operation& operation) {
  absl::StatusOr<BatchResult> batch = manager.Execute(session, {&operation, 1});
  if (!batch.ok()) return batch.status();
  return std::move(batch->results.front());
}

// `Named`: an operation that names a prefix.
template <class Named>
Named NamedBy(const StoredPrompt& prompt) {
  Named named;
  named.name_space = prompt.name_space;
  named.tokens = CopyTokens(prompt.tokens);
  named.extra_token_ids = prompt.extra_token_ids;
  named.multimodal_items = prompt.multimodal_items;
  named.keys = prompt.keys;
  return named;
}

}  // namespace

struct CacheExchange::FetchCall {
  SessionRef session;
  StoredPrompt prompt;
  absl::Time deadline;
  std::shared_ptr<FetchSource> source;  // Also owned by Sources.
  FetchDone done;
  int disk_rounds = 0;
};

CacheExchange::CacheExchange(Options options) : options_(std::move(options)) {
  if (options_.sources == nullptr || !options_.sources->any()) {
    unavailable_ = absl::FailedPreconditionError(
        "the configuration names no store, and no daemons as sources");
    return;
  }
  absl::StatusOr<std::unique_ptr<BlockExchange>> exchange = BlockExchange::Create(
      options_.manager, options_.pools, options_.sources->store(),
      {.fetch_base = options_.fetch.base,
       .fetch_per_1k_tokens = options_.fetch.per_1k_tokens,
       .recompute_tokens_per_second =
           static_cast<double>(options_.fetch.recompute_tokens_per_second),
       .time_to_live = options_.publish.time_to_live,
       .publish_bytes_per_second = static_cast<double>(options_.publish.bytes_per_second),
       .max_waiting = options_.fetch.max_waiting});
  unavailable_ = exchange.status();
  if (!exchange.ok()) return;
  exchange_ = *std::move(exchange);
  if (!has_store() || !options_.publish.enabled) return;
  absl::StatusOr<std::unique_ptr<StorePublisher>> publisher = StorePublisher::Create(
      options_.manager, exchange_.get(),
      {.tenants = options_.publish.tenants, .delay = options_.publish.delay});
  PAGODA_CHECK(publisher.ok(), "the checked configuration names only tenants that exist");
  publisher_ = *std::move(publisher);
}

CacheExchange::~CacheExchange() { Stop(); }

void CacheExchange::Fetch(SessionRef session, StoredPrompt prompt, absl::Duration most,
                          std::shared_ptr<FetchSource> source, FetchDone done) {
  absl::StatusOr<StoredPrompt> confined =
      ConfinedPrompt(*options_.manager, session, std::move(prompt));
  if (!confined.ok()) return done(confined.status());
  if (source != nullptr) {
    if (absl::Status status = CheckReaders(*source, *confined); !status.ok()) return done(status);
  }
  if (!Enter(confined->tenant)) {
    return done(MakeError(Reason::kTooManyCalls,
                          absl::StrCat("the tenant's fetches already wait for ",
                                       options_.fetch.max_waiting / kTenantsPart, " prefixes")));
  }
  // The disk is bounded as the source is.
  const double tokens = static_cast<double>(std::max(
      confined->tokens.size(), confined->keys.size() * options_.manager->info().tokens_per_block));
  most = std::min(most, options_.fetch.base + tokens / 1000 * options_.fetch.per_1k_tokens);
  const auto call = std::make_shared<FetchCall>(FetchCall{.session = session,
                                                          .prompt = *std::move(confined),
                                                          .deadline = SharedManager::Now() + most,
                                                          .source = std::move(source),
                                                          .done = nullptr});
  call->done = [this, tenant = call->prompt.tenant,
                done = std::move(done)](const absl::StatusOr<Fetched>& fetched) {
    if (!tenant.empty()) {
      absl::MutexLock lock(&mutex_);
      const auto count = fetching_.find(tenant);
      if (--count->second == 0) fetching_.erase(count);
    }
    done(fetched);
  };
  FromDisk(call);
}

bool CacheExchange::Enter(const std::string& tenant) {
  if (tenant.empty()) return true;
  absl::MutexLock lock(&mutex_);
  uint32_t& count = fetching_[tenant];
  if (count >= std::max(1u, options_.fetch.max_waiting / kTenantsPart)) return false;
  ++count;
  return true;
}

void CacheExchange::FromDisk(const std::shared_ptr<FetchCall>& call) {
  auto prefetch = NamedBy<PrefetchPrefix>(call->prompt);
  prefetch.target = PrefetchTarget::kMemory;
  prefetch.deadline = std::max(call->deadline - SharedManager::Now(), absl::Milliseconds(1));
  const absl::StatusOr<OperationResult> result =
      RunOne(*options_.manager, call->session, std::move(prefetch));
  if (!result.ok()) return call->done(result.status());
  const auto& prefetched = std::get<PrefetchedPrefix>(*result);
  const Ticket completed = options_.manager->Read(
      [](const BlockManager& core) { return core.completed_ticket(Lane::kFetch); });
  if (prefetched.fetch <= completed || ++call->disk_rounds > kMaxDiskRounds ||
      SharedManager::Now() >= call->deadline) {
    return FromSource(call);
  }
  options_.manager->NotifyWhenDone(Lane::kFetch, prefetched.fetch,
                                   [this, call] { FromDisk(call); });
}

void CacheExchange::FromSource(const std::shared_ptr<FetchCall>& call) {
  if (exchange_ == nullptr) return End(*call, FetchOutcome::kNoSource, 0);
  exchange_->Fetch(
      call->prompt, call->deadline - SharedManager::Now(),
      [this, call](const FetchedPrefix& fetched) {
        End(*call, fetched.outcome, fetched.fetched_tokens);
      },
      call->source);
}

void CacheExchange::End(FetchCall& call, FetchOutcome outcome, uint32_t fetched_tokens) {
  const absl::StatusOr<OperationResult> match =
      RunOne(*options_.manager, call.session, NamedBy<MatchPrefix>(call.prompt));
  if (!match.ok()) return call.done(match.status());
  call.done(Fetched{.outcome = outcome,
                    .matched_tokens = std::get<MatchedPrefix>(*match).matched_tokens,
                    .fetched_tokens = fetched_tokens});
}

void CacheExchange::FetchFrom(std::shared_ptr<FetchSource> source, StoredPrompt prompt,
                              std::function<void(uint32_t)> done) {
  if (exchange_ == nullptr) return done(0);
  exchange_->Fetch(
      std::move(prompt), absl::InfiniteDuration(),
      [done = std::move(done)](const FetchedPrefix& fetched) { done(fetched.fetched_tokens); },
      std::move(source));
}

void CacheExchange::Publish(StoredPrompt prompt, BlockExchange::PublishDone done) {
  if (!has_store()) return done({});
  exchange_->Publish(std::move(prompt), std::move(done));
}

bool CacheExchange::MayPublish(const NamespaceKey& name_space) const {
  const std::vector<std::string>& tenants = options_.publish.tenants;
  return tenants.empty() ||
         std::find(tenants.begin(), tenants.end(), name_space.tenant) != tenants.end();
}

void CacheExchange::Tick() {
  if (options_.sources != nullptr) options_.sources->LogRefusals();
  if (publisher_ != nullptr) publisher_->Tick();
}

void CacheExchange::Stop() {
  if (publisher_ != nullptr) publisher_->Stop();
  if (exchange_ != nullptr) exchange_->Stop();
}

ExchangeStats CacheExchange::stats() const {
  return exchange_ == nullptr ? ExchangeStats() : exchange_->stats();
}

PublisherStats CacheExchange::publisher_stats() const {
  return publisher_ == nullptr ? PublisherStats() : publisher_->stats();
}

absl::StatusOr<StoredPrompt> ConfinedPrompt(const SharedManager& manager, SessionRef session,
                                            StoredPrompt prompt) {
  const absl::StatusOr<TenantId> tenant = manager.TenantOf(session);
  if (!tenant.ok()) return tenant.status();
  const TenantTable& tenants = manager.tenants();
  absl::StatusOr<NamespaceKey> name_space = tenants.Confine(*tenant, prompt.name_space);
  if (!name_space.ok()) return name_space.status();
  prompt.name_space = *std::move(name_space);
  const absl::StatusOr<TenantId> charged =
      tenants.Charged(*tenant, prompt.name_space, prompt.tenant);
  if (!charged.ok()) return charged.status();
  prompt.tenant = tenants[*charged].name;
  return prompt;
}

}  // namespace pagoda::server
