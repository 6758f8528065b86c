// A pool: the KV bytes of one PoolLayout in one tier, cut into slots.
#ifndef PAGODA_POOLS_POOL_H_
#define PAGODA_POOLS_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/cuda/memory.h"
#include "pools/cuda/pinned_memory.h"
#include "pools/layout.h"
#include "pools/memory/huge_pages.h"
#include "pools/memory/memory_place.h"
#include "pools/memory/shared_memory.h"
#include "pools/types.h"

namespace pagoda {

// A part of a pool that another process can map. Every pool has one segment.
struct MappingSegment {
  // For shm_open: "/pagoda-...". For device memory, and for memory in huge pages without a name,
  // this text only serves people.
  std::string shm_name;
  MemoryPlace place;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t first_slot = 0;
  uint32_t num_slots = 0;
  // Host memory: its pages; none if the daemon does not say. A mapping has the memory's whole
  // length, which ends on a page boundary. A client that maps transparent huge pages must also ask
  // for them (MADV_HUGEPAGE).
  std::optional<MemoryPages> pages;
};

// The information that a client needs to find a block's bytes.
struct PoolMapping {
  WindowSize window;
  uint32_t pool_index = 0;
  Tier tier = kPrimaryTier;
  PoolLayout layout;
  uint32_t num_slots = 0;
  std::vector<MappingSegment> segments;
};

// The location of a pool's bytes.
struct PoolMemory {
  MemoryPlace place;
  // The address of slot 0. On the host: in this process. On a device: a device address, which only
  // the device may access.
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  // Host memory: the size of a pinned chunk, counted from `address`. The device copies from and to
  // pinned memory by itself; one copy must lie within one chunk. 0: not pinned.
  uint64_t pinned_chunk_bytes = 0;
};

// The KV bytes of one PoolLayout in one tier. A pool owns its bytes. They start as zeros, and are
// freed with the pool unless they are kept. Thread-safe if callers touch different slots.
class Pool {
 public:
  virtual ~Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolLayout& layout() const { return layout_; }
  uint32_t num_slots() const { return num_slots_; }
  virtual PoolMemory memory() const = 0;
  virtual MappingSegment segment() const = 0;
  // Opens a descriptor for another process. A descriptor of device memory can always be mapped for
  // writing. Errors: those of SharedMemory::OpenDescriptor and cuda::Memory::OpenDescriptor.
  virtual absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const = 0;
  // Whether the bytes are those of an earlier owner.
  virtual bool adopted() const = 0;
  // See SharedMemory::HasOtherUsers.
  virtual bool HasOtherUsers() const = 0;
  // Keeps the memory after the pool's destruction, if it has a name.
  virtual void KeepName() = 0;

 protected:
  Pool(PoolLayout layout, uint32_t num_slots) : layout_(std::move(layout)), num_slots_(num_slots) {}

 private:
  const PoolLayout layout_;
  const uint32_t num_slots_;
};

// A pool in POSIX shared memory, so that clients write and read KV in place. Owns the name too.
class SharedMemoryPool final : public Pool {
 public:
  struct Options {
    std::string shm_name;
    PoolLayout layout;
    uint32_t num_slots = 0;
    MemoryLifetime lifetime = MemoryLifetime::kProcess;
    PageRequest pages = {};
  };

  // Reserves all of the memory at once, so that a full /dev/shm is an error here and not a SIGBUS
  // later. Sparse memory without a name takes its pages when they are touched. Slots have the same
  // offsets in all kinds of pages; huge pages add their bytes after the last slot. A name that a
  // dead process left is adopted, together with its bytes if they are kept and have the same
  // size. A name that a living process owns is refused. Errors: OUT_OF_MEMORY (with the needed and
  // the free bytes), INVALID_ARGUMENT (name in use, or no slots).
  static absl::StatusOr<std::unique_ptr<SharedMemoryPool>> Create(Options options);

  PoolMemory memory() const override;
  MappingSegment segment() const override;
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const override {
    return memory_.OpenDescriptor(access);
  }
  bool adopted() const override { return memory_.adopted(); }
  bool HasOtherUsers() const override { return memory_.HasOtherUsers(); }
  void KeepName() override { memory_.KeepName(); }
  // See SharedMemory.
  MemoryPages pages() const { return memory_.pages(); }
  const std::string& pages_shortfall() const { return memory_.shortfall(); }

  // Lets a device copy from and to the pool by itself until the pool is destroyed. Call it once.
  // Errors: those of cuda::PinnedMemory::Register; then the pool is unchanged.
  absl::Status Pin(const cuda::PinnedMemory::Options& options);

  // All slots. Aligned to a memory page.
  absl::Span<std::byte> bytes() {
    return memory_.bytes().first(layout().slot_stride_bytes() * num_slots());
  }
  // One slot, in the layout's order. `slot` is below num_slots().
  absl::Span<std::byte> slot(SlotIndex slot);

 private:
  SharedMemoryPool(Options options, SharedMemory memory)
      : Pool(std::move(options.layout), options.num_slots),
        shm_name_(std::move(options.shm_name)),
        memory_(std::move(memory)) {}

  const std::string shm_name_;
  SharedMemory memory_;
  std::optional<cuda::PinnedMemory> pinned_;  // Registers memory_, and is destroyed before it.
};

// A pool in the memory of a CUDA device. Other processes map it by its descriptor.
class DevicePool final : public Pool {
 public:
  struct Options {
    std::string name;  // For people.
    PoolLayout layout;
    uint32_t num_slots = 0;
    MemoryPlace place;  // From cuda::DescribeDevice.
  };

  // Errors: those of cuda::Memory::Create.
  static absl::StatusOr<std::unique_ptr<DevicePool>> Create(Options options);

  PoolMemory memory() const override;
  MappingSegment segment() const override;
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess) const override {
    return memory_.OpenDescriptor();
  }
  bool adopted() const override { return false; }
  bool HasOtherUsers() const override { return true; }  // Unknown, so assume that there are.
  void KeepName() override {}

 private:
  DevicePool(Options options, cuda::Memory memory)
      : Pool(std::move(options.layout), options.num_slots),
        name_(std::move(options.name)),
        place_(options.place),
        memory_(std::move(memory)) {}

  const std::string name_;
  const MemoryPlace place_;
  cuda::Memory memory_;
};

// The numbers of slots by tier and window, nearest tier first. Each tier has one entry per window
// of CacheLayout::windows(). An empty list or an entry of 0 means no pools.
struct SlotCounts {
  std::vector<std::vector<uint32_t>> tiers;
};

// Whether a device copies from and to host pools by itself.
enum class Pinning : uint8_t {
  kOff,
  kPreferred,  // If the driver does not lock the pages, copies use the driver's own buffers.
  kRequired,   // If the driver does not lock the pages, Create fails.
};

// The memory in which a cache's pools are made.
struct PoolPlacement {
  MemoryLifetime lifetime = MemoryLifetime::kProcess;
  // The device of the first tier's pools. None: they lie in shared memory. The pools of the tiers
  // below always lie in shared memory.
  std::optional<MemoryPlace> primary_device;
  // For the pools below the first tier. Has an effect only with a primary_device.
  Pinning pin_lower = Pinning::kRequired;
  // For the pools in host memory.
  PageRequest pages = {};
  // Called with a text for people during long work. May be empty.
  std::function<void(const std::string&)> progress;
};

// The pools of a cache, by window, pool index and tier. In one tier, all pools of a window have the
// same number of slots. A pool has the same layout in every tier.
class PoolSet {
 public:
  // `instance` is part of the shared memory names: "/pagoda-<instance>-w<window>-p<pool>", followed
  // by "-" and DefaultTierName() below the first tier. Kept memory is thus found again after a tier
  // is renamed. REQUIRES: 1 to kMaxTiers tiers; the first has slots in every window. Errors: those
  // of SharedMemoryPool::Create. Then memory that this call made is gone, and memory that it
  // adopted is still there.
  static absl::StatusOr<std::unique_ptr<PoolSet>> Create(
      const CacheLayout& layout, const SlotCounts& slots, const std::string& instance,
      MemoryLifetime lifetime = MemoryLifetime::kProcess) {
    return Create(layout, slots, instance, PoolPlacement{.lifetime = lifetime});
  }
  // REQUIRES: no device together with kept memory: a device's memory ends with the last process
  // that maps it. Errors: also those of DevicePool::Create, and those of SharedMemoryPool::Pin if
  // pinning is required.
  static absl::StatusOr<std::unique_ptr<PoolSet>> Create(const CacheLayout& layout,
                                                         const SlotCounts& slots,
                                                         const std::string& instance,
                                                         const PoolPlacement& placement);

  // Removes the memory that dead owners left under the names of that layout's pools, in any tier.
  // Errors: INVALID_ARGUMENT (a living process owns one).
  static absl::Status RemoveLeftovers(const CacheLayout& layout, const std::string& instance);

  // Keeps the memory after this object's destruction, for the next Create with kKept. Without this
  // call only adopted pools stay. A process that is killed leaves all pools.
  void KeepNames();

  const CacheLayout& layout() const { return layout_; }
  // The number of tiers that were given, tiers without slots included.
  size_t num_tiers() const { return pools_.size(); }
  // 0 if the window has no pools in that tier.
  uint32_t num_slots(uint32_t window_index, Tier tier) const;
  // Whether the window has pools in that tier, and all of them have the bytes of an earlier owner.
  bool adopted(uint32_t window_index, Tier tier) const;
  // Whether another opening or mapping of any of the pools exists, in any process.
  bool HasOtherUsers() const;
  // The place of the tier's pools: all of them lie in one place.
  MemoryPlace place(Tier tier) const;
  // The smallest pages among the window's pools in a tier in host memory. REQUIRES:
  // num_slots(window_index, tier) > 0.
  MemoryPages pages(uint32_t window_index, Tier tier) const;
  // The bytes of a tier in host memory by MemoryPages, including what rounding up to whole pages
  // adds. 0 for a tier on a device or without pools.
  std::array<uint64_t, kNumMemoryPages> BytesByPages(Tier tier) const;
  // Why a pool of the tier has no larger pages: the reason of the first such pool. Empty if none
  // asked for larger pages.
  std::string PagesShortfall(Tier tier) const;
  // OK, or why some pool below the first tier is not pinned although the placement preferred it.
  const absl::Status& pinned() const { return pinned_; }
  // REQUIRES: num_slots(window_index, tier) > 0.
  Pool& any_pool(uint32_t window_index, uint32_t pool_index, Tier tier = kPrimaryTier) const;
  // REQUIRES: the tier is in host memory, and num_slots(window_index, tier) > 0.
  SharedMemoryPool& pool(uint32_t window_index, uint32_t pool_index, Tier tier = kPrimaryTier);
  // By tier, nearest first; within a tier in the layout's order.
  std::vector<PoolMapping> Mappings() const;
  // New descriptors, one for each segment of Mappings(), in their order.
  // Errors: those of Pool::OpenDescriptor.
  absl::StatusOr<std::vector<FileDescriptor>> OpenDescriptors(MemoryAccess access) const;

 private:
  using WindowPools = std::vector<std::unique_ptr<Pool>>;  // By pool index.

  explicit PoolSet(CacheLayout layout) : layout_(std::move(layout)) {}
  // The options of the pools of one tier; an empty list for a window without pools there.
  std::vector<std::vector<SharedMemoryPool::Options>> Plan(Tier tier,
                                                           const std::vector<uint32_t>& slots,
                                                           const std::string& instance,
                                                           MemoryLifetime lifetime,
                                                           const PageRequest& pages) const;
  absl::Status Add(Tier tier, SharedMemoryPool::Options options, WindowPools& pools);
  absl::Status Pin(const PoolPlacement& placement);
  absl::Status PinTier(Tier tier, const PoolPlacement& placement);
  absl::Status PinPool(Tier tier, SharedMemoryPool& pool, const PoolPlacement& placement);

  CacheLayout layout_;
  std::vector<std::vector<WindowPools>> pools_;  // By tier and window.
  std::optional<MemoryPlace> primary_device_;
  absl::Status pinned_;
};

// A pool's segments, mapped by a client. The mapping stays valid when the daemon ends.
class MappedPool {
 public:
  // Maps by the segments' names: for the process that owns the pools. Errors: NotFound if the
  // shared memory is gone or has no name (huge pages can lack one); INVALID_ARGUMENT for a mapping
  // that does not fit its memory, or for device memory, which has no name.
  static absl::StatusOr<std::unique_ptr<MappedPool>> Open(
      const PoolMapping& mapping, MemoryAccess access = MemoryAccess::kReadWrite);
  // Maps by descriptors, one per segment: for every other process. Errors: INVALID_ARGUMENT for a
  // wrong number of descriptors or a mapping that does not fit its memory; PermissionDenied if a
  // descriptor is not open for the access. For device memory: UNAVAILABLE if this process cannot
  // use the device (no CUDA in this build, no driver, or CUDA_VISIBLE_DEVICES hides it), INTERNAL
  // if the driver does not map it.
  static absl::StatusOr<std::unique_ptr<MappedPool>> FromDescriptors(
      const PoolMapping& mapping, std::vector<FileDescriptor> segments, MemoryAccess access);

  const PoolMapping& mapping() const { return mapping_; }
  // The location of the bytes. A device has its index in this process.
  const PoolMemory& memory() const { return memory_; }
  bool on_host() const { return memory_.place.kind == MemoryKind::kHost; }

  // The bytes of a pool in host memory. REQUIRES: on_host(). If the pool was mapped with kRead, a
  // write ends the process (SIGSEGV). The same holds for slot().
  absl::Span<std::byte> bytes() const;
  // One slot, in the layout's order. `slot` is below mapping().num_slots. REQUIRES: on_host().
  absl::Span<std::byte> slot(SlotIndex slot) const;

  // Copies one slot's bytes, on the host or on a device, and returns when the copy is complete. A
  // copy of device memory does not wait for other work on the device. REQUIRES: `slot` is below
  // mapping().num_slots; the span has the slot's size; for WriteSlot, the pool was mapped for
  // writing. Errors: INTERNAL for failures of the driver.
  absl::Status ReadSlot(SlotIndex slot, absl::Span<std::byte> to) const;
  absl::Status WriteSlot(SlotIndex slot, absl::Span<const std::byte> from);

 private:
  static absl::StatusOr<std::unique_ptr<MappedPool>> From(const PoolMapping& mapping,
                                                          SharedMemory memory);
  static absl::StatusOr<std::unique_ptr<MappedPool>> FromDevice(const PoolMapping& mapping,
                                                                const FileDescriptor& fd,
                                                                MemoryAccess access);
  explicit MappedPool(PoolMapping mapping) : mapping_(std::move(mapping)) {}

  PoolMapping mapping_;
  PoolMemory memory_;
  // The owner of the bytes at memory_: exactly one of the two is set.
  std::optional<SharedMemory> host_;
  std::optional<cuda::Memory> device_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_POOL_H_
