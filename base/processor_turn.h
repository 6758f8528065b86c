// Turns on a processor, for threads with long work.
#ifndef PAGODA_BASE_PROCESSOR_TURN_H_
#define PAGODA_BASE_PROCESSOR_TURN_H_

#include "absl/time/time.h"

namespace pagoda {

// A thread with long work takes turns: when its turn is over, it yields its processor at the next
// call of EndProcessorTurnIfOver(). Without the yield it keeps the processor for its time slice, up
// to 4 ms with a kernel timer of 250 Hz, even from threads with a higher priority that have just
// run. With shorter turns, the thread gets almost no processor time if other processes want all
// processors.
inline constexpr absl::Duration kProcessorTurn = absl::Microseconds(500);

// From now on the calling thread takes turns. The first one begins now. Called again, it begins a
// new turn: for a thread that has just waited.
void BeginProcessorTurn();
// If the calling thread takes turns, a new one begins. For a thread that has waited for a lock: the
// wait used no processor.
void RestartProcessorTurn();
// Whether the calling thread takes turns and its turn is over. Cost: some 30 ns.
bool ProcessorTurnIsOver();
// Yields the processor if the calling thread takes turns and its turn is over. Cost: some 30 ns.
// Call it between pieces of work of 100 us or less, without a lock.
void EndProcessorTurnIfOver();

}  // namespace pagoda

#endif  // PAGODA_BASE_PROCESSOR_TURN_H_
