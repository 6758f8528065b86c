// The event stream that `top` reads, on a thread of its own.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_H_

#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/stream_tally.h"
#include "grpcpp/client_context.h"

namespace pagoda {

// What the stream has told by a moment.
struct StreamLook {
  enum class Phase {
    kDown,      // There is none: the first one is not there yet, or one has ended.
    kSnapshot,  // What is cached is being told.
    kLive,      // What happens is.
  };

  Phase phase = Phase::kDown;
  absl::Time time;          // Of this look.
  absl::Time phase_since;   // When the phase began.
  absl::Time last_message;  // When one came, a progress mark or more; the past where none has.
  // Why there is a later snapshot than the first one, or why there is no stream; OK otherwise.
  absl::Status interruption;
  StreamFigures figures;

  // The figures are those of a revision.
  bool live() const { return phase == Phase::kLive; }
};

// Keeps a Watch stream with a snapshot open, and begins a new one, with a new snapshot, when it
// ends: because the daemon went away, or because something does not fit. Where the stream falls
// behind what the daemon keeps, the daemon sends a new snapshot in it. Thread-safe.
class TopStream {
 public:
  explicit TopStream(const GlobalOptions& globals);
  // Ends the stream; waits for a connection that is being made.
  ~TopStream();

  // Copies figures, whose size does not depend on the cache's.
  StreamLook Look() const;

 private:
  void Run();
  // One stream, from connecting to its end: why it ended.
  absl::Status ReadStream();
  absl::Status Take(const v1::WatchResponse& message);
  void EnterPhase(StreamLook::Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GlobalOptions globals_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Of the stream, while open.
  StreamLook::Phase phase_ ABSL_GUARDED_BY(mutex_) = StreamLook::Phase::kDown;
  absl::Time phase_since_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_message_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);
  StreamTally tally_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_H_
