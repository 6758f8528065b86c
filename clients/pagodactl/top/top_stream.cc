#include "clients/pagodactl/top/top_stream.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "clients/cpp/backoff.h"
#include "clients/pagodactl/command/admin_client.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

// The bounds of the wait between two attempts to open a stream.
constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kLongestWait = absl::Seconds(2);

}  // namespace

TopStream::TopStream(const GlobalOptions& globals) : globals_(globals), phase_since_(absl::Now()) {
  absl::Status started = thread_.Start("pagoda-stream", [this] { Run(); });
  if (started.ok()) return;
  absl::MutexLock lock(&mutex_);
  interruption_ = std::move(started);  // The reader sees why there is no stream.
}

TopStream::~TopStream() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.Join();
}

StreamLook TopStream::Look() const {
  absl::MutexLock lock(&mutex_);
  return {.phase = phase_,
          .time = absl::Now(),
          .phase_since = phase_since_,
          .last_message = last_message_,
          .interruption = interruption_,
          .figures = tally_.figures()};
}

void TopStream::EnterPhase(StreamLook::Phase phase) {
  if (phase == phase_) return;
  phase_ = phase;
  phase_since_ = absl::Now();
}

void TopStream::Run() {
  Backoff backoff(kFirstWait, kLongestWait);
  while (true) {
    const absl::Status end = ReadStream();
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    if (phase_ != StreamLook::Phase::kDown) backoff = Backoff(kFirstWait, kLongestWait);
    EnterPhase(StreamLook::Phase::kDown);
    interruption_ = end;
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), backoff.Next())) return;
  }
}

absl::Status TopStream::ReadStream() {
  // A new channel avoids gRPC's growing pauses between connection attempts.
  const auto channel = ConnectToDaemon(globals_);
  if (!channel.ok()) return channel.status();
  const auto stub = v1::EventService::NewStub(*channel);
  // Without the names, the stream shows the default ones.
  absl::StatusOr<v1::CacheInfo> cache = AdminClient(*channel, globals_).Cache();
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError();
    context_ = &context;
    tally_.BeginStream(cache.ok() ? *std::move(cache) : v1::CacheInfo());
  }
  v1::WatchRequest request;
  request.set_cache(globals_.cache);
  request.set_snapshot(true);
  request.set_resnapshot_when_behind(true);
  const auto stream = stub->Watch(&context, request);
  v1::WatchResponse message;
  absl::Status taken;
  while (taken.ok() && stream->Read(&message)) taken = Take(message);
  if (!taken.ok()) context.TryCancel();
  const grpc::Status end = stream->Finish();
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  if (!taken.ok()) return taken;
  return end.ok() ? absl::UnavailableError("the daemon ended the stream") : StatusFromGrpc(end);
}

absl::Status TopStream::Take(const v1::WatchResponse& message) {
  absl::MutexLock lock(&mutex_);
  last_message_ = absl::Now();
  if (message.snapshot_begin()) {
    if (phase_ != StreamLook::Phase::kDown) {
      interruption_ =
          absl::OutOfRangeError("the stream fell behind the events that the daemon keeps");
    }
    EnterPhase(StreamLook::Phase::kSnapshot);
  }
  absl::Status status = tally_.Apply(message);
  if (status.ok() && tally_.figures().whole) EnterPhase(StreamLook::Phase::kLive);
  return status;
}

}  // namespace pagoda
