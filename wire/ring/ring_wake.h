// How the two sides of a pair wait for each other: a short spin, then sleep on a socket.
#ifndef PAGODA_WIRE_RING_RING_WAKE_H_
#define PAGODA_WIRE_RING_RING_WAKE_H_

#include <chrono>
#include <cstdint>

#include "wire/ring/ring_memory.h"

namespace pagoda::ring {

// Each side holds one end of a pair of connected Unix sockets. A byte in it means: look at your
// ring. An end that is closed ends the pair. An eventfd would not do: its two holders share its
// flags, so one of them could make the other's write wait. Here a send never waits.

// Two connected ends, without O_NONBLOCK. False with errno if the system refuses.
bool MakeWakeSockets(Descriptor* first, Descriptor* second);
// Wakes the other side. Never waits. Errors show when the other side's end is closed.
void Wake(int socket);
enum class Taken : uint8_t { kNothing, kWakes, kClosed };
// Takes the wakes that have arrived. Never waits.
Taken TakeWakes(int socket);

using Clock = std::chrono::steady_clock;

// How long a side looks at its ring before it sleeps. A wait that was short makes the next spin
// longer, a long one makes it shorter, down to none. Thread-compatible.
class Spin {
 public:
  static constexpr Clock::duration kMost = std::chrono::microseconds(50);

  // No spin at all on a machine with one processor.
  Spin();
  explicit Spin(Clock::duration most) : most_(most), budget_(most) {}

  // The longest spin now.
  Clock::duration budget() const { return budget_; }
  // A wait, with its spin and its sleep, took this long.
  void Learn(Clock::duration waited);

 private:
  Clock::duration most_;
  Clock::duration budget_;
};

// Tells the processor that the thread spins.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` returns true, at most for `budget`. Returns whether it did.
template <class Ready>
bool SpinUntil(const Ready& ready, Clock::duration budget) {
  if (ready()) return true;
  if (budget <= Clock::duration::zero()) return false;
  const Clock::time_point end = Clock::now() + budget;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (Clock::now() < end);
  return ready();
}

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_WAKE_H_
