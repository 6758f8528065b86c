// How the daemon's threads share the processors.
#ifndef PAGODA_SERVER_SUPERVISION_PROCESSOR_SHARE_H_
#define PAGODA_SERVER_SUPERVISION_PROCESSOR_SHARE_H_

#include "absl/time/time.h"

namespace pagoda::server {

// The shortest time slice that Linux grants.
inline constexpr absl::Duration kShortSlice = absl::Microseconds(100);
// The niceness of a thread that gives way. By the kernel's weights it gets a third of another's
// time.
inline constexpr int kGivesWayNice = 5;

// Gives the calling thread, and the threads that it starts later, time slices of kShortSlice. A
// thread that has run for longer yields its processor to a thread that wakes up. With the kernel's
// default slices, of a millisecond and more, a call that needs 0.1 ms waits for them when all
// processors are busy. A thread's share of the processors does not change. Does nothing on kernels
// before 6.12, which have one slice for all, if a sandbox forbids it, and for a thread with another
// scheduling policy than the normal one.
void AskForShortSlices();

// Lowers the calling thread's share compared with other threads, if the processors are busy.
void GiveWay();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISION_PROCESSOR_SHARE_H_
