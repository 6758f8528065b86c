#include "kernels/cuda/attention_choice.h"

namespace pagoda::kernels::cuda {

absl::Span<const ProvedKernels> AllProved() {
  static constexpr ProvedKernels kProved[] = {{.device = "NVIDIA H200",
                                               .hopper_decode = true,
                                               .hopper_decode_float8 = true,
                                               .hopper_prefill = true,
                                               .hopper_latent = true,
                                               .results = "2026-11-27-h200.json"},
                                              // Decode of large batches is not faster.
                                              {.device = "NVIDIA H100 80GB HBM3",
                                               .hopper_prefill = true,
                                               .results = "2026-11-27-h100.json"}};
  return kProved;
}

HopperChoice ChooseHopper(AttentionKernels asked, const HopperDevice& device,
                          absl::Span<const ProvedKernels> proved) {
  if (!device.present) return {};
  if (asked == AttentionKernels::kHopper) {
    return {.decode = true, .decode_float8 = true, .prefill = true, .latent = true};
  }
  if (asked != AttentionKernels::kAuto) return {};
  for (const ProvedKernels& kernels : proved) {
    if (kernels.device == device.name) {
      return {.decode = kernels.hopper_decode,
              .decode_float8 = kernels.hopper_decode_float8,
              .prefill = kernels.hopper_prefill,
              .latent = kernels.hopper_latent};
    }
  }
  return {};
}

}  // namespace pagoda::kernels::cuda
