#include "wire/ring/ring_wake.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace pagoda::ring {
namespace {

// Nothing if the other side cannot run meanwhile.
Clock::duration IfHelpful(Clock::duration most) {
  return std::thread::hardware_concurrency() > 1 ? most : Clock::duration::zero();
}

// A budget below this is none: the spin would end before another thread can answer.
constexpr Clock::duration kLeast = std::chrono::microseconds(2);

}  // namespace

bool MakeWakeSockets(FileDescriptor* first, FileDescriptor* second) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  *first = FileDescriptor(ends[0]);
  *second = FileDescriptor(ends[1]);
  return true;
}

// If the socket is full, the other side has wakes that it has not taken yet.
void Wake(int socket) {
  const char wake = 1;
  static_cast<void>(send(socket, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

Taken TakeWakes(int socket) {
  std::array<char, 4096> wakes;
  const ssize_t size = recv(socket, wakes.data(), wakes.size(), MSG_DONTWAIT);
  if (size > 0) return Taken::kWakes;
  if (size == 0) return Taken::kClosed;
  return errno == EAGAIN || errno == EINTR ? Taken::kNothing : Taken::kClosed;
}

Spin::Spin() : Spin(IfHelpful(kMost)) {}

Spin Spin::ForAnswers() { return Spin(IfHelpful(kMostForAnswer)); }

void Spin::Learn(End end, Clock::duration waited) {
  if (end == End::kWhileSpinning) {
    budget_ = std::min(most_, 2 * budget_);
    pause_ = kFirstPause;
  } else if (budget_ > Clock::duration::zero()) {
    budget_ /= 2;
    if (budget_ < kLeast) budget_ = Clock::duration::zero();
  } else if (waited <= most_ && ++short_sleeps_ >= pause_) {
    short_sleeps_ = 0;
    pause_ = std::min(2 * pause_, kMostPause);
    budget_ = most_;
  }
}

}  // namespace pagoda::ring
