// How the daemon's threads share processors with each other.
#ifndef PAGODA_SERVER_RPC_PROCESSOR_SHARE_H_
#define PAGODA_SERVER_RPC_PROCESSOR_SHARE_H_

#include "absl/time/time.h"

namespace pagoda::server {

// The shortest that Linux grants.
inline constexpr absl::Duration kShortSlice = absl::Microseconds(100);
// Of a thread that gives way; by the kernel's weights it gets a third of what another one gets.
inline constexpr int kGivesWayNice = 5;

// The calling thread, and those that it starts later, have time slices of kShortSlice: a thread
// that has run for longer gives its processor to one that wakes up. With the kernel's own slices,
// of a millisecond and more, a call that needs 0.1 ms waits for them when all processors are busy.
// A thread's share of the processors stays the same. Does nothing on kernels before 6.12, which
// have one slice for all, where a sandbox forbids it, and for a thread whose scheduling policy is
// not the normal one.
void AskForShortSlices();

// Where there are not processors for all, the calling thread gets less than others of its user's.
void GiveWay();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_PROCESSOR_SHARE_H_
