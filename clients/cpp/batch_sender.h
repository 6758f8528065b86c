// Sends a session's batches to the daemon, by the fastest way that works.
#ifndef PAGODA_CLIENTS_CPP_BATCH_SENDER_H_
#define PAGODA_CLIENTS_CPP_BATCH_SENDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/cpp/resend.h"
#include "clients/cpp/ring_stream.h"
#include "clients/cpp/session_stream.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {

// When a sender that has no rings asks for them again. The daemon answers in a fraction of a
// millisecond.
struct RingRetry {
  absl::Duration first_pause = absl::Seconds(1);  // Each further pause is twice as long,
  absl::Duration most_pause = absl::Minutes(1);   // but no longer than this.
  absl::Duration timeout = absl::Milliseconds(100);
};

// One attempt at a time to get a batch answered: through rings in shared memory if there are any,
// otherwise on a Session stream. A stream or pair that broke is replaced at a later attempt.
// Thread-compatible.
class BatchSender {
 public:
  // `stub` outlives this.
  BatchSender(v1::CacheService::Stub* stub, v1::SessionRef session, RingRetry retry = {})
      : stub_(stub), session_(std::move(session)), retry_(retry) {}

  // A longest time to wait for rings that need not be had.
  static constexpr absl::Duration kShortTimeout = RingRetry{}.timeout;

  // From now on batches go through rings, which the daemon at `map_socket` gives. Errors: those of
  // RingStream::Open. Batches then go over gRPC, and later batches ask for rings again until the
  // error is UNIMPLEMENTED: then the daemon gives none, or has another version of them.
  absl::Status UseRings(std::string map_socket, absl::Duration timeout);
  // How the last batch went, or how the next one goes if there was none.
  Transport transport() const { return rings_ != nullptr ? Transport::kRings : Transport::kGrpc; }

  // Sends the batch and waits for its answer. `sent` becomes true as soon as the daemon may have
  // received the batch. Errors: those of SessionStream::Call and RingStream::Call.
  absl::StatusOr<v1::SessionResponse> Send(v1::SessionRequest& request, Resend resend,
                                           absl::Time deadline, bool& sent);
  // The answer to the last batch cannot be used. The next batch goes on another stream or pair.
  void Reset();

 private:
  absl::StatusOr<v1::SessionResponse> SendOverGrpc(v1::SessionRequest& request, absl::Time deadline,
                                                   bool& sent);
  // Asks for rings again if they have ended a while ago.
  void Reopen();
  void DropRings();

  v1::CacheService::Stub* const stub_;
  const v1::SessionRef session_;
  const RingRetry retry_;
  std::unique_ptr<SessionStream> stream_;  // Null before the first batch and after a broken one.
  std::unique_ptr<RingStream> rings_;      // Null: none, or they have ended.
  std::string map_socket_;                 // Empty: rings are not used.
  absl::Time reopen_at_;                   // If rings_ is null.
  absl::Duration reopen_pause_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_BATCH_SENDER_H_
