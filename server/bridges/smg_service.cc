#include "server/bridges/smg_service.h"

#include <memory>
#include <utility>

#include "server/error_map.h"
#include "server/reactors.h"

namespace pagoda::server {
namespace {

using Reactor = grpc::ServerWriteReactor<smg::grpc::common::KvEventBatch>;

constexpr Method kSubscribe = MethodNamed("/vllm.grpc.engine.VllmEngine/SubscribeKvEvents");

}  // namespace

SmgService::SmgService(const Options& options, const ServingState* state,
                       const Admission* admission)
    : shape_(options.shape),
      state_(state),
      admission_(admission),
      ring_(options.ring, options.first_number) {}

Reactor* SmgService::SubscribeKvEvents(grpc::CallbackServerContext* context,
                                       const smg::grpc::common::SubscribeKvEventsRequest* request) {
  const auto refuse = [](const absl::Status& status) {
    return new RefusedStream<Reactor>(ToGrpcStatus(status));
  };
  const absl::StatusOr<Identity> caller = admission_->Admit(*context, kSubscribe);
  if (!caller.ok()) return refuse(caller.status());
  const absl::StatusOr<uint64_t> first = FirstNumber(request->start_sequence_number());
  if (!first.ok()) return refuse(first.status());
  absl::StatusOr<StreamSlots::Slot> slot = admission_->TakeStream(*caller);
  if (!slot.ok()) return refuse(slot.status());
  SmgStream* stream = SmgStream::Start({.ring = &ring_, .streams = &streams_, .shape = shape_},
                                       *first, {*caller, &admission_->tenants()}, *std::move(slot));
  // Either the drain finds the new stream in the set, or the stream finds the drain here.
  if (state_->draining()) stream->EndForDrain();
  return stream;
}

absl::StatusOr<uint64_t> SmgService::FirstNumber(uint64_t last_applied) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (last_applied == 0) return ring_.next();
  // Behind the last possible number there is no next one.
  const uint64_t first = last_applied + 1 == 0 ? last_applied : last_applied + 1;
  if (absl::Status status = ring_.At(first).status(); !status.ok()) return status;
  return first;
}

void SmgService::Publish(const RouterBatchPtr& batch) {
  ring_.Push(batch->number, batch, batch->bytes);
  for (const std::shared_ptr<SmgStream>& stream : streams_.All()) stream->Advance();
}

void SmgService::EndStreamsForDrain() {
  for (const std::shared_ptr<SmgStream>& stream : streams_.All()) stream->EndForDrain();
}

}  // namespace pagoda::server
