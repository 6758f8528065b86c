// Which family of attention's kernels a call takes.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_

#include <string_view>

#include "absl/types/span.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/tensor_map.h"

namespace pagoda::kernels::cuda {

// What a run of tests/gpu/run.sh has shown of the kernels for Hopper on one kind of GPU: every test
// passed, and they were faster than those for sm_80.
struct ProvedKernels {
  std::string_view device;  // cudaDeviceProp::name.
  bool hopper_decode = false;
  bool hopper_prefill = false;
  std::string_view results;  // The file in tests/gpu/results/ that shows it.
};

// All that has been proved. A row is added with its results, and not before.
absl::Span<const ProvedKernels> AllProved();

// Which items the kernels for Hopper compute, where types and shapes permit it.
struct HopperChoice {
  bool decode = false;
  bool prefill = false;
  friend bool operator==(const HopperChoice&, const HopperChoice&) = default;
};

// kHopper: both kinds. kAuto: those that `proved` has for this device. Else none.
HopperChoice ChooseHopper(AttentionKernels asked, const HopperDevice& device,
                          absl::Span<const ProvedKernels> proved);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_
