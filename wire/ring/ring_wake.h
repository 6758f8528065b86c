// How the two sides of a pair wait for each other: a short spin, then sleep on a socket.
#ifndef PAGODA_WIRE_RING_RING_WAKE_H_
#define PAGODA_WIRE_RING_RING_WAKE_H_

#include <sched.h>

#include <chrono>
#include <cstdint>

#include "wire/ring/ring_memory.h"

namespace pagoda::ring {

// Each side holds one end of a pair of connected Unix sockets. A byte in it means: check your
// ring. An end that is closed ends the pair. An eventfd would not do: its two holders share its
// flags, so one of them could make the other's write wait. Here a send never waits.

// Two connected ends, without O_NONBLOCK. False with errno if the system refuses.
bool MakeWakeSockets(FileDescriptor* first, FileDescriptor* second);
// Wakes the other side. Never waits. Errors show when the other side's end is closed.
void Wake(int socket);
enum class Taken : uint8_t { kNothing, kWakes, kClosed };
// Takes the wakes that have arrived. Never waits.
Taken TakeWakes(int socket);

using Clock = std::chrono::steady_clock;

// How long a side polls its ring before it sleeps. A spin that saw what it waited for makes the
// next one longer; one that did not makes it shorter, down to none. While there is none, waits that
// were short make the side try a spin again, ever less often while it does not help.
// Thread-compatible.
class Spin {
 public:
  static constexpr Clock::duration kMost = std::chrono::microseconds(50);
  // For a client that waits for an answer. One decode step in sixteen begins new blocks: for 256
  // sequences that takes 70 to 100 microseconds. To wake a thread takes about as long again.
  static constexpr Clock::duration kMostForAnswer = std::chrono::microseconds(150);

  // No spin at all on a machine with one processor.
  Spin();
  static Spin ForAnswers();
  explicit Spin(Clock::duration most) : most_(most), budget_(most) {}

  // The longest spin now.
  Clock::duration budget() const { return budget_; }
  enum class End : uint8_t { kWhileSpinning, kAfterSleep };
  // A wait has ended. `waited`: its spin and its sleep together.
  void Learn(End end, Clock::duration waited);

 private:
  static constexpr uint32_t kFirstPause = 4;
  static constexpr uint32_t kMostPause = 256;

  Clock::duration most_;
  Clock::duration budget_;
  uint32_t short_sleeps_ = 0;     // Since the last spin.
  uint32_t pause_ = kFirstPause;  // Short sleeps before the next try.
};

// Tells the processor that the thread spins.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` returns true, at most for `budget`. Returns whether it did. Gives other
// threads the processor now and then: the other side can be one that waits for this very processor.
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
    sched_yield();
  } while (Clock::now() < end);
  return ready();
}

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_WAKE_H_
