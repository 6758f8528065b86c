#ifndef PAGODA_CLIENTS_PAGODACTL_EVENTS_STREAM_POSITION_H_
#define PAGODA_CLIENTS_PAGODACTL_EVENTS_STREAM_POSITION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

// The position of a Watch stream. Each message must begin where the previous one ended, unless a
// snapshot begins with it.
class StreamPosition {
 public:
  // The start that the client requested.
  struct Start {
    uint64_t from_revision = 0;  // The first revision; 0: from now.
    bool snapshot = false;
  };

  explicit StreamPosition(const Start& start) : start_(start) {}

  // Error: DATA_LOSS for a gap, for another epoch, for a stream that does not begin with the
  // requested snapshot, and for a snapshot's end without its beginning.
  absl::Status Advance(const v1::WatchResponse& message);

  // Whether there was a message.
  bool started() const { return started_; }
  // The last revision covered so far.
  uint64_t revision() const { return revision_; }

 private:
  absl::Status CheckPrevious(const v1::WatchResponse& message) const;

  const Start start_;
  bool started_ = false;
  bool in_snapshot_ = false;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_EVENTS_STREAM_POSITION_H_
