#include "kernels/block_copy.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/parallel.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cpu {
namespace {

// That the pools are one or apart.
absl::Status CheckPools(const BlockCopyParams& params) {
  if (params.source == nullptr) return InvalidArgument("source is null");
  if (params.target == nullptr) return InvalidArgument("target is null");
  if (params.slot_bytes == 0) return InvalidArgument("slot_bytes is 0");
  const auto source = reinterpret_cast<uintptr_t>(params.source);
  const auto target = reinterpret_cast<uintptr_t>(params.target);
  const uintptr_t source_end = source + params.source_slots * params.slot_bytes;
  const uintptr_t target_end = target + params.target_slots * params.slot_bytes;
  if (source == target || source_end <= target || target_end <= source) return absl::OkStatus();
  return InvalidArgument("source and target overlap and are not one pool");
}

// That no copy's target is another's target or source.
absl::Status CheckDisjoint(const BlockCopyParams& params) {
  if (params.copies.size() < 2) return absl::OkStatus();
  std::vector<uint32_t> targets(params.copies.size());
  std::transform(params.copies.begin(), params.copies.end(), targets.begin(),
                 [](const SlotCopy& copy) { return copy.target; });
  std::sort(targets.begin(), targets.end());
  const auto twice = std::adjacent_find(targets.begin(), targets.end());
  if (twice != targets.end())
    return InvalidArgument("copies have slot ", *twice, " as target twice");
  if (params.source != params.target) return absl::OkStatus();
  for (size_t i = 0; i < params.copies.size(); ++i) {
    const uint32_t source = params.copies[i].source;
    if (!std::binary_search(targets.begin(), targets.end(), source)) continue;
    return InvalidArgument("copies[", i, "].source is slot ", source, ", the target of another");
  }
  return absl::OkStatus();
}

absl::Status CheckCopies(const BlockCopyParams& params) {
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
  return CheckDisjoint(params);
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

// A copy of bytes: of elements of one byte that keep their type.
ConvertRows CopyFor(uint64_t total_bytes, uint64_t alignment, Isa isa) {
  const bool past = total_bytes >= kPastCachesBytes && alignment % kStreamAlignment == 0;
  return FindConversion(ElementType::kFloat8E4M3, ElementType::kFloat8E4M3, isa,
                        past ? Stores::kPastCaches : Stores::kThroughCaches);
}

// What is read from four places in turn keeps more of a core's prefetchers at work than what is
// read from one: measured, a fourth to a half faster.
constexpr uint64_t kStreams = 4;
constexpr uint64_t kStepBytes = 256;  // Of a stream, before it is the next one's turn.

void CopyBytes(ConvertRows copy, std::byte* target, const std::byte* source, uint64_t bytes) {
  const uint64_t stream_bytes = bytes / kStreams / kStepBytes * kStepBytes;
  for (uint64_t i = 0; i < stream_bytes; i += kStepBytes) {
    copy({.source = source + i,
          .source_stride_bytes = stream_bytes,
          .target = target + i,
          .target_stride_bytes = stream_bytes,
          .num_rows = kStreams,
          .row_elements = kStepBytes},
         1.0f);
  }
  const uint64_t done = kStreams * stream_bytes;
  copy({.source = source + done,
        .target = target + done,
        .num_rows = 1,
        .row_elements = bytes - done},
       1.0f);
}

// A slot's units, of which threads take ranges.
constexpr uint64_t kUnitBytes = 64 << 10;

}  // namespace

absl::Status CopyBlocks(const BlockCopyParams& params, const Execution& execution) {
  if (absl::Status status = CheckCopies(params); !status.ok()) return status;
  const uint64_t alignment = reinterpret_cast<uintptr_t>(params.target) | params.slot_bytes;
  const ConvertRows copy =
      CopyFor(params.copies.size() * params.slot_bytes, alignment, execution.isa);
  const uint64_t slot_units = (params.slot_bytes - 1) / kUnitBytes + 1;
  const uint64_t units = params.copies.size() * slot_units;
  InPieces(execution, units, std::min(kUnitBytes, params.slot_bytes),
           [&](uint64_t begin, uint64_t end) {
             while (begin < end) {
               const SlotCopy& slots = params.copies[begin / slot_units];
               const uint64_t first = begin % slot_units;
               const uint64_t count = std::min(slot_units - first, end - begin);
               const uint64_t from = first * kUnitBytes;
               const uint64_t to = std::min((first + count) * kUnitBytes, params.slot_bytes);
               CopyBytes(copy, params.target + slots.target * params.slot_bytes + from,
                         params.source + slots.source * params.slot_bytes + from, to - from);
               begin += count;
             }
             FenceStores();
           });
  return absl::OkStatus();
}

absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, const Execution& execution) {
  if (absl::Status status = CheckCopies(params); !status.ok()) return status;
  if (absl::Status status = CheckRuns(runs, params.slot_bytes, num_tokens); !status.ok()) {
    return status;
  }
  const uint64_t row_bytes = num_tokens * runs.token_bytes;
  const uint64_t slot_bytes = runs.num_runs * row_bytes;
  const uint64_t alignment =
      reinterpret_cast<uintptr_t>(params.target) | params.slot_bytes | runs.run_bytes | row_bytes;
  const ConvertRows copy = CopyFor(params.copies.size() * slot_bytes, alignment, execution.isa);
  InPieces(execution, params.copies.size(), slot_bytes, [&](uint64_t begin, uint64_t end) {
    for (const SlotCopy& slots : params.copies.subspan(begin, end - begin)) {
      copy({.source = params.source + slots.source * params.slot_bytes,
            .source_stride_bytes = runs.run_bytes,
            .target = params.target + slots.target * params.slot_bytes,
            .target_stride_bytes = runs.run_bytes,
            .num_rows = runs.num_runs,
            .row_elements = row_bytes},
           1.0f);
    }
    FenceStores();
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
