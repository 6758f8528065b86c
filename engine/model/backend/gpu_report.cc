#include "engine/model/backend/gpu_report.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using kernels::cuda::AttentionKernels;

constexpr std::array<std::pair<GpuOutcome, const char*>, 7> kNames = {{
    {GpuOutcome::kRunning, "running"},
    {GpuOutcome::kRuns, "runs"},
    {GpuOutcome::kRight, "right"},
    {GpuOutcome::kWrong, "wrong"},
    {GpuOutcome::kFailed, "failed"},
    {GpuOutcome::kUnsupported, "unsupported"},
    {GpuOutcome::kTimeout, "timeout"},
}};

// A family replaces an earlier one below this multiple of its time.
constexpr double kFaster = 0.95;

bool IsFaster(const GpuKernelResult& one, const GpuKernelResult& other) {
  if (one.seconds <= 0) return false;
  return other.seconds <= 0 || one.seconds < kFaster * other.seconds;
}

AttentionKernels KernelsOf(const GpuSelfTestReport& report, const std::string& part) {
  for (const GpuKernelResult& result : report.results) {
    if (result.part != part || result.outcome != GpuOutcome::kRuns) continue;
    if (result.family == kFamilyHopper) return AttentionKernels::kHopper;
    return result.family == kFamilyGeneric ? AttentionKernels::kGeneric : AttentionKernels::kSm80;
  }
  return AttentionKernels::kAuto;
}

bool Runs(const GpuSelfTestReport& report, const std::string& part) {
  return std::any_of(report.results.begin(), report.results.end(), [&](const auto& result) {
    return result.part == part && result.outcome == GpuOutcome::kRuns;
  });
}

bool RunsBy(const GpuSelfTestReport& report, const std::string& part, const std::string& family) {
  return std::any_of(report.results.begin(), report.results.end(), [&](const auto& result) {
    return result.part == part && result.family == family && result.outcome == GpuOutcome::kRuns;
  });
}

}  // namespace

const char* GpuOutcomeName(GpuOutcome outcome) {
  for (const auto& [value, name] : kNames) {
    if (value == outcome) return name;
  }
  return "failed";
}

GpuOutcome GpuOutcomeFromName(const std::string& name) {
  for (const auto& [value, known] : kNames) {
    if (name == known) return value;
  }
  return GpuOutcome::kFailed;
}

void GpuSelfTestReport::Choose() {
  GpuKernelResult* best = nullptr;
  for (GpuKernelResult& result : results) {
    if (best != nullptr && best->part != result.part) best = nullptr;
    if (!result.right()) continue;
    result.outcome = GpuOutcome::kRight;
    if (best != nullptr && !IsFaster(result, *best)) continue;
    if (best != nullptr) best->outcome = GpuOutcome::kRight;
    result.outcome = GpuOutcome::kRuns;
    best = &result;
  }
}

absl::Status GpuSelfTestReport::Check() const {
  std::string missing;
  bool tested = false;
  for (size_t first = 0; first < results.size();) {
    const GpuKernelResult& of_part = results[first];
    bool runs = !of_part.needed;
    std::string reasons;
    size_t i = first;
    for (; i < results.size() && results[i].part == of_part.part; ++i) {
      runs = runs || results[i].outcome == GpuOutcome::kRuns;
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", Describe(results[i]));
    }
    if (!runs) absl::StrAppend(&missing, missing.empty() ? "" : "; ", reasons);
    tested = tested || of_part.needed;
    first = i;
  }
  if (missing.empty() && tested) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the self-test on ", device.empty() ? "the GPU" : device,
      " leaves the engine without kernels: ", missing.empty() ? "nothing was tested" : missing));
}

AttentionChoice GpuSelfTestReport::attention() const {
  return {.decode = KernelsOf(*this, kAttentionDecode),
          .prefill = KernelsOf(*this, kAttentionPrefill)};
}

FusedChoice GpuSelfTestReport::fused() const {
  return {.rows = Runs(*this, kFusedRows),
          .heads = Runs(*this, kFusedHeads),
          .draws = Runs(*this, kTokenDraws),
          .products = RunsBy(*this, kFusedProducts, kFamilySm80)};
}

bool GpuSelfTestReport::graphs() const { return Runs(*this, kStepGraphs); }

std::string Describe(const GpuKernelResult& result) {
  const std::string what = absl::StrCat(result.part, " by ", result.family);
  const auto numbers = [&] {
    return absl::StrCat(
        result.seconds > 0 ? absl::StrCat(result.seconds * 1e6, " us, ") : std::string(), "error ",
        result.error, " of ", result.tolerance);
  };
  if (result.outcome == GpuOutcome::kRuns) return absl::StrCat(what, " runs: ", numbers());
  if (result.right()) return absl::StrCat(what, " is right but not chosen: ", numbers());
  return absl::StrCat(what, " is left out: ", GpuOutcomeName(result.outcome),
                      result.why.empty() ? "" : ": ", result.why);
}

}  // namespace pagoda
