// The result of the self-test of a GPU's kernels, and the choice of the kernels that an engine
// runs.
#ifndef PAGODA_ENGINE_MODEL_BACKEND_GPU_REPORT_H_
#define PAGODA_ENGINE_MODEL_BACKEND_GPU_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/attention.h"

namespace pagoda {

// The outcome for a family of kernels. The names are those of GpuOutcomeName.
enum class GpuOutcome : uint8_t {
  kRunning,      // Under test; never in a complete report.
  kRuns,         // Right, and chosen.
  kRight,        // Right, but not chosen: another one is faster or preferred.
  kWrong,        // Its error is above the tolerance.
  kFailed,       // A launch, a product or the device failed.
  kUnsupported,  // Not supported by the device or its driver.
  kTimeout,      // It did not end in time.
};
// "running", "runs", "right", "wrong", "failed", "unsupported", "timeout".
const char* GpuOutcomeName(GpuOutcome outcome);
// The outcome of this name; kFailed for an unknown name.
GpuOutcome GpuOutcomeFromName(const std::string& name);

// One family of kernels for one part of a step.
struct GpuKernelResult {
  std::string part;    // "attention_decode", "products_bf16", "norm"
  std::string family;  // "hopper", "cublaslt", "portable"
  // Whether an engine needs the part.
  bool needed = true;
  GpuOutcome outcome = GpuOutcome::kRunning;
  // The largest error found, and the largest that counts as right. The error is relative to the
  // norm of its row for attention and products, otherwise to 1 + the number's magnitude.
  double error = 0;
  double tolerance = 0;
  double seconds = 0;  // One run on the device. 0: not timed.
  std::string why;     // For people. Empty if it is right.

  bool right() const { return outcome == GpuOutcome::kRuns || outcome == GpuOutcome::kRight; }
  friend bool operator==(const GpuKernelResult&, const GpuKernelResult&) = default;
};

// The attention kernels that a backend uses: `decode` for short items, `prefill` for long ones.
struct AttentionChoice {
  kernels::cuda::AttentionKernels decode = kernels::cuda::AttentionKernels::kAuto;
  kernels::cuda::AttentionKernels prefill = kernels::cuda::AttentionKernels::kAuto;
  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

// The fused kernels that a backend uses. Instead of the others, it runs separate kernels.
struct FusedChoice {
  bool rows = true;   // Additions, norms and gates, which then leave rows of 16 bits.
  bool heads = true;  // Norms and rotations of heads with the cache write.
  bool draws = true;  // The choice of tokens, so that their logits do not go to the host.
  // Products of few rows with the norm before them, and the addition or gate behind them.
  bool products = true;
  friend bool operator==(const FusedChoice&, const FusedChoice&) = default;
};
inline constexpr const char* kFusedRows = "fused_rows";
inline constexpr const char* kFusedHeads = "fused_heads";
inline constexpr const char* kTokenDraws = "token_draws";
inline constexpr const char* kFusedProducts = "fused_products";
// Captured launches, which a backend replays.
inline constexpr const char* kStepGraphs = "step_graphs";

// The families of attention by name, in the order of preference between equally fast ones: the one
// that asks least of a GPU first, the plain one last.
inline constexpr const char* kAttentionDecode = "attention_decode";
inline constexpr const char* kAttentionPrefill = "attention_prefill";
inline constexpr const char* kFamilySm80 = "sm80";
inline constexpr const char* kFamilyHopper = "hopper";
inline constexpr const char* kFamilyGeneric = "generic";
// A family of products: the library, with separate kernels before and behind it.
inline constexpr const char* kFamilyCublasLt = "cublaslt";

// A plain value.
struct GpuSelfTestReport {
  std::string device;  // For people: "cuda:0, NVIDIA H200".
  // The families of a part are contiguous, in the order of preference.
  std::vector<GpuKernelResult> results;

  // Makes the fastest right family of each part kRuns, and the other right ones kRight. A family
  // replaces an earlier one only if it is more than 5 % faster, so that noise does not decide. A
  // family without a time counts as slower than a timed one. Equal results give equal choices.
  void Choose();

  // OK if something was tested and every needed part has a family that runs. Otherwise
  // FAILED_PRECONDITION with the missing parts, and why each of their families is left out.
  absl::Status Check() const;

  // kAuto for a part that was not tested, because the model has no items of that kind.
  AttentionChoice attention() const;
  // Those that run. Those that were not tested do not.
  FusedChoice fused() const;
  // Whether graphs run. Not if they were not tested.
  bool graphs() const;

  friend bool operator==(const GpuSelfTestReport&, const GpuSelfTestReport&) = default;
};

// A family in a sentence: "attention_decode by hopper runs: 12.1 us, error 0.0021 of 0.01", or
// "attention_decode by hopper is left out: wrong: error ...".
std::string Describe(const GpuKernelResult& result);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_GPU_REPORT_H_
