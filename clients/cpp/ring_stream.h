#ifndef PAGODA_CLIENTS_CPP_RING_STREAM_H_
#define PAGODA_CLIENTS_CPP_RING_STREAM_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pagoda/v1/cache.pb.h"
#include "wire/ring/ring_client.h"

namespace pagoda {

// A session's batches through rings in shared memory (wire/ring), in lockstep. Thread-compatible.
class RingStream {
 public:
  // Asks the daemon at `map_socket` for a pair of rings. Errors: those of CallMapSocket;
  // Unimplemented if this client does not know the daemon's version of rings; Internal if it cannot
  // use what the daemon gave.
  static absl::StatusOr<std::unique_ptr<RingStream>> Open(const std::string& map_socket,
                                                          const v1::SessionRef& session,
                                                          absl::Duration timeout);

  // Sends a batch and waits for its answer. nullopt: the batch must go over gRPC, because the
  // request or the answer is longer than the ring, or because the rings have ended. `sent` becomes
  // true as soon as the daemon may have received the batch; after `deadline` no batch is sent.
  // Errors: those by which the daemon refuses a batch as a whole; DEADLINE_EXCEEDED, without a
  // reason.
  absl::StatusOr<std::optional<v1::SessionResponse>> Call(const v1::SessionRequest& request,
                                                          absl::Time deadline, bool& sent);

  // OK while batches can be sent. Otherwise why not: the daemon's error, or what this side saw.
  const absl::Status& ended() const { return ended_; }

 private:
  explicit RingStream(std::unique_ptr<ring::Client> rings) : rings_(std::move(rings)) {}
  void End();

  const std::unique_ptr<ring::Client> rings_;
  absl::Status ended_;
  std::string bytes_;  // The request's bytes, then the answer's.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_RING_STREAM_H_
