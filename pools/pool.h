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
#include "pools/huge_pages.h"
#include "pools/layout.h"
#include "pools/memory_place.h"
#include "pools/shared_memory.h"
#include "pools/types.h"

namespace pagoda {

// A piece of a pool that another process can map. Today a pool has one piece.
struct MappingSegment {
  // For shm_open: "/pagoda-..."; only for people of a device's memory, and of memory in huge pages,
  // which may have no name.
  std::string shm_name;
  MemoryPlace place;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t first_slot = 0;
  uint32_t num_slots = 0;
  // Of host memory; none where the daemon does not tell. A mapping is as large as the memory, which
  // ends in a whole page; a mapping of transparent huge pages asks for them, too (MADV_HUGEPAGE).
  std::optional<MemoryPages> pages;
};

// Everything that a client needs to find a block's bytes.
struct PoolMapping {
  WindowSize window;
  uint32_t pool_index = 0;
  Tier tier = Tier::kPrimary;
  PoolLayout layout;
  uint32_t num_slots = 0;
  std::vector<MappingSegment> segments;
};

// Where a pool's bytes lie.
struct PoolMemory {
  MemoryPlace place;
  // Of slot 0: in this process where the place is the host, else among the device's addresses,
  // where nothing but the device may use it.
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  // Of host memory: whether a device copies from and to it by itself, and then the piece of it that
  // one copy must lie in, counted from `address`. 0: it is not pinned.
  uint64_t pinned_chunk_bytes = 0;
};

// The KV bytes of one PoolLayout in one tier. Owns them: they start as zeros and go with it, unless
// they are kept. Thread-safe where callers touch different slots.
class Pool {
 public:
  virtual ~Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolLayout& layout() const { return layout_; }
  uint32_t num_slots() const { return num_slots_; }
  virtual PoolMemory memory() const = 0;
  virtual MappingSegment segment() const = 0;
  // For another process. A descriptor of a device's memory can always be mapped for writing.
  // Errors: those of SharedMemory::OpenDescriptor, of cuda::Memory::OpenDescriptor.
  virtual absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const = 0;
  // Whether the bytes are those that an earlier owner left.
  virtual bool adopted() const = 0;
  // See SharedMemory::HasOtherUsers.
  virtual bool HasOtherUsers() const = 0;
  // The pool's end leaves its memory behind, where it can.
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
  // later; sparse memory without a name takes it when it is touched. Slots lie as they would in
  // plain pages; what huge pages add lies behind the last one. A name left behind by a process that
  // died is taken over, with its bytes where they are kept and have the same size; one that a
  // living process holds is refused. Errors: OUT_OF_MEMORY (with what is needed and what is free),
  // INVALID_ARGUMENT (name in use, or no slots).
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

  // Lets a device copy from and to the pool by itself, as long as the pool lives. Once.
  // Errors: those of cuda::PinnedMemory::Register; the pool is then as it was.
  absl::Status Pin(cuda::PinnedMemory::Options options);

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
  std::optional<cuda::PinnedMemory> pinned_;  // Of memory_, and ends before it.
};

// A pool in the memory of a CUDA device, which other processes map by its descriptor.
class DevicePool final : public Pool {
 public:
  struct Options {
    std::string name;  // For people.
    PoolLayout layout;
    uint32_t num_slots = 0;
    MemoryPlace place;  // Of cuda::DescribeDevice.
  };

  // Errors: those of cuda::Memory::Create.
  static absl::StatusOr<std::unique_ptr<DevicePool>> Create(Options options);

  PoolMemory memory() const override;
  MappingSegment segment() const override;
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess) const override {
    return memory_.OpenDescriptor();
  }
  bool adopted() const override { return false; }
  bool HasOtherUsers() const override { return true; }  // It cannot be told.
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

// Slots by tier and window, nearest tier first: of each tier one entry for each of
// CacheLayout::windows(); an empty list, or an entry of 0, for no pools there.
struct SlotCounts {
  std::vector<std::vector<uint32_t>> tiers;
};

// Whether a device copies from and to host pools by itself.
enum class Pinning : uint8_t {
  kOff,
  kPreferred,  // Where the driver does not lock the pages, copies go over the driver's own buffers.
  kRequired,   // There it is an error.
};

// Where the pools of a cache are to lie.
struct PoolPlacement {
  MemoryLifetime lifetime = MemoryLifetime::kProcess;
  // The device that the pools of the first tier lie on; none: they lie in shared memory, as those
  // of the tiers below always do.
  std::optional<MemoryPlace> primary_device;
  // Of the pools below the first tier, for that device; without one it means nothing.
  Pinning pin_secondary = Pinning::kRequired;
  // Of the pools in host memory.
  PageRequest pages = {};
  // Told what takes long while it is under way, for people. May be empty.
  std::function<void(const std::string&)> progress;
};

// The pools of a cache, by window, pool index and tier. All pools of a window have as many slots in
// a tier, and the same layout in every tier.
class PoolSet {
 public:
  // `instance` is part of the shared memory names: "/pagoda-<instance>-w<window>-p<pool>", with
  // "-" and DefaultTierName() after it below the first tier, so that memory that was kept is found
  // again whatever the tier is called. REQUIRES: 1 to kMaxTiers tiers; slots of the first in every
  // window. Errors: those of
  // SharedMemoryPool::Create; then what was made here is gone, and what was adopted is still there.
  static absl::StatusOr<std::unique_ptr<PoolSet>> Create(
      const CacheLayout& layout, const SlotCounts& slots, const std::string& instance,
      MemoryLifetime lifetime = MemoryLifetime::kProcess) {
    return Create(layout, slots, instance, PoolPlacement{.lifetime = lifetime});
  }
  // REQUIRES: no device for memory that is kept: a device's memory ends with its last process.
  // Errors: and those of DevicePool::Create; of SharedMemoryPool::Pin where pinning is required.
  static absl::StatusOr<std::unique_ptr<PoolSet>> Create(const CacheLayout& layout,
                                                         const SlotCounts& slots,
                                                         const std::string& instance,
                                                         const PoolPlacement& placement);

  // Removes what dead owners left under the names of pools of that layout, in any tier.
  // Errors: INVALID_ARGUMENT (a living process has one).
  static absl::Status RemoveLeftovers(const CacheLayout& layout, const std::string& instance);

  // This object's end leaves the memory behind, for the next Create with kKept. Without it only the
  // pools that were adopted stay. A process that is killed leaves all of them, whatever it said.
  void KeepNames();

  const CacheLayout& layout() const { return layout_; }
  // The tiers that pools were made of; those without any count.
  size_t num_tiers() const { return pools_.size(); }
  // 0 where the window has no pools in that tier.
  uint32_t num_slots(uint32_t window_index, Tier tier) const;
  // Whether all pools of the window in that tier, at least one, have the bytes of an earlier owner.
  bool adopted(uint32_t window_index, Tier tier) const;
  // Whether any process has one of the pools open or mapped beside this object.
  bool HasOtherUsers() const;
  // Where the pools of a tier lie: all of them in one place.
  MemoryPlace place(Tier tier) const;
  // What the pools of a tier in host memory consist of: the smallest there is among those of the
  // window. REQUIRES: num_slots(window_index, tier) > 0.
  MemoryPages pages(uint32_t window_index, Tier tier) const;
  // The bytes of a tier in host memory by MemoryPages, what the last pages add included; 0 of a
  // tier on a device or without pools.
  std::array<uint64_t, kNumMemoryPages> BytesByPages(Tier tier) const;
  // Why pools of the tier have no larger pages, of the first that has not; empty where none was
  // asked for larger ones.
  std::string PagesShortfall(Tier tier) const;
  // OK, or why not all pools below the first tier are pinned though that was preferred.
  const absl::Status& pinned() const { return pinned_; }
  // REQUIRES: num_slots(window_index, tier) > 0.
  Pool& any_pool(uint32_t window_index, uint32_t pool_index, Tier tier = Tier::kPrimary) const;
  // Of a tier in host memory. REQUIRES: that, and num_slots(window_index, tier) > 0.
  SharedMemoryPool& pool(uint32_t window_index, uint32_t pool_index, Tier tier = Tier::kPrimary);
  // By tier, nearest first; in a tier in the layout's order.
  std::vector<PoolMapping> Mappings() const;
  // New descriptors, one for each segment of Mappings(), in their order.
  // Errors: those of Pool::OpenDescriptor.
  absl::StatusOr<std::vector<FileDescriptor>> OpenDescriptors(MemoryAccess access) const;

 private:
  using WindowPools = std::vector<std::unique_ptr<Pool>>;  // By pool index.

  explicit PoolSet(CacheLayout layout) : layout_(std::move(layout)) {}
  // What the pools of one tier are made from; an empty list for a window without any there.
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

// The client's end: a pool's segments, mapped. Stays as it is when the daemon ends.
class MappedPool {
 public:
  // By the segments' names: for the process that owns the pools.
  // Errors: NotFound where the shared memory is gone, or has no name, as huge pages may have none;
  // INVALID_ARGUMENT for a mapping that does not fit its memory, or of a device's memory, which has
  // no name to map it by.
  static absl::StatusOr<std::unique_ptr<MappedPool>> Open(
      const PoolMapping& mapping, MemoryAccess access = MemoryAccess::kReadWrite);
  // By descriptors, one for each segment: for every other process.
  // Errors: INVALID_ARGUMENT for another number of descriptors, or a mapping that does not fit
  // its memory; PermissionDenied where a descriptor is not open for the access. Of a device's
  // memory: UNAVAILABLE where this process cannot use the device (no CUDA in this build, no driver,
  // or CUDA_VISIBLE_DEVICES hides it), INTERNAL where the driver does not map it.
  static absl::StatusOr<std::unique_ptr<MappedPool>> FromDescriptors(
      const PoolMapping& mapping, std::vector<FileDescriptor> segments, MemoryAccess access);

  const PoolMapping& mapping() const { return mapping_; }
  // Where the bytes lie; a device has the index that it has in this process.
  const PoolMemory& memory() const { return memory_; }
  bool on_host() const { return memory_.place.kind == MemoryKind::kHost; }

  // Of a pool in host memory. REQUIRES: on_host(). Where the pool was mapped with kRead, a write
  // ends the process (SIGSEGV); so in slot().
  absl::Span<std::byte> bytes() const;
  // One slot, in the layout's order. `slot` is below mapping().num_slots. REQUIRES: on_host().
  absl::Span<std::byte> slot(SlotIndex slot) const;

  // Copies one slot's bytes, wherever they lie, and returns when they are there. Of a device's
  // memory that is a copy of the device's, which waits for nothing that runs there.
  // REQUIRES: `slot` is below mapping().num_slots; as many bytes as a slot has; for WriteSlot, the
  // pool was mapped for writing. Errors: INTERNAL for failures of the driver.
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
  // Whose bytes memory_ names: one of the two.
  std::optional<SharedMemory> host_;
  std::optional<cuda::Memory> device_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_POOL_H_
