#include "kernels/cuda/copy.h"

#include <algorithm>
#include <vector>

#include "kernels/cache_checks.h"
#include "kernels/cuda/cache/cache_args.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::kernels::cuda {
namespace {

absl::Status CopyRuns(const BlockCopyParams& params, const TokenRuns& runs, uint64_t copied_bytes,
                      Stream stream) {
  if (params.copies.empty() || copied_bytes == 0) return absl::OkStatus();
  const BlockCopyArgs args = {.source = params.source,
                              .target = params.target,
                              .source_slots = params.source_slots,
                              .target_slots = params.target_slots,
                              .slot_bytes = params.slot_bytes,
                              .copies = params.copies.data(),
                              .num_copies = params.copies.size(),
                              .num_runs = runs.num_runs,
                              .run_bytes = runs.run_bytes,
                              .copied_bytes = copied_bytes};
  return StatusOf("block copy", LaunchBlockCopy(args, stream));
}

}  // namespace

absl::Status CopyBlocks(const BlockCopyParams& params, Stream stream) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const TokenRuns whole = {.num_runs = 1, .run_bytes = params.slot_bytes};
  return CopyRuns(params, whole, params.slot_bytes, stream);
}

absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, Stream stream) {
  absl::Status status = CheckShapes(params, runs, num_tokens);
  if (!status.ok()) return status;
  return CopyRuns(params, runs, num_tokens * runs.token_bytes, stream);
}

absl::Status CopyBlocksAcross(const BlockCopyParams& params, Stream stream) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  std::vector<SlotCopy> copies(params.copies.begin(), params.copies.end());
  std::sort(copies.begin(), copies.end(),
            [](const SlotCopy& a, const SlotCopy& b) { return a.source < b.source; });
  std::vector<MemoryCopy> runs;
  for (size_t i = 0; i < copies.size(); ++i) {
    const bool follows = i > 0 && copies[i].source == copies[i - 1].source + 1 &&
                         copies[i].target == copies[i - 1].target + 1;
    if (follows) {
      runs.back().bytes += params.slot_bytes;
    } else {
      runs.push_back({.target = params.target + copies[i].target * params.slot_bytes,
                      .source = params.source + copies[i].source * params.slot_bytes,
                      .bytes = params.slot_bytes});
    }
  }
  return CopyMemory(runs, stream);
}

}  // namespace pagoda::kernels::cuda
