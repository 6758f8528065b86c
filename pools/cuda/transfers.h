// Copies of blocks between a GPU's memory and the host's.
#ifndef PAGODA_POOLS_CUDA_TRANSFERS_H_
#define PAGODA_POOLS_CUDA_TRANSFERS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda::cuda {

struct TransferOptions {
  // The copies that one event covers are reported together: at most so many orders, and, beyond the
  // first, so many bytes.
  uint32_t max_batch_orders = 64;
  uint64_t max_batch_bytes = uint64_t{16} << 20;
  // Batches of one direction that the driver has at a time. Stop waits for them.
  uint32_t max_running_batches = 8;
};

// Transfers for pools of which some lie in one device's memory. There are three lanes, each a
// stream of the device and a thread that waits for its events: up to the device, down from it,
// within it; and one thread that copies within the host. A thread of its own gives the driver what
// may start.
//
// Beyond the contract of Transfers: a copy on a stream is given to the driver as soon as those
// before it have been, and the device keeps the order, by the stream or by waiting for their event.
// So it may begin before their completions have run; it is reported after they have returned.
//
// A failure of the driver fails every order of its batch, as their bytes may or may not have been
// written; after one that the device does not recover from, every later order fails too.
//
// `pools` outlives the transfers. Errors: UNAVAILABLE (no CUDA), INVALID_ARGUMENT (no pool lies on
// a device), INTERNAL for failures of the driver.
absl::StatusOr<std::unique_ptr<Transfers>> MakeTransfers(PoolSet* pools, TransferOptions options,
                                                         Transfers::Completion completion);

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_TRANSFERS_H_
