#include "kernels/cuda/copy.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cache_args.h"
#include "kernels/cuda/runtime.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cuda {
namespace {

absl::Status CheckPools(const BlockCopyParams& params) {
  if (params.source == nullptr) return InvalidArgument("source is null");
  if (params.target == nullptr) return InvalidArgument("target is null");
  if (params.slot_bytes == 0) return InvalidArgument("slot_bytes is 0");
  return absl::OkStatus();
}

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
  if (absl::Status status = CheckPools(params); !status.ok()) return status;
  const TokenRuns whole = {.num_runs = 1, .run_bytes = params.slot_bytes};
  return CopyRuns(params, whole, params.slot_bytes, stream);
}

absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, Stream stream) {
  if (absl::Status status = CheckPools(params); !status.ok()) return status;
  if (runs.num_runs == 0 || runs.run_bytes == 0 || runs.token_bytes == 0) {
    return InvalidArgument("runs has num_runs ", runs.num_runs, ", run_bytes ", runs.run_bytes,
                           ", token_bytes ", runs.token_bytes, "; none may be 0");
  }
  if (runs.run_bytes > params.slot_bytes / runs.num_runs) {
    return InvalidArgument("runs: ", runs.num_runs, " of ", runs.run_bytes,
                           " bytes do not fit a slot of ", params.slot_bytes);
  }
  if (num_tokens > runs.run_bytes / runs.token_bytes) {
    return InvalidArgument("num_tokens is ", num_tokens, "; a run of ", runs.run_bytes,
                           " bytes has ", runs.run_bytes / runs.token_bytes);
  }
  return CopyRuns(params, runs, num_tokens * runs.token_bytes, stream);
}

absl::Status CopyBlocksAcross(const BlockCopyParams& params, Stream stream) {
  if (absl::Status status = CheckPools(params); !status.ok()) return status;
  for (size_t i = 0; i < params.copies.size(); ++i) {
    const SlotCopy& copy = params.copies[i];
    if (copy.source >= params.source_slots) {
      return InvalidArgument("copies[", i, "].source is slot ", copy.source, " of ",
                             params.source_slots);
    }
    if (copy.target >= params.target_slots) {
      return InvalidArgument("copies[", i, "].target is slot ", copy.target, " of ",
                             params.target_slots);
    }
    if (params.source == params.target && copy.source == copy.target) {
      return InvalidArgument("copies[", i, "] copies slot ", copy.source, " onto itself");
    }
  }
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
