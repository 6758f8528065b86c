// Test pools whose primary tier lies on a CUDA device, and their bytes as a client sees them.
#ifndef PAGODA_TESTS_POOLS_DEVICE_POOLS_H_
#define PAGODA_TESTS_POOLS_DEVICE_POOLS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pools/cuda/device.h"
#include "pools/pool.h"
#include "tests/pools/copy_model.h"

namespace pagoda {

// Skips the test without a device, or fails it if a device is required.
#define PAGODA_NEEDS_DEVICE()                                                             \
  if (const auto device = cuda::DescribeDevice(0); !device.ok()) {                        \
    if (std::getenv("PAGODA_MUST_HAVE_CUDA") == nullptr) GTEST_SKIP() << device.status(); \
    FAIL() << device.status();                                                            \
  }

class DevicePools {
 public:
  // A name per process and call.
  static std::string Instance() {
    static int count = 0;
    return absl::StrCat("device-pools-", getpid(), "-", ++count);
  }
  static PoolPlacement Placement(Pinning pinning = Pinning::kRequired) {
    PoolPlacement placement{.pin_lower = pinning};
    placement.primary_device = cuda::DescribeDevice(0)->place;
    return placement;
  }

  DevicePools(const CacheLayout& layout, const SlotCounts& slots,
              Pinning pinning = Pinning::kRequired) {
    auto pools = PoolSet::Create(layout, slots, Instance(), Placement(pinning));
    if (!pools.ok()) {
      ADD_FAILURE() << pools.status();
      return;
    }
    pools_ = *std::move(pools);
    mapped_ = Map(MemoryAccess::kReadWrite);
  }

  bool ok() const { return pools_ != nullptr && !mapped_.empty(); }
  PoolSet& pools() { return *pools_; }

  // Every pool, mapped as another process maps it.
  std::vector<std::unique_ptr<MappedPool>> Map(MemoryAccess access) const {
    auto descriptors = pools_->OpenDescriptors(access);
    if (!descriptors.ok()) {
      ADD_FAILURE() << descriptors.status();
      return {};
    }
    std::vector<std::unique_ptr<MappedPool>> all;
    const std::vector<PoolMapping> mappings = pools_->Mappings();
    for (size_t i = 0; i < mappings.size(); ++i) {
      std::vector<FileDescriptor> segments;
      segments.push_back(std::move((*descriptors)[i]));
      auto mapped = MappedPool::FromDescriptors(mappings[i], std::move(segments), access);
      if (!mapped.ok()) {
        ADD_FAILURE() << mapped.status();
        return {};
      }
      all.push_back(*std::move(mapped));
    }
    return all;
  }

  // All bytes, by window, pool and tier.
  copy_model::Bytes Snapshot() const {
    copy_model::Bytes bytes;
    for (const auto& pool : mapped_) {
      std::vector<std::byte>& all = bytes[Key(*pool)];
      const uint64_t stride = pool->mapping().layout.slot_stride_bytes();
      all.resize(stride * pool->mapping().num_slots);
      for (uint32_t slot = 0; slot < pool->mapping().num_slots; ++slot) {
        const auto status =
            pool->ReadSlot(SlotIndex(slot), absl::MakeSpan(all).subspan(slot * stride, stride));
        if (!status.ok()) ADD_FAILURE() << status;
      }
    }
    return bytes;
  }

  // Overwrites all slots with bytes of `next_byte`.
  template <class NextByte>
  void Fill(NextByte next_byte) {
    for (const auto& pool : mapped_) {
      std::vector<std::byte> slot(pool->mapping().layout.slot_stride_bytes());
      for (uint32_t i = 0; i < pool->mapping().num_slots; ++i) {
        for (std::byte& byte : slot) byte = static_cast<std::byte>(next_byte());
        const auto status = pool->WriteSlot(SlotIndex(i), slot);
        if (!status.ok()) ADD_FAILURE() << status;
      }
    }
  }

 private:
  std::array<uint32_t, 3> Key(const MappedPool& pool) const {
    const auto& windows = pools_->layout().windows();
    uint32_t window = 0;
    while (windows[window].window != pool.mapping().window) ++window;
    return {window, pool.mapping().pool_index, pool.mapping().tier.value()};
  }

  std::unique_ptr<PoolSet> pools_;
  std::vector<std::unique_ptr<MappedPool>> mapped_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_DEVICE_POOLS_H_
