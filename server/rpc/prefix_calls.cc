// The methods of CacheService that move prefixes between machines.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/error.h"
#include "manager/api/operation.h"
#include "manager/exchange/block_exchange.h"
#include "manager/exchange/fetch_source.h"
#include "manager/exchange/stored_prefix.h"
#include "server/calls/reactors.h"
#include "server/rpc/cache_service.h"
#include "server/store/cache_exchange.h"
#include "wire/errors.h"
#include "wire/prefix_fields.h"
#include "wire/retention_fields.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// Without a limit of the client only the configuration's holds.
constexpr absl::Duration kNoLimit = absl::Hours(1);

// A pinned prefix, and how many of its tokens other daemons can fetch.
struct Exported {
  uint32_t tokens = 0;
  PinId pin{0};
};

absl::StatusOr<Exported> Pin(SharedManager& manager, SessionRef session, StoredPrompt prompt,
                             absl::Duration lease) {
  const MatchPrefix match{.name_space = prompt.name_space,
                          .tokens = prompt.tokens,
                          .extra_token_ids = prompt.extra_token_ids,
                          .multimodal_items = prompt.multimodal_items,
                          .keys = prompt.keys};
  const Operation operations[] = {PinPrefix{.name_space = std::move(prompt.name_space),
                                            .tokens = std::move(prompt.tokens),
                                            .lease = lease,
                                            .extra_token_ids = std::move(prompt.extra_token_ids),
                                            .multimodal_items = std::move(prompt.multimodal_items),
                                            .keys = std::move(prompt.keys)},
                                  match};
  absl::StatusOr<BatchResult> batch = manager.Execute(session, operations);
  if (!batch.ok()) return batch.status();
  for (const absl::StatusOr<OperationResult>& result : batch->results) {
    if (!result.ok()) return result.status();
  }
  const auto& pinned = std::get<PinnedPrefix>(*batch->results[0]);
  // Other daemons read memory alone. A match leaves out the last token of a prompt; here it counts,
  // because its block is pinned too.
  const auto& matched = std::get<MatchedPrefix>(*batch->results[1]);
  const uint32_t block = manager.info().tokens_per_block;
  const bool all_in_memory = matched.cached_tokens <= matched.matched_tokens;
  const uint32_t tokens =
      all_in_memory ? pinned.pinned_tokens : std::min(pinned.pinned_tokens, matched.matched_tokens);
  return Exported{.tokens = tokens / block * block, .pin = pinned.pin};
}

}  // namespace

absl::StatusOr<CachePtr> CacheService::CheckPrefixCall(const Identity& caller,
                                                       const v1::SessionRef& session) {
  // A call that has waited in the queue was admitted before the calls behind it.
  const BatchRun::Context limits = batch_context(caller.tenant);
  const absl::Status capacity =
      TenantQueues::OnItsThread() ? absl::OkStatus() : limits.CheckCapacity();
  if (!capacity.ok()) return capacity;
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  return CheckSession(caller, session);
}

void CacheService::FetchPrefix(grpc::ServerUnaryReactor* call, const Identity& caller,
                               const v1::FetchPrefixRequest& request,
                               v1::FetchPrefixResponse* response) {
  const absl::StatusOr<CachePtr> cache = CheckPrefixCall(caller, request.session());
  if (!cache.ok()) return Answer(call, cache.status());
  absl::StatusOr<StoredPrompt> prompt = PrefixFromProto<StoredPrompt>(request);
  if (!prompt.ok()) return Answer(call, prompt.status());
  prompt->tenant = request.tenant();
  absl::StatusOr<std::shared_ptr<FetchSource>> source =
      FindSource(options_.sources, request.source().address());
  if (!source.ok()) return Answer(call, source.status());
  absl::Duration most = kNoLimit;
  if (request.has_deadline_ms()) {
    const absl::StatusOr<absl::Duration> deadline =
        DurationFromMilliseconds("deadline_ms", request.deadline_ms());
    if (!deadline.ok()) return Answer(call, deadline.status());
    most = std::min(*deadline, kNoLimit);
  }
  // The call keeps the cache until it is answered.
  (*cache)->exchange->Fetch(
      SessionFromProto(request.session()), *std::move(prompt), most, *std::move(source),
      [call, response, cache = *cache](const absl::StatusOr<CacheExchange::Fetched>& fetched) {
        if (fetched.ok()) {
          response->set_outcome(FetchOutcomeToProto(fetched->outcome));
          response->set_matched_tokens(fetched->matched_tokens);
          response->set_fetched_tokens(fetched->fetched_tokens);
        }
        Answer(call, fetched.status());
      });
}

void CacheService::ExportPrefix(grpc::ServerUnaryReactor* call, const Identity& caller,
                                const v1::ExportPrefixRequest& request,
                                v1::ExportPrefixResponse* response) {
  const absl::StatusOr<CachePtr> cache = CheckPrefixCall(caller, request.session());
  if (!cache.ok()) return Answer(call, cache.status());
  absl::StatusOr<StoredPrompt> prompt = PrefixFromProto<StoredPrompt>(request);
  if (!prompt.ok()) return Answer(call, prompt.status());
  const SessionRef session = SessionFromProto(request.session());
  SharedManager& manager = *(*cache)->manager;
  absl::Duration lease = absl::InfiniteDuration();
  if (request.has_lease_ms()) {
    const absl::StatusOr<absl::Duration> given =
        DurationFromMilliseconds("lease_ms", request.lease_ms());
    if (!given.ok()) return Answer(call, given.status());
    lease = *given;
  }
  // Everything is checked before the prefix is pinned: an error would lose the pin.
  absl::StatusOr<StoredPrompt> confined = ConfinedPrompt(manager, session, *prompt);
  if (!confined.ok()) return Answer(call, confined.status());
  if (request.to_store() && !(*cache)->exchange->MayPublish(confined->name_space)) {
    return Answer(call, MakeError(Reason::kPermissionDenied,
                                  "the daemon's configuration (store.publish.tenants) does not "
                                  "let this tenant's blocks into the store"));
  }
  const absl::StatusOr<Exported> exported = Pin(manager, session, *prompt, lease);
  if (!exported.ok()) return Answer(call, exported.status());
  response->set_exported_tokens(exported->tokens);
  response->set_pin_id(exported->pin.value());
  if (options_.sources != nullptr) {
    response->mutable_source()->set_address(options_.sources->advertised());
  }
  if (!request.to_store()) return Answer(call, absl::OkStatus());
  (*cache)->exchange->Publish(
      *std::move(confined), [call, response, cache = *cache](const PublishedPrefix& published) {
        response->set_stored_tokens(published.blocks * cache->manager->info().tokens_per_block);
        Answer(call, absl::OkStatus());
      });
}

}  // namespace pagoda::server
