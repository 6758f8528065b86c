#include "engine/serve/run/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

absl::Status Unreadable(int error) {
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("cannot read the requests: ", std::strerror(error)));
}

}  // namespace

// A program that has no descriptor for this at its start cannot go on.
LineReader::LineReader(int fd)
    : fd_(fd), poll_(*EventPoll::Create()), is_watched_(poll_.Add(fd, EPOLLIN, this)) {}

absl::StatusOr<LineReader::Event> LineReader::Next(std::string& line) {
  for (;;) {
    if (poll_.Wait(absl::ZeroDuration()).is_woken) return Event::kWoken;
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
    if (is_watched_) {
      const EventPoll::Ready ready = poll_.Wait(absl::InfiniteDuration());
      if (ready.is_woken) return Event::kWoken;
      if (ready.sources.empty()) continue;
    }
    std::array<char, 1 << 16> piece;
    const ssize_t size = read(fd_, piece.data(), piece.size());
    if (size < 0 && errno != EINTR && errno != EAGAIN) return Unreadable(errno);
    if (size == 0) ended_ = true;
    if (size > 0) buffer_.append(piece.data(), static_cast<size_t>(size));
  }
}

}  // namespace pagoda
