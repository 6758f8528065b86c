#ifndef PAGODA_BASE_EVENT_POLL_H_
#define PAGODA_BASE_EVENT_POLL_H_

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"

namespace pagoda {

// The wait of a thread that serves many descriptors: epoll(7), and an eventfd(2) with which other
// threads wake it. Movable until another thread knows it. Wake is thread-safe; the rest is
// thread-compatible.
class EventPoll {
 public:
  // The most sources that one Wait returns.
  static constexpr int kMostSources = 128;

  // Errors: RESOURCE_EXHAUSTED without a reason (no descriptor is left).
  static absl::StatusOr<EventPoll> Create();

  // Watches `fd` for `events`, such as EPOLLIN. EPOLLERR and EPOLLHUP are always among them. Wait
  // returns `source`, which must not be null, as long as an event lasts. False with errno if the
  // system refuses.
  bool Add(int fd, uint32_t events, void* source) { return Set(EPOLL_CTL_ADD, fd, events, source); }
  // The same for a descriptor that is watched already.
  bool Change(int fd, uint32_t events, void* source) {
    return Set(EPOLL_CTL_MOD, fd, events, source);
  }
  // Ends the events of `fd`. The end of the descriptor does the same, unless the descriptor has a
  // copy, for example in a child process that is being started.
  void Remove(int fd) { Set(EPOLL_CTL_DEL, fd, 0, nullptr); }

  // Makes the current Wait, or the next one, return.
  void Wake();

  struct Ready {
    absl::Span<void* const> sources;  // The sources of the ready descriptors, until the next Wait.
    bool is_woken = false;            // Wake was called since the last Wait that said so.
  };
  // Waits for an event, for Wake or for the end of `timeout`, which can be zero or infinite.
  // Returns up to 1 ms after the timeout, and early if a signal comes or after a day.
  Ready Wait(absl::Duration timeout);

 private:
  EventPoll(FileDescriptor epoll, FileDescriptor wake)
      : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  bool Set(int operation, int fd, uint32_t events, void* source);

  FileDescriptor epoll_;
  FileDescriptor wake_;  // Its source is null.
  std::array<void*, kMostSources> sources_;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_EVENT_POLL_H_
