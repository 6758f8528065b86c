#include "base/event_poll.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

// Its milliseconds fit an int.
constexpr absl::Duration kLongest = absl::Hours(24);

}  // namespace

absl::StatusOr<EventPoll> EventPoll::Create() {
  EventPoll poll(FileDescriptor(epoll_create1(EPOLL_CLOEXEC)),
                 FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!poll.epoll_.valid() || !poll.wake_.valid() ||
      !poll.Add(poll.wake_.get(), EPOLLIN, nullptr)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptors to wait with: ", absl::ErrnoToStatus(errno, "").message()));
  }
  return poll;
}

bool EventPoll::Set(int operation, int fd, uint32_t events, void* source) {
  epoll_event event = {.events = events, .data = {.ptr = source}};
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void EventPoll::Wake() {
  // Fails only if the counter is full; then the thread wakes up anyway.
  static_cast<void>(eventfd_write(wake_.get(), 1));
}

EventPoll::Ready EventPoll::Wait(absl::Duration timeout) {
  int timeout_ms = 0;
  if (timeout == absl::InfiniteDuration()) {
    timeout_ms = -1;
  } else if (timeout > absl::ZeroDuration()) {
    timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(std::min(timeout, kLongest))) + 1;
  }
  std::array<epoll_event, kMostSources> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kMostSources, timeout_ms);
  Ready ready;
  size_t size = 0;
  for (int i = 0; i < count; ++i) {  // -1: a signal.
    void* const source = events[static_cast<size_t>(i)].data.ptr;
    if (source != nullptr) {
      sources_[size++] = source;
      continue;
    }
    eventfd_t wakes;
    static_cast<void>(eventfd_read(wake_.get(), &wakes));
    ready.is_woken = true;
  }
  ready.sources = absl::MakeConstSpan(sources_.data(), size);
  return ready;
}

}  // namespace pagoda
