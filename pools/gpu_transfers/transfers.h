// Copies of blocks between a GPU's memory and the host's.
#ifndef PAGODA_POOLS_GPU_TRANSFERS_TRANSFERS_H_
#define PAGODA_POOLS_GPU_TRANSFERS_TRANSFERS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda::cuda {

struct TransferOptions {
  // The limits of a batch. One event covers a batch, and its copies are reported together. A batch
  // has at most this many orders and, after its first order, at most this many bytes.
  uint32_t max_batch_orders = 64;
  uint64_t max_batch_bytes = uint64_t{16} << 20;
  // How many batches of one direction the driver has at the same time. Stop waits for them.
  uint32_t max_running_batches = 8;
};

// Transfers for pools of which some lie in the memory of one device. There are three lanes: up to
// the device, down from it, and within it. Each lane has a stream of the device and a thread that
// waits for the stream's events. One more thread copies within the host. A separate thread gives
// the driver the copies that can start.
//
// Differs from the contract of Transfers in one point: a copy on a stream is given to the driver as
// soon as the copies before it have been given. The device keeps the order, by the stream or by
// waiting for an event. A copy can thus begin before the completions of earlier copies have run. It
// is reported after they have returned.
//
// A failure of the driver fails every order of its batch, because any of their bytes may have been
// written. After a failure from which the device does not recover, every later order fails too.
//
// `pools` must outlive the transfers. Errors: UNAVAILABLE (no CUDA), INVALID_ARGUMENT (no pool lies
// on a device), INTERNAL for failures of the driver; those of Thread::Start.
absl::StatusOr<std::unique_ptr<Transfers>> MakeTransfers(PoolSet* pools, TransferOptions options,
                                                         Transfers::Completion completion);

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_GPU_TRANSFERS_TRANSFERS_H_
