#include "clients/pagodactl/events/stream_position.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

absl::Status StreamPosition::Advance(const v1::WatchResponse& message) {
  if (absl::Status status = CheckPrevious(message); !status.ok()) return status;
  started_ = true;
  in_snapshot_ = (in_snapshot_ || message.snapshot_begin()) && !message.snapshot_end();
  epoch_ = message.epoch();
  revision_ = message.revision();
  return absl::OkStatus();
}

absl::Status StreamPosition::CheckPrevious(const v1::WatchResponse& message) const {
  if (started_ && message.epoch() != epoch_) {
    return absl::DataLossError(absl::StrCat("the daemon's state was replaced: epoch ",
                                            absl::Hex(epoch_, absl::kZeroPad16), " became ",
                                            absl::Hex(message.epoch(), absl::kZeroPad16)));
  }
  if (message.snapshot_end() && !in_snapshot_ && !message.snapshot_begin()) {
    return absl::DataLossError("a snapshot ends that did not begin");
  }
  if (message.snapshot_begin()) return absl::OkStatus();
  if (!started_ && start_.snapshot) {
    return absl::DataLossError("the stream does not begin with the requested snapshot");
  }
  const bool known = started_ || start_.from_revision != 0;
  const uint64_t expected = started_ ? revision_ : start_.from_revision - 1;
  if (known && message.previous_revision() != expected) {
    return absl::DataLossError(absl::StrCat("a gap: the stream was at revision ", expected,
                                            ", but the next message "
                                            "continues from ",
                                            message.previous_revision(),
                                            "; the events between are missing"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda
