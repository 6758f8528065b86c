#include "pools/copy_work.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {
namespace {

std::string SlotName(SlotRef ref) {
  return absl::StrCat(DefaultTierName(ref.tier), " slot ", ref.slot.value());
}

absl::Status Refuse(const Order& order, const std::string& why) {
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a copy of ", Counted(order.num_tokens, "token"), " of ",
                                SlotName(order.source), " to ", SlotName(order.target), ": ", why));
}

// Copies the order's tokens between two pools of the same layout. Returns the bytes copied.
absl::StatusOr<uint64_t> CopyInPool(const Order& order, SharedMemoryPool& source,
                                    SharedMemoryPool& target) {
  const PoolLayout& layout = source.layout();
  const kernels::SlotCopy copy{.source = order.source.slot.value(),
                               .target = order.target.slot.value()};
  const kernels::BlockCopyParams params{.source = source.bytes().data(),
                                        .target = target.bytes().data(),
                                        .source_slots = source.num_slots(),
                                        .target_slots = target.num_slots(),
                                        .slot_bytes = layout.slot_stride_bytes(),
                                        .copies = {&copy, 1}};
  if (CopiesWholeSlot(order, layout)) {
    if (absl::Status status = kernels::cpu::CopyBlocks(params); !status.ok()) return status;
    return params.slot_bytes;
  }
  const kernels::TokenRuns runs = RunsOf(layout);
  if (absl::Status status = kernels::cpu::CopyBlockTokens(params, runs, order.num_tokens);
      !status.ok()) {
    return status;
  }
  return runs.num_runs * runs.token_bytes * order.num_tokens;
}

// Copies in every pool of the window. Returns the bytes copied.
absl::StatusOr<uint64_t> CopyInWindow(const Order& order, PoolSet& pools) {
  if (absl::Status status = CheckWindowOfOrder(order, pools); !status.ok()) return status;
  const uint32_t window = order.window_index;
  uint64_t bytes = 0;
  for (uint32_t p = 0; p < pools.layout().windows()[window].pools.size(); ++p) {
    const absl::StatusOr<uint64_t> copied = CopyInPool(
        order, pools.pool(window, p, order.source.tier), pools.pool(window, p, order.target.tier));
    if (!copied.ok()) return copied.status();
    bytes += *copied;
  }
  return bytes;
}

}  // namespace

absl::Status CheckWindowOfOrder(const Order& order, const PoolSet& pools) {
  const std::vector<WindowLayout>& windows = pools.layout().windows();
  if (order.window_index >= windows.size()) {
    return MakeError(Reason::kUnknownWindow, absl::StrCat("a copy in window ", order.window_index,
                                                          ": there are ", windows.size()));
  }
  for (const SlotRef& ref : {order.source, order.target}) {
    if (pools.num_slots(order.window_index, ref.tier) > 0) continue;
    return Refuse(order, absl::StrCat("window ", WindowName(windows[order.window_index].window),
                                      " has no pools in that tier"));
  }
  return absl::OkStatus();
}

absl::Status CheckSlotsOfOrder(const Order& order, const PoolSet& pools) {
  for (const SlotRef& ref : {order.source, order.target}) {
    const uint32_t slots = pools.num_slots(order.window_index, ref.tier);
    if (ref.slot.value() >= slots) {
      return Refuse(order, absl::StrCat("that tier has ", Counted(slots, "slot")));
    }
  }
  if (order.source == order.target) return Refuse(order, "onto itself");
  const uint32_t tokens = pools.layout().spec().tokens_per_block;
  if (order.num_tokens > tokens) return Refuse(order, absl::StrCat("a block has ", tokens));
  return absl::OkStatus();
}

kernels::TokenRuns RunsOf(const PoolLayout& layout) {
  return {.num_runs = layout.layers.size() * layout.kv_factor * layout.num_kv_heads,
          .run_bytes = layout.head_stride_bytes(),
          .token_bytes = layout.token_stride_bytes()};
}

bool CopiesWholeSlot(const Order& order, const PoolLayout& layout) {
  if (order.num_tokens == layout.tokens_per_block) return true;
  return order.num_tokens > 0 && layout.content != PoolContent::kElements;
}

CopyOutcome CarryOutOnHost(const Order& order, PoolSet& pools,
                           std::chrono::steady_clock::time_point given) {
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<uint64_t> bytes = CopyInWindow(order, pools);
  const auto end = std::chrono::steady_clock::now();
  return {bytes.status(), bytes.ok() ? *bytes : 0, absl::FromChrono(end - start),
          absl::FromChrono(end - given)};
}

absl::Status CancelledCopy() {
  return absl::CancelledError("the copy had not started when transfers were stopped");
}

void CountOutcome(const Order& order, const CopyOutcome& outcome, TransferStats& stats) {
  TransferStats::Direction& direction =
      stats.directions[order.source.tier.value()][order.target.tier.value()];
  direction.busy += outcome.busy;
  if (!outcome.status.ok()) {
    ++stats.failed;
    return;
  }
  ++direction.copies;
  direction.bytes += outcome.bytes;
  direction.latency.Observe(outcome.latency);
}

void TakeTicket(Ticket ticket, Ticket& last) {
  PAGODA_CHECK(ticket > last, "orders come in the order of their tickets");
  last = ticket;
}

}  // namespace pagoda
