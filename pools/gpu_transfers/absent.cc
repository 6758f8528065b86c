// A build without CUDA has no transfers to a GPU. DescribeDevice returns the error that says so.
#include "pools/cuda/device.h"
#include "pools/gpu_transfers/transfers.h"

namespace pagoda::cuda {

absl::StatusOr<std::unique_ptr<Transfers>> MakeTransfers(PoolSet*, TransferOptions,
                                                         Transfers::Completion) {
  return DescribeDevice(0).status();
}

}  // namespace pagoda::cuda
