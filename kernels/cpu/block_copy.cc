#include "kernels/block_copy.h"

#include <cstring>

#include "kernels/shape_checks.h"

namespace pagoda::kernels::cpu {
namespace {

absl::Status CheckCopies(const BlockCopyParams& params) {
  if (params.source == nullptr) return InvalidArgument("source is null");
  if (params.target == nullptr) return InvalidArgument("target is null");
  if (params.slot_bytes == 0) return InvalidArgument("slot_bytes is 0");
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
  return absl::OkStatus();
}

absl::Status CheckRuns(const TokenRuns& runs, uint64_t slot_bytes, uint32_t num_tokens) {
  if (runs.num_runs == 0 || runs.run_bytes == 0 || runs.token_bytes == 0) {
    return InvalidArgument("runs has num_runs ", runs.num_runs, ", run_bytes ", runs.run_bytes,
                           ", token_bytes ", runs.token_bytes, "; none may be 0");
  }
  if (runs.run_bytes > slot_bytes / runs.num_runs) {
    return InvalidArgument("runs: ", runs.num_runs, " of ", runs.run_bytes,
                           " bytes do not fit a slot of ", slot_bytes);
  }
  if (num_tokens > runs.run_bytes / runs.token_bytes) {
    return InvalidArgument("num_tokens is ", num_tokens, "; a run of ", runs.run_bytes,
                           " bytes has ", runs.run_bytes / runs.token_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyBlocks(const BlockCopyParams& params) {
  if (absl::Status status = CheckCopies(params); !status.ok()) return status;
  for (const SlotCopy& copy : params.copies) {
    std::memcpy(params.target + copy.target * params.slot_bytes,
                params.source + copy.source * params.slot_bytes, params.slot_bytes);
  }
  return absl::OkStatus();
}

absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens) {
  if (absl::Status status = CheckCopies(params); !status.ok()) return status;
  if (absl::Status status = CheckRuns(runs, params.slot_bytes, num_tokens); !status.ok()) {
    return status;
  }
  for (const SlotCopy& copy : params.copies) {
    const std::byte* source = params.source + copy.source * params.slot_bytes;
    std::byte* target = params.target + copy.target * params.slot_bytes;
    for (uint64_t run = 0; run < runs.num_runs; ++run) {
      std::memcpy(target + run * runs.run_bytes, source + run * runs.run_bytes,
                  num_tokens * runs.token_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
