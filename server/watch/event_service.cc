#include "server/watch/event_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/rpc/reactors.h"
#include "wire/errors.h"
#include "wire/message_bytes.h"
#include "wire/served_fields.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

constexpr Method kWatch = MethodNamed("/pagoda.v1.EventService/Watch");

}  // namespace

EventService::EventService(EventPump::Options options, const SharedManager* manager,
                           const ServingState* state, const Admission* admission)
    : progress_interval_(options.progress_interval),
      manager_(manager),
      state_(state),
      admission_(admission),
      feeds_(manager),
      pump_(options, &manager->log(), &streams_) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* EventService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const absl::StatusOr<WatchStream*> stream = Start(*context, *request);
  if (!stream.ok()) {
    const bool outside = stream.status().code() == absl::StatusCode::kOutOfRange;
    return new RefusedStream<grpc::ServerWriteReactor<grpc::ByteBuffer>>(
        ToGrpcStatus(stream.status(), outside ? LogBounds(*manager_) : ErrorMetadata{}));
  }
  // Either the drain finds the new stream in the set, or the stream finds the drain here.
  if (state_->draining()) (*stream)->EndForDrain();
  return *stream;
}

absl::StatusOr<WatchStream*> EventService::Start(const grpc::CallbackServerContext& context,
                                                 const grpc::ByteBuffer& bytes) {
  const absl::StatusOr<Identity> caller = admission_->Admit(context, kWatch);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  v1::WatchRequest request;
  if (absl::Status status = ParseMessage(bytes, &request); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  const absl::StatusOr<Revision> first = FirstRevision(request);
  if (!first.ok()) return first.status();
  const absl::StatusOr<EventFilter> filter = Filter(request, *caller);
  if (!filter.ok()) return filter.status();
  absl::StatusOr<StreamSlots::Slot> slot = admission_->TakeStream(*caller);
  if (!slot.ok()) return slot.status();
  return WatchStream::Start(manager_, &streams_,
                            {.from = *first,
                             .snapshot = request.snapshot(),
                             .resnapshot_when_behind = request.resnapshot_when_behind(),
                             .progress_interval = progress_interval_,
                             .metrics = &subscriber_metrics_,
                             .caller = *caller},
                            feeds_.Get(*filter), *std::move(slot));
}

absl::StatusOr<Revision> EventService::FirstRevision(const v1::WatchRequest& request) const {
  if (request.snapshot() && request.has_from_revision()) {
    return MakeError(Reason::kInvalidArgument,
                     "a stream begins with a snapshot or at from_revision, not with both");
  }
  if (request.epoch() != 0 && request.epoch() != manager_->epoch().value()) {
    return MakeError(Reason::kEpochChanged,
                     absl::StrCat("the epoch is ", absl::Hex(manager_->epoch().value()), ", not ",
                                  absl::Hex(request.epoch())));
  }
  const EventLog& log = manager_->log();
  if (!request.has_from_revision()) return Revision(log.last().value() + 1);
  const Revision from(request.from_revision());
  const absl::Status status = log.Read(from, 1).status();
  if (status.ok()) return from;
  if (ReasonOf(status) == Reason::kRevisionCompacted && request.resnapshot_when_behind()) {
    return from;  // The stream finds that out, and begins with a snapshot.
  }
  return status;
}

EventFilter VisibleTo(const Identity& caller, const TenantTable& tenants) {
  EventFilter filter;
  if (caller.is_operator()) return filter;
  filter.tenant = caller.tenant;
  filter.commons = tenants.MaySee(caller.tenant, kCommons);
  return filter;
}

absl::StatusOr<EventFilter> EventService::Filter(const v1::WatchRequest& request,
                                                 const Identity& caller) const {
  EventFilter filter = VisibleTo(caller, admission_->tenants());
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
  for (const uint32_t size : request.window_sizes()) {
    const WindowSize window = WindowFromProto(size);
    const auto& windows = manager_->info().windows;
    if (std::none_of(windows.begin(), windows.end(),
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
    const absl::StatusOr<TenantId> tenant = admission_->SessionTenant(caller, request.tenant());
    if (!tenant.ok()) return tenant.status();
    filter.tenant = *tenant;
    filter.commons = false;
  }
  return filter;
}

std::vector<prometheus::MetricFamily> EventService::CollectSubscribers(
    std::vector<uint64_t> lags) const {
  for (const std::shared_ptr<WatchStream>& stream : streams_.All()) lags.push_back(stream->Lag());
  return subscriber_metrics_.Collect(lags);
}

std::vector<SubscriberRow> EventService::Subscribers() const {
  std::vector<SubscriberRow> rows;
  for (const std::shared_ptr<WatchStream>& stream : streams_.All()) rows.push_back(stream->Look());
  return rows;
}

void EventService::EndRevokedStreams() {
  for (const std::shared_ptr<WatchStream>& stream : streams_.All()) {
    const absl::Status known = admission_->CheckStillKnown(stream->caller());
    if (!known.ok()) stream->EndNow(known);
  }
}

void EventService::EndStreamsForDrain() {
  for (const std::shared_ptr<WatchStream>& stream : streams_.All()) stream->EndForDrain();
}

}  // namespace pagoda::server
