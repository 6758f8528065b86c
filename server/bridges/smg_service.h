#ifndef PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
#define PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/thread.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/smg_messages.h"
#include "server/bridges/smg_stream.h"
#include "server/callers/admission.h"
#include "server/calls/checked_service.h"
#include "server/supervision/serving_state.h"
#include "smg/grpc/kv_events.pb.h"

namespace pagoda::server {

// SubscribeKvEvents of vllm.grpc.engine.VllmEngine, for the SMG gateway. A tenant sees its own
// blocks and the blocks that are shared with it; an operator sees all. Every subscriber gets the
// same batch numbers. Thread-safe.
//
// Publish stores the batch and returns. A thread of the service wakes the streams that wait for a
// batch; busy streams find it themselves. The feed never waits for streams.
class SmgService final : public CheckedService, public RouterSink {
 public:
  struct Options {
    RingLimits ring;
    // The number of the first batch. It is above all numbers of the daemon's earlier runs, so that
    // a subscriber of an earlier run gets an error.
    uint64_t first_number = 1;
    SmgShape shape;
  };

  // All pointers outlive the service. `subscribers` counts the streams.
  SmgService(const Options& options, const ServingState* state, const Admission* admission,
             SubscriberMetrics* subscribers);

  ~SmgService() override;

  // OK, or why its thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return started_; }

  // Answers with bytes, because all streams that see the same events share the encoded messages.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* SubscribeKvEvents(
      grpc::CallbackServerContext* context, const Identity& caller,
      const smg::grpc::common::SubscribeKvEventsRequest& request);

  void Publish(const RouterBatchPtr& batch) override ABSL_LOCKS_EXCLUDED(wake_mutex_);
  bool KeepsLastClear() const override { return ring_.oldest() <= last_clear_; }

  size_t subscribers() const { return streams_.size(); }
  // The progress of each open stream. `read`: the last revision that the feed had read before the
  // call.
  std::vector<SubscriberRow> Look(Revision read) const;
  // The number of messages encoded since the start.
  uint64_t encoded_messages() const { return messages_.encoded(); }

  // Ends every open stream. Call it when the daemon drains.
  void EndStreamsForDrain();
  // Ends the streams whose callers' tokens have been revoked.
  void EndRevokedStreams();

 private:
  void Run() ABSL_LOCKS_EXCLUDED(wake_mutex_);
  absl::StatusOr<SmgStream*> Start(const Identity& caller,
                                   const smg::grpc::common::SubscribeKvEventsRequest& request);
  // The number of the stream's first batch. Errors: DRAINING, OUT_OF_RANGE, DATA_LOSS.
  absl::StatusOr<uint64_t> FirstNumber(uint64_t last_applied) const;

  const ServingState* const state_;
  SubscriberMetrics* const metrics_;
  RouterRing ring_;
  SmgMessageSets messages_;
  SmgStream::Set streams_;
  std::atomic<uint64_t> last_clear_;  // The number of the last batch that begins with AllCleared.

  absl::Mutex wake_mutex_;  // A leaf lock: no other lock is taken under it.
  bool woken_ ABSL_GUARDED_BY(wake_mutex_) = false;
  absl::Notification stop_;
  absl::Status started_;
  Thread thread_;  // Last: it uses the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
