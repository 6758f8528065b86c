#include "manager/sequences/capacity_checks.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

absl::Status CapacityChecks::CheckCapacity(TenantId tenant, uint64_t named_tokens,
                                           uint64_t reserved_tokens,
                                           absl::Span<const Match> matches) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const uint32_t first = matches.empty() ? 0 : matches[w].first;
    if (absl::Status status = CheckCapacity(tenant, w, named_tokens, reserved_tokens, first);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CapacityChecks::CheckCapacity(TenantId tenant, uint32_t window_index,
                                           uint64_t named_tokens, uint64_t reserved_tokens,
                                           uint32_t first_block) const {
  const WindowBlockManager& window = *windows_[window_index];
  const uint32_t quota = window.Quota(tenant);
  const uint32_t most_blocks = std::min(window.capacity(), quota);
  // A sliding window never holds a long sequence as a whole.
  const uint64_t tokens = window.sliding() ? reserved_tokens : named_tokens;
  const uint64_t blocks = window.sliding() ? uint64_t{first_block} + most_blocks : most_blocks;
  const uint64_t most = std::min<uint64_t>(blocks * windows_.tokens_per_block().value(),
                                           std::numeric_limits<uint32_t>::max());
  if (tokens <= most && named_tokens <= std::numeric_limits<uint32_t>::max()) {
    return absl::OkStatus();
  }
  const std::string asked = absl::StrCat("requested: ", Counted(tokens, "token"), "; ");
  if (quota < window.capacity()) {
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat(asked, "these take ", Counted(windows_.TableSize(tokens), "block"),
                     " of window ", WindowName(window.window()), ", and the tenant's quota is ",
                     quota));
  }
  return MakeError(
      Reason::kInvalidCount,
      absl::StrCat(asked, "window ", WindowName(window.window()), " holds at most ", most));
}

absl::Status CapacityChecks::Refusal(TenantId tenant, uint32_t window_index,
                                     const BlockNeeds& needs) const {
  const WindowBlockManager& window = *windows_[window_index];
  const std::string in_window = absl::StrCat(" in window ", WindowName(window.window()));
  // If both refuse, only the tenant itself can free enough of its quota.
  if (!needs.quota.met()) {
    return MakeError(
        Reason::kTenantQuotaExceeded,
        absl::StrCat(Counted(needs.quota.blocks, "block"), " needed, ", needs.quota.available,
                     " are left of the tenant's quota of ", window.Quota(tenant), in_window));
  }
  return MakeError(Reason::kBlocksExhausted,
                   absl::StrCat(Counted(needs.pool.blocks, "block"), " needed, ",
                                needs.pool.available, " are free or evictable", in_window));
}

absl::Status CapacityChecks::CheckGrowth(const Sequence& sequence, uint64_t reserved_tokens) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    if (absl::Status status = CheckCapacity(sequence.tenant, w, reserved_tokens, reserved_tokens,
                                            sequence.windows[w].first);
        !status.ok()) {
      return status;
    }
    const uint32_t blocks =
        windows_[w]->sequences().BlocksToGrow(sequence, windows_.TableSize(reserved_tokens));
    if (absl::Status status =
            CheckNeeds(sequence.tenant, w, windows_[w]->NeedsOf(blocks, sequence.tenant));
        !status.ok()) {
      return status;
    }
  }
  const uint64_t more = TableBytes(windows_.TableSize(reserved_tokens) -
                                   windows_.TableSize(sequence.reserved_tokens));
  if (more == 0) return absl::OkStatus();
  return accounts_.Check(sequence.tenant,
                         {.bytes = more, .all_bytes = sequence.kept_bytes() + more});
}

}  // namespace pagoda
