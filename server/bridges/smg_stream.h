// One call of SubscribeKvEvents: a cursor in a ring of batches.
#ifndef PAGODA_SERVER_BRIDGES_SMG_STREAM_H_
#define PAGODA_SERVER_BRIDGES_SMG_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "manager/shared_manager.h"
#include "server/bridges/numbered_ring.h"
#include "server/bridges/router_events.h"
#include "server/bridges/smg_messages.h"
#include "server/callers/stream_slots.h"
#include "server/calls/stream_set.h"
#include "server/calls/subscriber_metrics.h"
#include "server/watch/subscriber_row.h"

namespace pagoda::server {

// The newest batches, by number, for subscribers that reconnect.
using RouterRing = NumberedRing<RouterBatch>;

// Sends one batch after another, with one outstanding write. A slow client falls behind in the ring
// and costs no memory. Thread-safe. The call, the set and threads that use the stream share it.
class SmgStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  using Set = StreamSet<SmgStream>;

  // The objects that all streams share. They outlive the streams.
  struct Context {
    const RouterRing* ring;
    Set* streams;
    SubscriberMetrics* metrics;
  };

  // Begins with the batch `next`. The stream is in the set until its call ends.
  static SmgStream* Start(const Context& context, uint64_t next,
                          std::shared_ptr<SmgMessages> messages, const Identity& caller,
                          StreamSlots::Slot slot);

  // Sends the next batch if the ring has it and no write is outstanding. Does not block.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with DRAINING after the client has been sent every batch.
  void EndForDrain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with `reason`. Sends no further batch.
  void EndNow(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  const Identity& caller() const { return caller_; }

  // The stream's progress. `read`: the last revision that the feed had read before the call.
  SubscriberRow Look(Revision read) const ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SmgStream(const Context& context, uint64_t next, std::shared_ptr<SmgMessages> messages,
            const Identity& caller, StreamSlots::Slot slot)
      : context_(context),
        messages_(std::move(messages)),
        caller_(caller),
        slot_(std::move(slot)),
        next_(next) {}

  // Starts the next write, if there is one. Returns a status if the call must end.
  std::optional<grpc::Status> Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Context context_;
  const absl::Time opened_ = SharedManager::Now();
  const std::shared_ptr<SmgMessages> messages_;  // Shared by the streams that see the same events.
  const Identity caller_;
  std::optional<StreamSlots::Slot> slot_;  // Until the call ends.
  std::shared_ptr<SmgStream> self_;        // The call's reference; released in OnDone.

  mutable absl::Mutex mutex_;  // Taken before the locks of the ring, the messages and gRPC.
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  Revision sent_ ABSL_GUARDED_BY(mutex_);  // The revision of the last batch given to gRPC.
  grpc::ByteBuffer message_ ABSL_GUARDED_BY(mutex_);  // gRPC uses it while writing_.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status ending_ ABSL_GUARDED_BY(mutex_);  // The reason of EndNow.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode end_code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::CANCELLED;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_STREAM_H_
