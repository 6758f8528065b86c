#include "engine/serve/run/line_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {
namespace {

absl::Status Unreadable(int error) {
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("cannot read the requests: ", std::strerror(error)));
}

}  // namespace

LineReader::LineReader(int fd) : fd_(fd), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PAGODA_CHECK(wake_.valid(), "an event descriptor can be created");
}

absl::StatusOr<LineReader::Event> LineReader::Next(std::string& line) {
  for (;;) {
    if (WasWoken()) return Event::kWoken;
    const size_t newline = buffer_.find('\n', searched_);
    if (newline != std::string::npos) {
      line.assign(buffer_, 0, newline);
      buffer_.erase(0, newline + 1);
      searched_ = 0;
      return Event::kLine;
    }
    searched_ = buffer_.size();
    if (ended_ && buffer_.empty()) return Event::kEnd;
    if (ended_) {
      line.swap(buffer_);
      buffer_.clear();
      searched_ = 0;
      return Event::kLine;
    }
    if (buffer_.size() > kMaxLineBytes) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a request is longer than ", kMaxLineBytes, " bytes"));
    }
    std::array<pollfd, 2> ready = {pollfd{.fd = fd_, .events = POLLIN},
                                   pollfd{.fd = wake_.get(), .events = POLLIN}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return Unreadable(errno);
    if (ready[0].revents == 0) continue;
    std::array<char, 1 << 16> piece;
    const ssize_t size = read(fd_, piece.data(), piece.size());
    if (size < 0 && errno != EINTR && errno != EAGAIN) return Unreadable(errno);
    if (size == 0) ended_ = true;
    if (size > 0) buffer_.append(piece.data(), static_cast<size_t>(size));
  }
}

void LineReader::Wake() {
  const uint64_t one = 1;
  PAGODA_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one), "an event is counted");
}

bool LineReader::WasWoken() {
  uint64_t count = 0;
  return read(wake_.get(), &count, sizeof(count)) == sizeof(count);
}

}  // namespace pagoda
