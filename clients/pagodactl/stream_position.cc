#include "clients/pagodactl/stream_position.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

absl::Status StreamPosition::Advance(const v1::WatchResponse& message) {
  if (absl::Status status = CheckPrevious(message); !status.ok()) return status;
  started_ = true;
  epoch_ = message.epoch();
  revision_ = message.revision();
  return absl::OkStatus();
}

absl::Status StreamPosition::CheckPrevious(const v1::WatchResponse& message) const {
  if (started_ && message.epoch() != epoch_) {
    return absl::DataLossError(absl::StrCat("the daemon's state is another one: epoch ",
                                            absl::Hex(epoch_, absl::kZeroPad16), " became ",
                                            absl::Hex(message.epoch(), absl::kZeroPad16)));
  }
  const bool known = started_ || from_revision_ != 0;
  const uint64_t expected = started_ ? revision_ : from_revision_ - 1;
  if (known && message.previous_revision() != expected) {
    return absl::DataLossError(absl::StrCat("a gap: the stream stood at revision ", expected,
                                            ", and the next message "
                                            "continues from ",
                                            message.previous_revision(),
                                            "; events between are missing"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda
