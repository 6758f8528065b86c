// What a self-test has found of a GPU's kernels, and which of them an engine runs by it.
#ifndef PAGODA_ENGINE_MODEL_GPU_REPORT_H_
#define PAGODA_ENGINE_MODEL_GPU_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/attention.h"

namespace pagoda {

// How a family of kernels stands. The names are those of GpuOutcomeName.
enum class GpuOutcome : uint8_t {
  kRunning,      // Under test. In no report that is complete.
  kRuns,         // Right, and chosen.
  kRight,        // Right, and not chosen: another one is faster, or comes first.
  kWrong,        // Its numbers are off by more than the tolerance.
  kFailed,       // A launch, a product or the device failed.
  kUnsupported,  // The device or its driver does not take it.
  kTimeout,      // It did not end in time.
};
// "running", "runs", "right", "wrong", "failed", "unsupported", "timeout".
const char* GpuOutcomeName(GpuOutcome outcome);
// Of one of those names; kFailed for another one.
GpuOutcome GpuOutcomeFromName(const std::string& name);

// One family of kernels for one part of a step.
struct GpuKernelResult {
  std::string part;    // "attention_decode", "products_bf16", "norm"
  std::string family;  // "hopper", "cublaslt", "portable"
  // Whether an engine cannot be without the part.
  bool needed = true;
  GpuOutcome outcome = GpuOutcome::kRunning;
  // The largest error that was met, relative to the norm of the row that it is in (attention and
  // products) or to the number and 1 (everything else), and the largest one that is right.
  double error = 0;
  double tolerance = 0;
  double seconds = 0;  // One run on the device. 0: not timed.
  std::string why;     // For people. Empty where it is right.

  bool right() const { return outcome == GpuOutcome::kRuns || outcome == GpuOutcome::kRight; }
  friend bool operator==(const GpuKernelResult&, const GpuKernelResult&) = default;
};

// Which kernels of attention a backend asks for: decode's for short items, prefill's for long ones.
struct AttentionChoice {
  kernels::cuda::AttentionKernels decode = kernels::cuda::AttentionKernels::kAuto;
  kernels::cuda::AttentionKernels prefill = kernels::cuda::AttentionKernels::kAuto;
  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

// The families of attention, by name and in the order in which they are preferred where they are
// equally fast: the one that asks least of a GPU first, the plain one last.
inline constexpr const char* kAttentionDecode = "attention_decode";
inline constexpr const char* kAttentionPrefill = "attention_prefill";
inline constexpr const char* kFamilySm80 = "sm80";
inline constexpr const char* kFamilyHopper = "hopper";
inline constexpr const char* kFamilyGeneric = "generic";

// A plain value.
struct GpuSelfTestReport {
  std::string device;  // For people: "cuda:0, NVIDIA H200".
  // A part's families lie side by side, in the order of preference.
  std::vector<GpuKernelResult> results;

  // Makes one right family of each part kRuns, the others kRight: the fastest, where a family takes
  // the place of one before it only if it is more than 5 % faster, so that noise chooses nothing.
  // What is not timed counts as slower than what is. The same results give the same choice.
  void Choose();

  // OK where every needed part has a family that runs, and something was tested at all. Else
  // FAILED_PRECONDITION with the parts that have none, and why each of their families is left out.
  absl::Status Check() const;

  // kAuto for a part that was not tested: no item of the model is of that kind.
  AttentionChoice attention() const;

  friend bool operator==(const GpuSelfTestReport&, const GpuSelfTestReport&) = default;
};

// A family in a sentence: "attention_decode by hopper runs: 12.1 us, error 0.0021 of 0.01", or
// "attention_decode by hopper is left out: wrong: error ...".
std::string Describe(const GpuKernelResult& result);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_GPU_REPORT_H_
