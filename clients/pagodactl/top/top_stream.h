// The event stream that `top` reads on a separate thread.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STREAM_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STREAM_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "clients/command_line/command.h"
#include "clients/pagodactl/top/stream_tally.h"
#include "grpcpp/client_context.h"

namespace pagoda {

// The state of the stream at one moment.
struct StreamLook {
  enum class Phase {
    kDown,      // There is no stream: it has not started yet, or it has ended.
    kSnapshot,  // The snapshot is being received.
    kLive,      // Events are being received.
  };

  Phase phase = Phase::kDown;
  absl::Time time;          // When the state was read.
  absl::Time phase_since;   // When the phase began.
  absl::Time last_message;  // When events or a progress mark came; InfinitePast() before.
  // Why there was a second or later snapshot, or why there is no stream; OK otherwise.
  absl::Status interruption;
  StreamFigures figures;

  // Whether the figures are those of a revision.
  bool live() const { return phase == Phase::kLive; }
};

// Keeps a Watch stream with a snapshot open. If the stream ends, because the daemon went away or an
// event does not fit, it starts a new one with a new snapshot. If the stream falls behind the
// events that the daemon keeps, the daemon sends a new snapshot in the same stream. Thread-safe.
class TopStream {
 public:
  explicit TopStream(const GlobalOptions& globals);
  // Ends the stream. Waits for a connection attempt that is under way.
  ~TopStream();

  // Copies the figures. Their size does not depend on the cache's size.
  StreamLook Look() const;

 private:
  void Run();
  // Runs one stream from connecting to its end. Returns why it ended.
  absl::Status ReadStream();
  absl::Status Take(const v1::WatchResponse& message);
  void EnterPhase(StreamLook::Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GlobalOptions globals_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The open stream's context.
  StreamLook::Phase phase_ ABSL_GUARDED_BY(mutex_) = StreamLook::Phase::kDown;
  absl::Time phase_since_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_message_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);
  StreamTally tally_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STREAM_H_
