// Implements kernels/cuda/device/runtime.h with host memory as device memory.
#include "kernels/cuda/device/runtime.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda {

absl::Status StatusOf(const char* what, int error) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": ", error, ": ", absl::StrJoin(emulation::TakeProblems(), "; ")));
}

absl::Status CopyMemory(absl::Span<const MemoryCopy> copies, Stream) {
  for (const MemoryCopy& copy : copies) std::memmove(copy.target, copy.source, copy.bytes);
  return absl::OkStatus();
}

absl::Status WaitForStream(Stream) { return absl::OkStatus(); }

}  // namespace pagoda::kernels::cuda
