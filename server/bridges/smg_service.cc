#include "server/bridges/smg_service.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "server/calls/reactors.h"
#include "wire/errors.h"

namespace pagoda::server {
namespace {

using Reactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// After a round the thread rests for this many times the round's duration. It uses a fifth of a
// processor at most.
constexpr int kSmgRestPerRound = 4;

}  // namespace

SmgService::SmgService(const Options& options, const ServingState* state,
                       const Admission* admission, SubscriberMetrics* subscribers)
    : CheckedService(admission),
      state_(state),
      metrics_(subscribers),
      ring_(options.ring, options.first_number),
      messages_(options.shape, &admission->tenants()),
      last_clear_(options.first_number) {
  Serve(MethodNamed("/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"),
        &SmgService::SubscribeKvEvents);
  started_ = thread_.Start("pagoda-smg", [this] { Run(); });
}

SmgService::~SmgService() {
  stop_.Notify();
  {
    absl::MutexLock lock(&wake_mutex_);
    woken_ = true;
  }
  thread_.Join();
}

void SmgService::Run() {
  while (true) {
    {
      absl::MutexLock lock(&wake_mutex_);
      wake_mutex_.Await(absl::Condition(&woken_));
      woken_ = false;
    }
    if (stop_.HasBeenNotified()) return;
    const absl::Time begin = absl::Now();
    for (const std::shared_ptr<SmgStream>& stream : streams_.All()) stream->Advance();
    // With many subscribers a round takes long. The rest then lets more batches gather and leaves
    // processors to other threads.
    stop_.WaitForNotificationWithTimeout(kSmgRestPerRound * (absl::Now() - begin));
  }
}

Reactor* SmgService::SubscribeKvEvents(grpc::CallbackServerContext*, const Identity& caller,
                                       const smg::grpc::common::SubscribeKvEventsRequest& request) {
  const absl::StatusOr<SmgStream*> stream = Start(caller, request);
  if (!stream.ok()) return new RefusedStream<Reactor>(ToGrpcStatus(stream.status()));
  // Either EndStreamsForDrain finds the new stream in the set, or this check sees the drain.
  if (state_->draining()) (*stream)->EndForDrain();
  return *stream;
}

absl::StatusOr<SmgStream*> SmgService::Start(
    const Identity& caller, const smg::grpc::common::SubscribeKvEventsRequest& request) {
  const absl::StatusOr<uint64_t> first = FirstNumber(request.start_sequence_number());
  if (!first.ok()) return first.status();
  absl::StatusOr<StreamSlots::Slot> slot = admission()->TakeStream(caller);
  if (!slot.ok()) return slot.status();
  return SmgStream::Start({.ring = &ring_, .streams = &streams_, .metrics = metrics_}, *first,
                          messages_.Of(caller), caller, *std::move(slot));
}

absl::StatusOr<uint64_t> SmgService::FirstNumber(uint64_t last_applied) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (last_applied == 0) return KeepsLastClear() ? last_clear_.load() : ring_.next();
  // The last possible number has no successor.
  const uint64_t first = last_applied + 1 == 0 ? last_applied : last_applied + 1;
  if (absl::Status status = ring_.At(first).status(); !status.ok()) return status;
  return first;
}

void SmgService::Publish(const RouterBatchPtr& batch) {
  ring_.Push(batch->number, batch, batch->bytes);
  if (BeginsWithClear(*batch)) last_clear_ = batch->number;
  absl::MutexLock lock(&wake_mutex_);
  woken_ = true;
}

std::vector<SubscriberRow> SmgService::Look(Revision read) const {
  std::vector<SubscriberRow> rows;
  for (const std::shared_ptr<SmgStream>& stream : streams_.All()) {
    rows.push_back(stream->Look(read));
  }
  return rows;
}

void SmgService::EndRevokedStreams() {
  for (const std::shared_ptr<SmgStream>& stream : streams_.All()) {
    const absl::Status known = admission()->CheckStillKnown(stream->caller());
    if (!known.ok()) stream->EndNow(known);
  }
}

void SmgService::EndStreamsForDrain() {
  for (const std::shared_ptr<SmgStream>& stream : streams_.All()) stream->EndForDrain();
}

}  // namespace pagoda::server
