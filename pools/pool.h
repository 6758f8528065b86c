// A pool: the KV bytes of one PoolLayout in one tier, cut into slots.
#ifndef PAGODA_POOLS_POOL_H_
#define PAGODA_POOLS_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/layout.h"
#include "pools/shared_memory.h"
#include "pools/types.h"

namespace pagoda {

// A piece of a pool that another process can map. The first version has one piece a pool; shards
// and grown pools have several.
struct MappingSegment {
  std::string shm_name;  // For shm_open: "/pagoda-...".
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t first_slot = 0;
  uint32_t num_slots = 0;
  uint32_t shard = 0;
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

// A pool in POSIX shared memory, so that clients write and read KV in place. Owns the memory and
// its name: both go with it, and the bytes start as zeros, unless they are kept. Thread-safe where
// callers touch different slots.
class SharedMemoryPool {
 public:
  struct Options {
    std::string shm_name;
    PoolLayout layout;
    uint32_t num_slots = 0;
    MemoryLifetime lifetime = MemoryLifetime::kProcess;
  };

  // Reserves all of the memory at once, so that a full /dev/shm is an error here and not a SIGBUS
  // later. A name left behind by a process that died is taken over, with its bytes where they are
  // kept and have the same size; one that a living process holds is refused. Errors: OUT_OF_MEMORY
  // (with what is needed and what is free), INVALID_ARGUMENT (name in use, or no slots).
  static absl::StatusOr<std::unique_ptr<SharedMemoryPool>> Create(Options options);
  const PoolLayout& layout() const { return options_.layout; }
  uint32_t num_slots() const { return options_.num_slots; }
  MappingSegment segment() const;
  // Whether the bytes are those that an earlier owner left.
  bool adopted() const { return memory_.adopted(); }
  // See SharedMemory::OpenDescriptor.
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const {
    return memory_.OpenDescriptor(access);
  }

  // All of the pool. Aligned to a memory page.
  absl::Span<std::byte> bytes() { return memory_.bytes(); }
  // One slot, in the layout's order. `slot` is below num_slots().
  absl::Span<std::byte> slot(SlotIndex slot);
  // See SharedMemory::HasOtherUsers.
  bool HasOtherUsers() const { return memory_.HasOtherUsers(); }
  // The pool's end leaves its memory behind.
  void KeepName() { memory_.KeepName(); }

 private:
  SharedMemoryPool(Options options, SharedMemory memory)
      : options_(std::move(options)), memory_(std::move(memory)) {}

  Options options_;
  SharedMemory memory_;
};

// Slots by tier and window: one entry for each of CacheLayout::windows(); an empty list, or an
// entry of 0, for no pools there.
struct SlotCounts {
  std::vector<uint32_t> primary;
  std::vector<uint32_t> secondary;
};

// The pools of a cache, by window, pool index and tier. All pools of a window have as many slots in
// a tier, and the same layout in both tiers.
class PoolSet {
 public:
  // `instance` is part of the shared memory names: "/pagoda-<instance>-w<window>-p<pool>", with
  // "-secondary" after it for that tier. Memory that is kept is so from here on, whatever becomes
  // of the process. REQUIRES: primary slots for every window. Errors: those of
  // SharedMemoryPool::Create; nothing is left behind then.
  static absl::StatusOr<std::unique_ptr<PoolSet>> Create(
      const CacheLayout& layout, const SlotCounts& slots, const std::string& instance,
      MemoryLifetime lifetime = MemoryLifetime::kProcess);

  // Removes what dead owners left under the names of pools of that layout. Errors: INVALID_ARGUMENT
  // (a living process has one).
  static absl::Status RemoveLeftovers(const CacheLayout& layout, const std::string& instance);

  const CacheLayout& layout() const { return layout_; }
  // 0 where the window has no pools in that tier.
  uint32_t num_slots(uint32_t window_index, Tier tier) const;
  // Whether all pools of the window in that tier, at least one, have the bytes of an earlier owner.
  bool adopted(uint32_t window_index, Tier tier) const;
  // Whether any process has one of the pools open or mapped beside this object.
  bool HasOtherUsers() const;
  // REQUIRES: num_slots(window_index, tier) > 0.
  SharedMemoryPool& pool(uint32_t window_index, uint32_t pool_index, Tier tier = Tier::kPrimary);
  // The primary pools first, in the layout's order; then the secondary ones.
  std::vector<PoolMapping> Mappings() const;
  // New descriptors, one for each segment of Mappings(), in their order.
  // Errors: those of SharedMemory::OpenDescriptor.
  absl::StatusOr<std::vector<FileDescriptor>> OpenDescriptors(MemoryAccess access) const;

 private:
  using WindowPools = std::vector<std::unique_ptr<SharedMemoryPool>>;  // By pool index.

  explicit PoolSet(CacheLayout layout) : layout_(std::move(layout)) {}
  // What the pools of one tier are made from; an empty list for a window without any there.
  std::vector<std::vector<SharedMemoryPool::Options>> Plan(Tier tier,
                                                           const std::vector<uint32_t>& slots,
                                                           const std::string& instance,
                                                           MemoryLifetime lifetime) const;
  void KeepNames();

  CacheLayout layout_;
  std::array<std::vector<WindowPools>, kNumTiers> pools_;  // By tier and window.
};

// The client's end: a pool's segments, mapped. Stays as it is when the daemon ends.
class MappedPool {
 public:
  // By the segments' names: for the process that owns the pools.
  // Errors: NotFound where the shared memory is gone; INVALID_ARGUMENT for a mapping that does not
  // fit its memory.
  static absl::StatusOr<std::unique_ptr<MappedPool>> Open(
      const PoolMapping& mapping, MemoryAccess access = MemoryAccess::kReadWrite);
  // By descriptors, one for each segment: for every other process.
  // Errors: INVALID_ARGUMENT for another number of descriptors, or a mapping that does not fit
  // its memory; PermissionDenied where a descriptor is not open for the access.
  static absl::StatusOr<std::unique_ptr<MappedPool>> FromDescriptors(
      const PoolMapping& mapping, std::vector<FileDescriptor> segments, MemoryAccess access);

  const PoolMapping& mapping() const { return mapping_; }
  // Where the pool was mapped with kRead, a write ends the process (SIGSEGV); so in slot().
  absl::Span<std::byte> bytes() const { return bytes_; }
  // One slot, in the layout's order. `slot` is below mapping().num_slots.
  absl::Span<std::byte> slot(SlotIndex slot) const;

 private:
  static absl::StatusOr<std::unique_ptr<MappedPool>> From(const PoolMapping& mapping,
                                                          SharedMemory memory);
  MappedPool(PoolMapping mapping, SharedMemory memory, absl::Span<std::byte> bytes)
      : mapping_(std::move(mapping)), memory_(std::move(memory)), bytes_(bytes) {}

  PoolMapping mapping_;
  SharedMemory memory_;
  absl::Span<std::byte> bytes_;  // Into memory_.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_POOL_H_
