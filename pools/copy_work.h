// Code that the implementations of Transfers share. Not for other folders.
#ifndef PAGODA_POOLS_COPY_WORK_H_
#define PAGODA_POOLS_COPY_WORK_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/block_copy.h"
#include "pools/order.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

// Checks that the order's window has pools in both of the order's tiers. Errors: UNKNOWN_WINDOW,
// INVALID_ARGUMENT.
absl::Status CheckWindowOfOrder(const Order& order, const PoolSet& pools);

// Checks that the order names two different slots of its window, and at most as many tokens as a
// block has. The CPU kernels check this themselves. Errors: INVALID_ARGUMENT.
absl::Status CheckSlotsOfOrder(const Order& order, const PoolSet& pools);

// How the tokens lie in a slot. REQUIRES: the pool holds elements.
kernels::TokenRuns RunsOf(const PoolLayout& layout);

// Whether the order copies all of a slot: a whole block, or any number of tokens in a pool that is
// not divided by tokens. A copy of some tokens copies all scales and opaque bytes of their block.
bool CopiesWholeSlot(const Order& order, const PoolLayout& layout);

// The result of an order.
struct CopyOutcome {
  absl::Status status;
  uint64_t bytes = 0;
  absl::Duration busy;
  absl::Duration latency;
};

// Copies between host pools. `given`: the time of the order.
CopyOutcome CarryOutOnHost(const Order& order, PoolSet& pools,
                           std::chrono::steady_clock::time_point given);

// The status of an order that Stop cancelled.
absl::Status CancelledCopy();

void CountOutcome(const Order& order, const CopyOutcome& outcome, TransferStats& stats);

// Stores the ticket of a new order in `last`. REQUIRES: the ticket is above `last`.
void TakeTicket(Ticket ticket, Ticket& last);

}  // namespace pagoda

#endif  // PAGODA_POOLS_COPY_WORK_H_
