#ifndef PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
#define PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/admission.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/smg_stream.h"
#include "server/serving_state.h"
#include "vllm/grpc/engine.grpc.pb.h"

namespace pagoda::server {

// SubscribeKvEvents of vllm.grpc.engine.VllmEngine, for the SMG gateway. A tenant sees its own and
// what is shared with it, an operator everything; batches have the same numbers for everybody.
// Thread-safe.
class SmgService final : public vllm::grpc::engine::VllmEngine::CallbackService, public RouterSink {
 public:
  struct Options {
    RingLimits ring;
    // Of the batch that comes first. Above all numbers of the daemon's earlier lives, so that a
    // subscriber of one of those is told.
    uint64_t first_number = 1;
    SmgShape shape;
  };

  // Both pointers outlive the service.
  SmgService(const Options& options, const ServingState* state, const Admission* admission);

  grpc::ServerWriteReactor<smg::grpc::common::KvEventBatch>* SubscribeKvEvents(
      grpc::CallbackServerContext* context,
      const smg::grpc::common::SubscribeKvEventsRequest* request) override;

  void Publish(const RouterBatchPtr& batch) override;

  size_t subscribers() const { return streams_.size(); }

  // Ends every open stream. Call it when the state is draining.
  void EndStreamsForDrain();

 private:
  // The number of the batch that the stream begins with. Errors: DRAINING, OUT_OF_RANGE, DATA_LOSS.
  absl::StatusOr<uint64_t> FirstNumber(uint64_t last_applied) const;

  const SmgShape shape_;
  const ServingState* const state_;
  const Admission* const admission_;
  RouterRing ring_;
  SmgStream::Set streams_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_SERVICE_H_
