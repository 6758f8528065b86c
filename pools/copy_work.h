// What the implementations of Transfers share. Not for other folders.
#ifndef PAGODA_POOLS_COPY_WORK_H_
#define PAGODA_POOLS_COPY_WORK_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/block_copy.h"
#include "pools/copy_order.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

// The index of the order's window, which has pools in both of its tiers. Errors: UNKNOWN_WINDOW,
// INVALID_ARGUMENT.
absl::StatusOr<uint32_t> WindowOfOrder(const CopyOrder& order, const PoolSet& pools);

// Whether the order names two different slots of its window and no more tokens than a block has.
// The kernels of the CPU look for themselves. Errors: INVALID_ARGUMENT.
absl::Status CheckSlotsOfOrder(const CopyOrder& order, const PoolSet& pools, uint32_t window_index);

// How the tokens of a slot lie.
// REQUIRES: the pool holds elements.
kernels::TokenRuns RunsOf(const PoolLayout& layout);

// Whether the order copies all of a slot: the whole block, or any of its tokens in a pool that is
// not divided by tokens. A copy of some tokens takes their block's scales and opaque bytes whole.
bool CopiesWholeSlot(const CopyOrder& order, const PoolLayout& layout);

// What came of an order.
struct CopyOutcome {
  absl::Status status;
  uint64_t bytes = 0;
  absl::Duration busy;
  absl::Duration latency;
};

// Copies between host pools. `given`: when the order came.
CopyOutcome CarryOutOnHost(const CopyOrder& order, PoolSet& pools,
                           std::chrono::steady_clock::time_point given);

// Of an order that Stop has overtaken.
absl::Status CancelledCopy();

void CountOutcome(const CopyOrder& order, const CopyOutcome& outcome, TransferStats& stats);

// Takes the ticket of a new order. REQUIRES: it is above the one before.
void TakeTicket(Ticket ticket, Ticket& last);

}  // namespace pagoda

#endif  // PAGODA_POOLS_COPY_WORK_H_
