#ifndef PAGODA_ENGINE_STRUCTURED_LARGE_STACK_H_
#define PAGODA_ENGINE_STRUCTURED_LARGE_STACK_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace pagoda {

// Runs the work on a thread with a stack of 256 MiB, and waits for its end. Only the used part
// of the stack takes memory. Errors: those of Thread::Start.
absl::Status RunWithLargeStack(absl::FunctionRef<void()> work);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_LARGE_STACK_H_
