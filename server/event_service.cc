#include "server/event_service.h"

#include "absl/strings/str_cat.h"
#include "pools/error.h"
#include "server/error_map.h"
#include "server/reactors.h"
#include "server/served_fields.h"

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
      pump_(options, &manager->log(), &streams_) {}

grpc::ServerWriteReactor<v1::WatchResponse>* EventService::Watch(
    grpc::CallbackServerContext* context, const v1::WatchRequest* request) {
  const absl::StatusOr<Identity> caller = admission_->Admit(*context, kWatch);
  if (!caller.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::WatchResponse>>(
        ToGrpcStatus(caller.status()));
  }
  const absl::StatusOr<Revision> first = FirstRevision(*request);
  if (!first.ok()) {
    const bool outside = first.status().code() == absl::StatusCode::kOutOfRange;
    return new RefusedStream<grpc::ServerWriteReactor<v1::WatchResponse>>(
        ToGrpcStatus(first.status(), outside ? LogBounds(*manager_) : ErrorMetadata{}));
  }
  WatchStream* stream = WatchStream::Start(manager_, &streams_, *first, progress_interval_,
                                           {*caller, &admission_->tenants()});
  // Either the drain finds the new stream in the set, or the stream finds the drain here.
  if (state_->draining()) stream->EndForDrain();
  return stream;
}

absl::StatusOr<Revision> EventService::FirstRevision(const v1::WatchRequest& request) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  if (request.epoch() != 0 && request.epoch() != manager_->epoch().value()) {
    return MakeError(Reason::kEpochChanged,
                     absl::StrCat("the epoch is ", absl::Hex(manager_->epoch().value()), ", not ",
                                  absl::Hex(request.epoch())));
  }
  const EventLog& log = manager_->log();
  if (!request.has_from_revision()) return Revision(log.last().value() + 1);
  const Revision from(request.from_revision());
  if (absl::Status status = log.Read(from, 1).status(); !status.ok()) return status;
  return from;
}

void EventService::EndStreamsForDrain() {
  for (const std::shared_ptr<WatchStream>& stream : streams_.All()) stream->EndForDrain();
}

}  // namespace pagoda::server
