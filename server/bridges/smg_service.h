#ifndef PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
#define PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/smg_messages.h"
#include "server/bridges/smg_stream.h"
#include "server/callers/admission.h"
#include "server/serving_state.h"
#include "vllm/grpc/engine.grpc.pb.h"

namespace pagoda::server {

// SubscribeKvEvents of vllm.grpc.engine.VllmEngine, for the SMG gateway. A tenant sees its own and
// what is shared with it, an operator everything; batches have the same numbers for everybody.
// Thread-safe.
//
// Publish keeps the batch and returns: a thread of the service's own wakes the streams that wait
// for one, and those that are busy find it by themselves. However many there are, the feed does not
// wait for them.
class SmgService final
    : public vllm::grpc::engine::VllmEngine::WithRawCallbackMethod_SubscribeKvEvents<
          vllm::grpc::engine::VllmEngine::Service>,
      public RouterSink {
 public:
  struct Options {
    RingLimits ring;
    // Of the batch that comes first. Above all numbers of the daemon's earlier lives, so that a
    // subscriber of one of those is told.
    uint64_t first_number = 1;
    SmgShape shape;
  };

  // All pointers outlive the service. Streams count in `subscribers`.
  SmgService(const Options& options, const ServingState* state, const Admission* admission,
             SubscriberMetrics* subscribers);

  ~SmgService() override;

  // Raw: messages are encoded once for all who see the same.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* SubscribeKvEvents(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

  void Publish(const RouterBatchPtr& batch) override ABSL_LOCKS_EXCLUDED(wake_mutex_);

  size_t subscribers() const { return streams_.size(); }
  // How far each open stream is. `read`: what the feed has read before the call.
  std::vector<SubscriberRow> Look(Revision read) const;
  // Messages encoded since the start.
  uint64_t encoded_messages() const { return messages_.encoded(); }

  // Ends every open stream. Call it when the state is draining.
  void EndStreamsForDrain();
  // Ends the streams whose callers' tokens have been taken back.
  void EndRevokedStreams();

 private:
  void Run() ABSL_LOCKS_EXCLUDED(wake_mutex_);
  absl::StatusOr<SmgStream*> Start(const grpc::CallbackServerContext& context,
                                   const grpc::ByteBuffer& request);
  // The number of the batch that the stream begins with. Errors: DRAINING, OUT_OF_RANGE, DATA_LOSS.
  absl::StatusOr<uint64_t> FirstNumber(uint64_t last_applied) const;

  const ServingState* const state_;
  const Admission* const admission_;
  SubscriberMetrics* const metrics_;
  RouterRing ring_;
  SmgMessageSets messages_;
  SmgStream::Set streams_;

  absl::Mutex wake_mutex_;  // Nothing is called under it.
  bool woken_ ABSL_GUARDED_BY(wake_mutex_) = false;
  absl::Notification stop_;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
