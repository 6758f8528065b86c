#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_TOP_POLLER_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_TOP_POLLER_H_

#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/event_poll.h"
#include "base/thread.h"
#include "clients/command_line/command.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/top/top_state.h"
#include "clients/pagodactl/top/top_stream.h"

namespace pagoda {

// Polls a daemon's status and reads the figures of its event stream. Reconnects after the daemon
// went away. Thread-compatible.
class TopPoller {
 public:
  // `stream` must outlive the poller.
  TopPoller(const GlobalOptions& globals, const TopStream* stream)
      : globals_(globals), stream_(*stream) {}

  // Errors: those of AdminService.GetStatus; UNAVAILABLE without a reason.
  absl::StatusOr<TopSample> Poll();

 private:
  const GlobalOptions globals_;
  const TopStream& stream_;
  std::optional<AdminClient> admin_;
};

// A thread that polls every `interval` and wakes `wait` after each answer, so that a loop can wait
// for answers and keys together.
class TopPollThread {
 public:
  // Starts polling after one interval. `wait` must outlive this object.
  TopPollThread(TopPoller poller, absl::Duration interval, EventPoll* wait);
  // Waits for a running poll.
  ~TopPollThread();

  // The answers since the last call, in order.
  std::vector<absl::StatusOr<TopSample>> Take();

 private:
  void Run(TopPoller poller);

  const absl::Duration interval_;
  EventPoll& wait_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::StatusOr<TopSample>> answers_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_TOP_POLLER_H_
