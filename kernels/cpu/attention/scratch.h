// Consecutive arrays in a piece of scratch memory.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_SCRATCH_H_
#define PAGODA_KERNELS_CPU_ATTENTION_SCRATCH_H_

#include <cstddef>

#include "absl/types/span.h"

namespace pagoda::kernels::cpu {

// Without memory it only counts: the code that takes the arrays also computes the needed size.
class ScratchCutter {
 public:
  ScratchCutter() = default;
  // `memory` is aligned to 64 bytes.
  explicit ScratchCutter(absl::Span<std::byte> memory) : memory_(memory.data()) {}

  // Aligned to 64 bytes; the content is unspecified.
  template <class T>
  T* Take(size_t count) {
    std::byte* array = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(array);
  }

  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_SCRATCH_H_
