// Pools in GPU memory, on any driver: a device's or the fake one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "tests/pools/device_pools.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

const SlotCounts kSlots = {.tiers = {{3, 3}, {2, 2}}};

TEST(CudaPoolTest, ThePrimaryTierLiesOnTheDeviceAndTheLowerIsPinned) {
  PAGODA_NEEDS_DEVICE();
  DevicePools device(copy_model::TwoWindows(), kSlots);
  ASSERT_TRUE(device.ok());
  PoolSet& pools = device.pools();
  EXPECT_EQ(PlaceName(pools.place(kPrimaryTier)), "cuda:0");
  EXPECT_EQ(PlaceName(pools.place(Tier(1))), "host");
  EXPECT_TRUE(pools.pinned().ok());

  const Pool& primary = pools.any_pool(1, 1);
  EXPECT_EQ(primary.num_slots(), 3u);
  EXPECT_EQ(primary.memory().place, cuda::DescribeDevice(0)->place);
  EXPECT_EQ(primary.memory().size_bytes, 3 * primary.layout().slot_stride_bytes());
  EXPECT_EQ(primary.memory().address % (64 << 10), 0u);
  EXPECT_EQ(primary.segment().place, primary.memory().place);
  const PoolMemory lower = pools.any_pool(1, 1, Tier(1)).memory();
  EXPECT_EQ(lower.place.kind, MemoryKind::kHost);
  EXPECT_EQ(lower.address, reinterpret_cast<uint64_t>(pools.pool(1, 1, Tier(1)).bytes().data()));
  EXPECT_GT(lower.pinned_chunk_bytes, 0u);
}

TEST(CudaPoolTest, WhatOneMappingWritesAnotherReads) {
  PAGODA_NEEDS_DEVICE();
  DevicePools device(copy_model::TwoWindows(), kSlots);
  ASSERT_TRUE(device.ok());
  for (const auto& [key, bytes] : device.Snapshot()) {
    EXPECT_EQ(bytes, std::vector(bytes.size(), std::byte{0}));  // Their initial content.
  }
  const auto writers = device.Map(MemoryAccess::kReadWrite);
  const auto readers = device.Map(MemoryAccess::kRead);
  ASSERT_EQ(writers.size(), 12u);
  for (size_t i = 0; i < writers.size(); ++i) {
    const MappedPool& pool = *writers[i];
    EXPECT_EQ(pool.on_host(), pool.mapping().tier == Tier(1));
    const std::vector bytes(pool.mapping().layout.slot_stride_bytes(), std::byte(i + 1));
    ASSERT_TRUE(writers[i]->WriteSlot(SlotIndex(1), bytes).ok());
    std::vector<std::byte> seen(bytes.size());
    ASSERT_TRUE(readers[i]->ReadSlot(SlotIndex(1), absl::MakeSpan(seen)).ok());
    EXPECT_EQ(seen, bytes);
    ASSERT_TRUE(readers[i]->ReadSlot(SlotIndex(0), absl::MakeSpan(seen)).ok());
    EXPECT_EQ(seen, std::vector(bytes.size(), std::byte{0}));
  }
}

TEST(CudaPoolTest, AMappingOutlivesThePool) {
  PAGODA_NEEDS_DEVICE();
  std::vector<std::unique_ptr<MappedPool>> mapped;
  {
    DevicePools device(copy_model::TwoWindows(), kSlots);
    ASSERT_TRUE(device.ok());
    device.Fill([] { return 0x5a; });
    mapped = device.Map(MemoryAccess::kRead);
  }
  ASSERT_FALSE(mapped.empty());
  std::vector<std::byte> seen(mapped[0]->mapping().layout.slot_stride_bytes());
  ASSERT_TRUE(mapped[0]->ReadSlot(SlotIndex(2), absl::MakeSpan(seen)).ok());
  EXPECT_EQ(seen, std::vector(seen.size(), std::byte{0x5a}));
}

TEST(CudaPoolTest, WhatDoesNotFitIsRefusedWithItsBytes) {
  PAGODA_NEEDS_DEVICE();
  const auto free_bytes = cuda::DescribeDevice(0)->free_bytes;
  const auto layout = copy_model::TwoWindows();
  const uint32_t slots = std::numeric_limits<uint32_t>::max();  // Each slot has hundreds of bytes.
  const auto pools = PoolSet::Create(layout, {.tiers = {{slots, slots}}}, DevicePools::Instance(),
                                     DevicePools::Placement());
  EXPECT_EQ(ReasonOf(pools.status()), Reason::kOutOfMemory) << pools.status();
  EXPECT_THAT(pools.status().message(), HasSubstr("on CUDA device 0, where "));
  EXPECT_EQ(cuda::DescribeDevice(0)->free_bytes, free_bytes) << "nothing is left";
}

TEST(CudaPoolTest, ADeviceIsFoundByItsIdentity) {
  PAGODA_NEEDS_DEVICE();
  DeviceUuid uuid = cuda::DescribeDevice(0)->place.uuid;
  EXPECT_EQ(*cuda::FindDevice(uuid), 0);
  uuid[3] ^= 0xff;
  EXPECT_TRUE(absl::IsUnavailable(cuda::FindDevice(uuid).status()));
  EXPECT_EQ(ReasonOf(cuda::DescribeDevice(1 << 20).status()), Reason::kInvalidArgument);
}

TEST(CudaPoolTest, AMappingThatIsNotWhatItSaysIsRefused) {
  PAGODA_NEEDS_DEVICE();
  DevicePools device(copy_model::TwoWindows(), kSlots);
  ASSERT_TRUE(device.ok());
  const PoolMapping good = device.pools().Mappings()[0];
  const auto map = [&](const PoolMapping& mapping) {
    auto descriptors = device.pools().OpenDescriptors(MemoryAccess::kRead);
    std::vector<FileDescriptor> segments;
    segments.push_back(std::move(descriptors->front()));
    return MappedPool::FromDescriptors(mapping, std::move(segments), MemoryAccess::kRead).status();
  };
  EXPECT_TRUE(map(good).ok());
  EXPECT_EQ(ReasonOf(MappedPool::Open(good).status()), Reason::kInvalidArgument);
  PoolMapping other = good;
  other.segments[0].place.uuid[0] ^= 0xff;
  EXPECT_TRUE(absl::IsUnavailable(map(other)));
  EXPECT_THAT(map(other).message(), HasSubstr("which this process cannot use"));
  other = good;
  other.num_slots = 4;  // The memory has three.
  EXPECT_EQ(ReasonOf(map(other)), Reason::kInvalidArgument);
  other = good;
  other.segments[0].offset_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ReasonOf(map(other)), Reason::kInvalidArgument);
  other = good;
  other.segments[0].size_bytes = uint64_t{1} << 30;  // More than the allocation.
  EXPECT_FALSE(map(other).ok());
}

// The error in a process without a driver, or in a build without CUDA.
TEST(CudaPoolTest, WithoutADeviceAClientIsToldSo) {
  if (cuda::DescribeDevice(0).ok()) GTEST_SKIP() << "there is a device";
  const auto layout = copy_model::TwoWindows();
  PoolMapping mapping{.layout = layout.windows()[0].pools[0], .num_slots = 1, .segments = {{}}};
  mapping.segments[0].shm_name = "/pagoda-x";
  mapping.segments[0].place.kind = MemoryKind::kCuda;
  std::vector<FileDescriptor> segments(1);
  const auto mapped =
      MappedPool::FromDescriptors(mapping, std::move(segments), MemoryAccess::kRead);
  EXPECT_TRUE(absl::IsUnavailable(mapped.status())) << mapped.status();
  EXPECT_THAT(mapped.status().message(),
              HasSubstr("pool /pagoda-x lies in the memory of the daemon's cuda:0, which this "
                        "process cannot use: "));
}

}  // namespace
}  // namespace pagoda
