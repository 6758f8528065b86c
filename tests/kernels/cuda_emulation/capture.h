// Capture of a stream, emulated: launches are kept instead of run, and can be run many times later.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_CAPTURE_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_CAPTURE_H_

#include <functional>
#include <vector>

namespace pagoda::kernels::cuda::emulation {

// Captured work. It has copies of its arguments, and reads and writes the memory that it finds when
// it runs. Each piece returns 0 or an error.
using CapturedWork = std::vector<std::function<int()>>;

// From now on, this thread's launches are appended to `work` instead of run. Null: they run again.
void CaptureInto(CapturedWork* work);

// Whether this thread's launches are captured.
bool IsCapturing();
// Appends a piece of work that is no launch. REQUIRES: IsCapturing().
void Capture(std::function<int()> piece);

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_CAPTURE_H_
