#ifndef PAGODA_POOLS_AVAILABLE_MEMORY_H_
#define PAGODA_POOLS_AVAILABLE_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace pagoda {

// The machine's memory that the kernel estimates to be usable without swapping. Errors: NotFound if
// the kernel does not say.
absl::StatusOr<uint64_t> AvailableMemoryBytes();

}  // namespace pagoda

#endif  // PAGODA_POOLS_AVAILABLE_MEMORY_H_
