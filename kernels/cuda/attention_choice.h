// Chooses the family of attention kernels for a call.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_

#include <string_view>

#include "absl/types/span.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device/tensor_map.h"

namespace pagoda::kernels::cuda {

// The result of tests/gpu/run.sh for the Hopper kernels on one kind of GPU: every test passed, and
// the kernels were faster than those for sm_80: in the geometric mean over the figures of prefill,
// for decode in both means, over large batches and over small ones, and for decode of 8-bit pools
// and of latents over the figures of these.
struct ProvedKernels {
  std::string_view device;  // cudaDeviceProp::name.
  bool hopper_decode = false;
  bool hopper_decode_float8 = false;
  bool hopper_prefill = false;
  bool hopper_latent = false;
  std::string_view results;  // The file in tests/gpu/results/ with the proof.
};

// All proved kernels. Add a row only together with its results.
absl::Span<const ProvedKernels> AllProved();

// The items that the Hopper kernels compute, if types and shapes permit it.
struct HopperChoice {
  bool decode = false;         // Decode of 16-bit pools.
  bool decode_float8 = false;  // Decode of 8-bit pools.
  bool prefill = false;
  bool latent = false;  // Items of either kind.
  friend bool operator==(const HopperChoice&, const HopperChoice&) = default;
};

// kHopper: all kinds. kAuto: the kinds that `proved` lists for this device. Otherwise none.
HopperChoice ChooseHopper(AttentionKernels asked, const HopperDevice& device,
                          absl::Span<const ProvedKernels> proved);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_CHOICE_H_
