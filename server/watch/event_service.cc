#include "server/watch/event_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/calls/reactors.h"
#include "server/watch/cache_streams.h"
#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// The revision at which a stream starts. Errors: EPOCH_CHANGED, REVISION_COMPACTED,
// REVISION_IN_FUTURE, INVALID_ARGUMENT.
absl::StatusOr<Revision> FirstRevision(const v1::WatchRequest& request,
                                       const SharedManager& manager) {
  if (request.snapshot() && request.has_from_revision()) {
    return MakeError(Reason::kInvalidArgument,
                     "a stream begins with a snapshot or at from_revision, not both");
  }
  if (request.epoch() != 0 && request.epoch() != manager.epoch().value()) {
    return MakeError(Reason::kEpochChanged,
                     absl::StrCat("the epoch is ", absl::Hex(manager.epoch().value()), ", not ",
                                  absl::Hex(request.epoch())));
  }
  const EventLog& log = manager.log();
  if (!request.has_from_revision()) return Revision(log.last().value() + 1);
  const Revision from(request.from_revision());
  const absl::Status status = log.Read(from, 1).status();
  if (status.ok()) return from;
  if (ReasonOf(status) == Reason::kRevisionCompacted && request.resnapshot_when_behind()) {
    return from;  // The stream detects this, and begins with a snapshot.
  }
  return status;
}

// EventFilter::chunk_tokens. Errors: INVALID_ARGUMENT.
absl::StatusOr<uint32_t> ChunkTokens(const v1::WatchRequest& request, uint32_t tokens_per_block) {
  const uint32_t chunk_tokens = request.chunk_tokens();
  switch (request.content()) {
    case v1::EVENT_CONTENT_UNSPECIFIED:
    case v1::EVENT_CONTENT_TOKENS:
      if (chunk_tokens == 0) return 0;
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("chunk_tokens is ", chunk_tokens,
                                    ", but only EVENT_CONTENT_HASHES comes by chunks"));
    case v1::EVENT_CONTENT_HASHES:
      if (chunk_tokens == 0) return tokens_per_block;
      if (chunk_tokens % tokens_per_block == 0) return chunk_tokens;
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("chunk_tokens is ", chunk_tokens,
                                    ", which is no multiple of the cache's tokens_per_block, ",
                                    tokens_per_block));
    default:
      return MakeError(Reason::kInvalidArgument, absl::StrCat("there is no event content ",
                                                              static_cast<int>(request.content())));
  }
}

}  // namespace

EventService::EventService(const CacheDirectory* caches, const ServingState* state,
                           const Admission* admission)
    : CheckedService(admission), caches_(caches), state_(state) {
  Serve(MethodNamed("/pagoda.v1.EventService/Watch"), &EventService::Watch);
}
EventService::~EventService() = default;

grpc::ServerWriteReactor<grpc::ByteBuffer>* EventService::Watch(
    grpc::CallbackServerContext* context, const Identity& caller, const v1::WatchRequest& request) {
  CachePtr cache;
  const absl::StatusOr<WatchStream*> stream = Start(context, caller, request, &cache);
  if (!stream.ok()) {
    const bool outside =
        cache != nullptr && stream.status().code() == absl::StatusCode::kOutOfRange;
    return new RefusedStream<grpc::ServerWriteReactor<grpc::ByteBuffer>>(
        ToGrpcStatus(stream.status(), outside ? LogBounds(*cache->manager) : ErrorMetadata{}));
  }
  // Either the drain finds the new stream in the set, or this check finds the drain. The same holds
  // for a cache that is being dropped.
  if (state_->draining()) {
    (*stream)->EndWhenSent(Draining());
  } else if (!caches_->Serves(*cache)) {
    (*stream)->EndWhenSent(CacheDropped(*cache));
  }
  return *stream;
}

absl::StatusOr<WatchStream*> EventService::Start(grpc::CallbackServerContext* context,
                                                 const Identity& caller,
                                                 const v1::WatchRequest& request, CachePtr* cache) {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  absl::StatusOr<CachePtr> named = caches_->Named(request.cache(), caller);
  if (!named.ok()) return named.status();
  *cache = *std::move(named);
  const SharedManager& manager = *(*cache)->manager;
  const absl::StatusOr<Revision> first = FirstRevision(request, manager);
  if (!first.ok()) return first.status();
  const absl::StatusOr<EventFilter> filter = Filter(request, manager.info(), caller);
  if (!filter.ok()) return filter.status();
  absl::StatusOr<StreamSlots::Slot> slot = admission()->TakeStream(caller);
  if (!slot.ok()) return slot.status();
  return (*cache)->streams->Open({.from = *first,
                                  .snapshot = request.snapshot(),
                                  .resnapshot_when_behind = request.resnapshot_when_behind(),
                                  .progress_interval = {},
                                  .metrics = nullptr,
                                  .caller = caller,
                                  .context = context,
                                  .cache = *cache},
                                 *filter, *std::move(slot));
}

EventFilter VisibleTo(const Identity& caller, const TenantTable& tenants) {
  EventFilter filter;
  if (caller.is_operator()) return filter;
  filter.tenant = caller.tenant;
  filter.default_tenant = tenants.MaySee(caller.tenant, kDefaultTenant);
  return filter;
}

absl::StatusOr<EventFilter> EventService::Filter(const v1::WatchRequest& request,
                                                 const CacheInfo& cache,
                                                 const Identity& caller) const {
  EventFilter filter = VisibleTo(caller, admission()->tenants());
  if (!request.types().empty()) filter.types = 0;
  for (const int type : request.types()) {
    if (type < v1::EVENT_TYPE_CREATED || type > v1::EVENT_TYPE_REMOVED) {
      return MakeError(Reason::kInvalidArgument, absl::StrCat("there is no event type ", type));
    }
    filter.types |= 1 << (type - v1::EVENT_TYPE_CREATED);
  }
  if (!request.tiers().empty()) filter.tiers = 0;
  for (const int tier : request.tiers()) {
    if (tier < v1::TIER_PRIMARY || tier > static_cast<int>(kMaxTiers)) {
      return MakeError(Reason::kInvalidArgument, absl::StrCat("there is no tier ", tier));
    }
    filter.tiers |= 1 << (tier - v1::TIER_PRIMARY);
  }
  const absl::StatusOr<uint32_t> chunk_tokens = ChunkTokens(request, cache.tokens_per_block);
  if (!chunk_tokens.ok()) return chunk_tokens.status();
  filter.chunk_tokens = *chunk_tokens;
  for (const uint32_t size : request.window_sizes()) {
    const WindowSize window = WindowFromProto(size);
    if (std::none_of(cache.windows.begin(), cache.windows.end(),
                     [&](const auto& known) { return known.window == window; })) {
      return MakeError(Reason::kUnknownWindow,
                       absl::StrCat("the cache has no window ", WindowName(window)));
    }
    filter.windows.push_back(window);
  }
  std::sort(filter.windows.begin(), filter.windows.end());
  filter.windows.erase(std::unique(filter.windows.begin(), filter.windows.end()),
                       filter.windows.end());
  if (!request.tenant().empty()) {
    const absl::StatusOr<TenantId> tenant = admission()->SessionTenant(caller, request.tenant());
    if (!tenant.ok()) return tenant.status();
    filter.tenant = *tenant;
    filter.default_tenant = false;
  }
  return filter;
}

std::vector<std::shared_ptr<WatchStream>> EventService::AllStreams() const {
  std::vector<std::shared_ptr<WatchStream>> all;
  for (const CachePtr& cache : caches_->All()) {
    for (std::shared_ptr<WatchStream>& stream : cache->streams->all().All()) {
      all.push_back(std::move(stream));
    }
  }
  return all;
}

std::vector<SubscriberRow> EventService::Subscribers(const CacheParts& cache) {
  std::vector<SubscriberRow> rows;
  for (const std::shared_ptr<WatchStream>& stream : cache.streams->all().All()) {
    rows.push_back(stream->Look());
  }
  return rows;
}

void EventService::EndRevokedStreams() {
  for (const std::shared_ptr<WatchStream>& stream : AllStreams()) {
    const absl::Status known = admission()->CheckStillKnown(stream->caller());
    if (!known.ok()) stream->EndNow(known);
  }
}

void EventService::EndStreamsForDrain() {
  for (const std::shared_ptr<WatchStream>& stream : AllStreams()) stream->EndWhenSent(Draining());
}

}  // namespace pagoda::server
