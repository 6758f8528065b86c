// Reads the K and V of one layer from the first tier of a cache.
#ifndef PAGODA_SERVER_RPC_LAYER_READER_H_
#define PAGODA_SERVER_RPC_LAYER_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/dense_rows.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda::server {

// Movable. Thread-compatible. Reads without any lock: the caller finds out afterwards whether the
// slot was still the block's (SequenceKv in manager/api/sequence_calls.h).
class LayerReader {
 public:
  // `pools` must outlive the reader. Maps memory on a device once more, for as long as the reader
  // exists. Errors: INVALID_ARGUMENT (no such layer, or an opaque one); those of
  // Pool::OpenDescriptor and MappedPool::FromDescriptors.
  static absl::StatusOr<LayerReader> Open(const PoolSet& pools, uint32_t layer);

  uint32_t window_index() const { return window_index_; }
  const RowForm& form() const { return form_; }

  // Does what CopyRows does, from a slot. REQUIRES: the window has the slot. Errors: INTERNAL for
  // failures of a device's driver. Cost: O(bytes); on a device, O(bytes of the slot).
  absl::Status Read(SlotIndex slot, uint32_t first_token, uint32_t num_tokens, std::byte* keys,
                    std::byte* values);

 private:
  // A pool's bytes, on the host or on a device.
  struct Source {
    const std::byte* host = nullptr;     // Slot 0; null on a device.
    std::unique_ptr<MappedPool> device;  // Null on the host.
    std::vector<std::byte> copy;         // The last slot that was read from the device.

    absl::StatusOr<absl::Span<const std::byte>> Slot(SlotIndex slot, uint64_t slot_bytes);
  };
  static absl::StatusOr<Source> SourceOf(const PoolSet& pools, uint32_t window_index,
                                         uint32_t pool_index);

  LayerReader() = default;

  const PoolLayout* layout_ = nullptr;  // The layout of the pool of elements.
  RowForm form_;
  uint32_t window_index_ = 0;
  size_t layer_index_ = 0;  // In the pool.
  Source elements_;
  Source scales_;  // Empty unless the pool has scales.
  uint64_t scales_bytes_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_LAYER_READER_H_
