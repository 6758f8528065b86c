#include "clients/router/followed_stream.h"

namespace pagoda {

FollowedStream::Step FollowedStream::Accept(const v1::WatchResponse& message) {
  if (!message.snapshot_begin()) {
    const bool fits = started_ && message.epoch() == epoch_ &&
                      message.previous_revision() == revision_ && message.revision() >= revision_ &&
                      (in_snapshot_ || !message.snapshot_end());
    if (!fits) {
      Restart();
      return Step::kGap;
    }
  }
  started_ = true;
  in_snapshot_ = (in_snapshot_ || message.snapshot_begin()) && !message.snapshot_end();
  epoch_ = message.epoch();
  revision_ = message.revision();
  return message.snapshot_begin() ? Step::kSnapshot : Step::kFollows;
}

void FollowedStream::FillRequest(v1::WatchRequest* request) const {
  if (!resumable()) {
    request->set_snapshot(true);
    return;
  }
  request->set_from_revision(revision_ + 1);
  request->set_epoch(epoch_);
}

}  // namespace pagoda
