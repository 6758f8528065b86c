#include "pools/pool.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

absl::StatusOr<uint64_t> PoolBytes(const PoolLayout& layout, uint32_t num_slots) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(layout.slot_stride_bytes(), uint64_t{num_slots}, &bytes)) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(num_slots, " slots of ", layout.slot_stride_bytes(),
                                  " bytes are more than 64 bits count"));
  }
  return bytes;
}

absl::Span<std::byte> SlotOf(absl::Span<std::byte> bytes, const PoolLayout& layout,
                             uint32_t num_slots, SlotIndex slot) {
  PAGODA_CHECK(slot.value() < num_slots, "a slot lies inside its pool");
  const uint64_t stride = layout.slot_stride_bytes();
  return bytes.subspan(slot.value() * stride, stride);
}

// Removes what dead owners left under the pools' names and the pools cannot take over.
absl::Status RemoveMisfits(const std::vector<std::vector<SharedMemoryPool::Options>>& windows) {
  for (const std::vector<SharedMemoryPool::Options>& window : windows) {
    for (const SharedMemoryPool::Options& pool : window) {
      const bool kept = pool.lifetime == MemoryLifetime::kKept;
      const absl::StatusOr<uint64_t> bytes = PoolBytes(pool.layout, pool.num_slots);
      if (!bytes.ok()) return bytes.status();
      absl::Status status = SharedMemory::RemoveLeftover(pool.shm_name, kept ? *bytes : 0);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// What this version maps.
absl::Status CheckOneSegment(const PoolMapping& mapping) {
  if (mapping.segments.size() == 1) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a pool of ", mapping.segments.size(), " segments, not 1"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryPool>> SharedMemoryPool::Create(Options options) {
  const absl::StatusOr<uint64_t> size_bytes = PoolBytes(options.layout, options.num_slots);
  if (!size_bytes.ok()) return size_bytes.status();
  absl::StatusOr<SharedMemory> memory =
      options.lifetime == MemoryLifetime::kKept
          ? SharedMemory::CreateOrAdopt(options.shm_name, *size_bytes)
          : SharedMemory::Create(options.shm_name, *size_bytes);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new SharedMemoryPool(std::move(options), *std::move(memory)));
}

MappingSegment SharedMemoryPool::segment() const {
  MappingSegment segment;
  segment.shm_name = options_.shm_name;
  segment.size_bytes = memory_.bytes().size();
  segment.num_slots = options_.num_slots;
  return segment;
}

absl::Span<std::byte> SharedMemoryPool::slot(SlotIndex slot) {
  return SlotOf(memory_.bytes(), options_.layout, options_.num_slots, slot);
}

absl::StatusOr<std::unique_ptr<PoolSet>> PoolSet::Create(const CacheLayout& layout,
                                                         const SlotCounts& slots,
                                                         const std::string& instance,
                                                         MemoryLifetime lifetime) {
  const size_t num_windows = layout.windows().size();
  PAGODA_CHECK(slots.primary.size() == num_windows, "primary slots for every window");
  PAGODA_CHECK(slots.secondary.empty() || slots.secondary.size() == num_windows,
               "secondary slots for every window or for none");
  auto set = absl::WrapUnique(new PoolSet(layout));
  std::array<std::vector<std::vector<SharedMemoryPool::Options>>, kNumTiers> plans = {
      set->Plan(Tier::kPrimary, slots.primary, instance, lifetime),
      set->Plan(Tier::kSecondary, slots.secondary, instance, lifetime)};
  // What cannot be adopted goes first: the memory that it takes may be needed.
  for (const auto& windows : plans) {
    if (absl::Status status = RemoveMisfits(windows); !status.ok()) return status;
  }
  for (size_t tier = 0; tier < kNumTiers; ++tier) {
    for (std::vector<SharedMemoryPool::Options>& window : plans[tier]) {
      WindowPools& pools = set->pools_[tier].emplace_back();
      for (SharedMemoryPool::Options& options : window) {
        absl::StatusOr<std::unique_ptr<SharedMemoryPool>> pool =
            SharedMemoryPool::Create(std::move(options));
        if (!pool.ok()) return pool.status();
        pools.push_back(*std::move(pool));
      }
    }
  }
  if (lifetime == MemoryLifetime::kKept) set->KeepNames();
  return set;
}

absl::Status PoolSet::RemoveLeftovers(const CacheLayout& layout, const std::string& instance) {
  const PoolSet names(layout);
  const std::vector<uint32_t> slots(layout.windows().size(), 1);
  for (const Tier tier : {Tier::kPrimary, Tier::kSecondary}) {
    const auto plan = names.Plan(tier, slots, instance, MemoryLifetime::kProcess);
    if (absl::Status status = RemoveMisfits(plan); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<std::vector<SharedMemoryPool::Options>> PoolSet::Plan(
    Tier tier, const std::vector<uint32_t>& slots, const std::string& instance,
    MemoryLifetime lifetime) const {
  const absl::string_view suffix = tier == Tier::kPrimary ? "" : "-secondary";
  std::vector<std::vector<SharedMemoryPool::Options>> plan(slots.size());
  for (size_t w = 0; w < slots.size(); ++w) {
    const WindowLayout& window = layout_.windows()[w];
    if (tier != Tier::kPrimary && slots[w] == 0) continue;
    for (size_t p = 0; p < window.pools.size(); ++p) {
      plan[w].push_back({.shm_name = absl::StrCat("/pagoda-", instance, "-w",
                                                  WindowName(window.window), "-p", p, suffix),
                         .layout = window.pools[p],
                         .num_slots = slots[w],
                         .lifetime = lifetime});
    }
  }
  return plan;
}

void PoolSet::KeepNames() {
  for (const std::vector<WindowPools>& windows : pools_) {
    for (const WindowPools& pools : windows) {
      for (const std::unique_ptr<SharedMemoryPool>& pool : pools) pool->KeepName();
    }
  }
}

bool PoolSet::HasOtherUsers() const {
  for (const std::vector<WindowPools>& windows : pools_) {
    for (const WindowPools& pools : windows) {
      for (const std::unique_ptr<SharedMemoryPool>& pool : pools) {
        if (pool->HasOtherUsers()) return true;
      }
    }
  }
  return false;
}

bool PoolSet::adopted(uint32_t window_index, Tier tier) const {
  if (num_slots(window_index, tier) == 0) return false;
  const WindowPools& pools = pools_[static_cast<size_t>(tier)][window_index];
  return std::all_of(pools.begin(), pools.end(), [](const auto& pool) { return pool->adopted(); });
}

uint32_t PoolSet::num_slots(uint32_t window_index, Tier tier) const {
  PAGODA_CHECK(window_index < layout_.windows().size(), "a window of the cache");
  const std::vector<WindowPools>& windows = pools_[static_cast<size_t>(tier)];
  if (windows.empty() || windows[window_index].empty()) return 0;
  return windows[window_index].front()->num_slots();
}

SharedMemoryPool& PoolSet::pool(uint32_t window_index, uint32_t pool_index, Tier tier) {
  PAGODA_CHECK(num_slots(window_index, tier) > 0, "the window has pools in this tier");
  WindowPools& pools = pools_[static_cast<size_t>(tier)][window_index];
  PAGODA_CHECK(pool_index < pools.size(), "a pool of the window");
  return *pools[pool_index];
}

std::vector<PoolMapping> PoolSet::Mappings() const {
  std::vector<PoolMapping> mappings;
  for (const Tier tier : {Tier::kPrimary, Tier::kSecondary}) {
    const std::vector<WindowPools>& windows = pools_[static_cast<size_t>(tier)];
    for (size_t w = 0; w < windows.size(); ++w) {
      for (size_t p = 0; p < windows[w].size(); ++p) {
        const SharedMemoryPool& pool = *windows[w][p];
        PoolMapping& mapping = mappings.emplace_back();
        mapping.window = layout_.windows()[w].window;
        mapping.pool_index = static_cast<uint32_t>(p);
        mapping.tier = tier;
        mapping.layout = pool.layout();
        mapping.num_slots = pool.num_slots();
        mapping.segments = {pool.segment()};
      }
    }
  }
  return mappings;
}

absl::StatusOr<std::vector<FileDescriptor>> PoolSet::OpenDescriptors(MemoryAccess access) const {
  std::vector<FileDescriptor> descriptors;
  for (const Tier tier : {Tier::kPrimary, Tier::kSecondary}) {
    for (const WindowPools& window : pools_[static_cast<size_t>(tier)]) {
      for (const std::unique_ptr<SharedMemoryPool>& pool : window) {
        absl::StatusOr<FileDescriptor> descriptor = pool->OpenDescriptor(access);
        if (!descriptor.ok()) return descriptor.status();
        descriptors.push_back(*std::move(descriptor));
      }
    }
  }
  return descriptors;
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::Open(const PoolMapping& mapping,
                                                             MemoryAccess access) {
  if (absl::Status status = CheckOneSegment(mapping); !status.ok()) return status;
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Open(mapping.segments.front().shm_name, access);
  if (!memory.ok()) return memory.status();
  return From(mapping, *std::move(memory));
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::FromDescriptors(
    const PoolMapping& mapping, std::vector<FileDescriptor> segments, MemoryAccess access) {
  if (absl::Status status = CheckOneSegment(mapping); !status.ok()) return status;
  if (segments.size() != 1) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(segments.size(), " descriptors for a pool of 1 segment"));
  }
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::FromDescriptor(std::move(segments.front()), access);
  if (!memory.ok()) return memory.status();
  return From(mapping, *std::move(memory));
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::From(const PoolMapping& mapping,
                                                             SharedMemory memory) {
  const MappingSegment& segment = mapping.segments.front();
  const absl::StatusOr<uint64_t> needed = PoolBytes(mapping.layout, mapping.num_slots);
  if (!needed.ok()) return needed.status();
  const uint64_t available = memory.bytes().size();
  if (segment.size_bytes < *needed || segment.offset_bytes > available ||
      available - segment.offset_bytes < segment.size_bytes) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("shared memory ", segment.shm_name, " has ", available,
                                  " bytes; the segment says ", segment.size_bytes, " at ",
                                  segment.offset_bytes, " for slots of ", *needed));
  }
  const absl::Span<std::byte> bytes =
      memory.bytes().subspan(segment.offset_bytes, segment.size_bytes);
  return absl::WrapUnique(new MappedPool(mapping, std::move(memory), bytes));
}

absl::Span<std::byte> MappedPool::slot(SlotIndex slot) const {
  return SlotOf(bytes_, mapping_.layout, mapping_.num_slots, slot);
}

}  // namespace pagoda
