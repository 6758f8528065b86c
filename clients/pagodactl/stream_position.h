#ifndef PAGODA_CLIENTS_PAGODACTL_STREAM_POSITION_H_
#define PAGODA_CLIENTS_PAGODACTL_STREAM_POSITION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

// Where a Watch stream stands. Every message must begin where the one before it ended.
class StreamPosition {
 public:
  // `from_revision` is the first revision that was asked for; 0 where the stream starts from now.
  explicit StreamPosition(uint64_t from_revision) : from_revision_(from_revision) {}

  // Error: DATA_LOSS for a gap or for another epoch.
  absl::Status Advance(const v1::WatchResponse& message);

  // The last revision covered so far.
  uint64_t revision() const { return revision_; }

 private:
  absl::Status CheckPrevious(const v1::WatchResponse& message) const;

  const uint64_t from_revision_;
  bool started_ = false;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_STREAM_POSITION_H_
