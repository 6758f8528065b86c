// The position of a node's event stream, across its calls.
#ifndef PAGODA_CLIENTS_ROUTER_FOLLOWED_STREAM_H_
#define PAGODA_CLIENTS_ROUTER_FOLLOWED_STREAM_H_

#include <cstdint>

#include "pagoda/v1/events.pb.h"

namespace pagoda {

// Decides whether a message continues what came before it, and where the next call begins.
// Thread-compatible.
//
// Invariant: while it is `resumable`, every event up to revision() of epoch() has been accepted.
class FollowedStream {
 public:
  enum class Step {
    kFollows,   // The message's events are the next ones.
    kSnapshot,  // Everything before is void; a snapshot begins with this message.
    kGap,       // Events are missing. Now the next call begins with a snapshot.
  };
  Step Accept(const v1::WatchResponse& message);

  // The call's end cannot be continued, or what was accepted is forgotten: the next call begins
  // with a snapshot.
  void Restart() { *this = FollowedStream(); }
  // A call has ended. A snapshot that it did not complete has to begin again.
  void Break() {
    if (in_snapshot_) Restart();
  }

  // Sets where the next call begins.
  void FillRequest(v1::WatchRequest* request) const;

  bool resumable() const { return started_ && !in_snapshot_; }
  bool in_snapshot() const { return in_snapshot_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t revision() const { return revision_; }

 private:
  bool started_ = false;
  bool in_snapshot_ = false;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_FOLLOWED_STREAM_H_
