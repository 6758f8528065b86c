#include "pools/pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "pools/cuda/device.h"
#include "pools/memory/huge_page_memory.h"

namespace pagoda {
namespace {

absl::StatusOr<uint64_t> PoolBytes(const PoolLayout& layout, uint32_t num_slots) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(layout.slot_stride_bytes(), uint64_t{num_slots}, &bytes)) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(Counted(num_slots, "slot"), " of ", layout.slot_stride_bytes(),
                                  " bytes exceed 64 bits"));
  }
  return bytes;
}

absl::Span<std::byte> SlotOf(absl::Span<std::byte> bytes, const PoolLayout& layout,
                             uint32_t num_slots, SlotIndex slot) {
  PAGODA_CHECK(slot.value() < num_slots, "a slot lies inside its pool");
  const uint64_t stride = layout.slot_stride_bytes();
  return bytes.subspan(slot.value() * stride, stride);
}

uint64_t AddressOf(absl::Span<const std::byte> bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

// Removes the memory of dead owners that has the pools' names and does not fit the pools.
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

// This version maps pools of one segment only.
absl::Status CheckOneSegment(const PoolMapping& mapping) {
  if (mapping.segments.size() == 1) return absl::OkStatus();
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("a pool of ", Counted(mapping.segments.size(), "segment"), ", not 1"));
}

// Checks that the pool fits its segment, and that the segment fits in `available` bytes of memory.
absl::Status CheckFits(const PoolMapping& mapping, uint64_t available) {
  const MappingSegment& segment = mapping.segments.front();
  const absl::StatusOr<uint64_t> needed = PoolBytes(mapping.layout, mapping.num_slots);
  if (!needed.ok()) return needed.status();
  if (segment.size_bytes >= *needed && segment.offset_bytes <= available &&
      available - segment.offset_bytes >= segment.size_bytes) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("memory ", segment.shm_name, " has ", available, " bytes; the segment says ",
                   segment.size_bytes, " at ", segment.offset_bytes, " for slots of ", *needed));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryPool>> SharedMemoryPool::Create(Options options) {
  const absl::StatusOr<uint64_t> size_bytes = PoolBytes(options.layout, options.num_slots);
  if (!size_bytes.ok()) return size_bytes.status();
  absl::StatusOr<SharedMemory> memory =
      options.lifetime == MemoryLifetime::kKept
          ? SharedMemory::CreateOrAdopt(options.shm_name, *size_bytes, options.pages)
          : SharedMemory::Create(options.shm_name, *size_bytes, options.pages);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new SharedMemoryPool(std::move(options), *std::move(memory)));
}

PoolMemory SharedMemoryPool::memory() const {
  PoolMemory memory;
  memory.address = AddressOf(memory_.bytes());
  memory.size_bytes = memory_.bytes().size();
  if (pinned_.has_value()) memory.pinned_chunk_bytes = pinned_->chunk_bytes();
  return memory;
}

MappingSegment SharedMemoryPool::segment() const {
  MappingSegment segment;
  segment.shm_name = shm_name_;
  segment.size_bytes = memory_.bytes().size();
  segment.num_slots = num_slots();
  segment.pages = memory_.pages();
  return segment;
}

absl::Status SharedMemoryPool::Pin(const cuda::PinnedMemory::Options& options) {
  PAGODA_CHECK(!pinned_.has_value(), "a pool is pinned once");
  absl::StatusOr<cuda::PinnedMemory> pinned =
      cuda::PinnedMemory::Register(memory_.bytes(), options);
  if (!pinned.ok()) return pinned.status();
  pinned_.emplace(*std::move(pinned));
  return absl::OkStatus();
}

absl::Span<std::byte> SharedMemoryPool::slot(SlotIndex slot) {
  return SlotOf(memory_.bytes(), layout(), num_slots(), slot);
}

absl::StatusOr<std::unique_ptr<DevicePool>> DevicePool::Create(Options options) {
  const absl::StatusOr<uint64_t> size_bytes = PoolBytes(options.layout, options.num_slots);
  if (!size_bytes.ok()) return size_bytes.status();
  absl::StatusOr<cuda::Memory> memory = cuda::Memory::Create(options.place.device, *size_bytes);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new DevicePool(std::move(options), *std::move(memory)));
}

PoolMemory DevicePool::memory() const {
  return {.place = place_, .address = memory_.address(), .size_bytes = memory_.size_bytes()};
}

MappingSegment DevicePool::segment() const {
  MappingSegment segment;
  segment.shm_name = name_;
  segment.place = place_;
  segment.size_bytes = memory_.size_bytes();
  segment.num_slots = num_slots();
  return segment;
}

absl::StatusOr<std::unique_ptr<PoolSet>> PoolSet::Create(const CacheLayout& layout,
                                                         const SlotCounts& slots,
                                                         const std::string& instance,
                                                         const PoolPlacement& placement) {
  const MemoryLifetime lifetime = placement.lifetime;
  PAGODA_CHECK(lifetime == MemoryLifetime::kProcess || !placement.primary_device.has_value(),
               "a device's memory is not kept");
  const size_t num_windows = layout.windows().size();
  const size_t num_tiers = slots.tiers.size();
  PAGODA_CHECK(num_tiers > 0 && num_tiers <= kMaxTiers, "1 to kMaxTiers tiers");
  PAGODA_CHECK(slots.tiers.front().size() == num_windows, "slots of the first tier everywhere");
  for (const std::vector<uint32_t>& tier : slots.tiers) {
    PAGODA_CHECK(tier.empty() || tier.size() == num_windows,
                 "a tier's slots for every window or for none");
  }
  auto set = absl::WrapUnique(new PoolSet(layout));
  set->primary_device_ = placement.primary_device;
  std::vector<std::vector<std::vector<SharedMemoryPool::Options>>> plans;  // By tier and window.
  for (size_t t = 0; t < num_tiers; ++t) {
    plans.push_back(set->Plan(Tier(t), slots.tiers[t], instance, lifetime, placement.pages));
  }
  // First removes memory that cannot be adopted. The new pools may need its bytes.
  for (const auto& windows : plans) {
    if (absl::Status status = RemoveMisfits(windows); !status.ok()) return status;
  }
  set->pools_.resize(num_tiers);
  for (size_t t = 0; t < num_tiers; ++t) {
    for (std::vector<SharedMemoryPool::Options>& window : plans[t]) {
      WindowPools& pools = set->pools_[t].emplace_back();
      for (SharedMemoryPool::Options& options : window) {
        absl::Status status = set->Add(Tier(t), std::move(options), pools);
        if (!status.ok()) return status;
      }
    }
  }
  if (absl::Status status = set->Pin(placement); !status.ok()) return status;
  return set;
}

absl::Status PoolSet::Add(Tier tier, SharedMemoryPool::Options options, WindowPools& pools) {
  if (tier == kPrimaryTier && primary_device_.has_value()) {
    absl::StatusOr<std::unique_ptr<DevicePool>> pool =
        DevicePool::Create({.name = std::move(options.shm_name),
                            .layout = std::move(options.layout),
                            .num_slots = options.num_slots,
                            .place = *primary_device_});
    if (!pool.ok()) return pool.status();
    pools.push_back(*std::move(pool));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<SharedMemoryPool>> pool =
      SharedMemoryPool::Create(std::move(options));
  if (!pool.ok()) return pool.status();
  pools.push_back(*std::move(pool));
  return absl::OkStatus();
}

absl::Status PoolSet::Pin(const PoolPlacement& placement) {
  if (!primary_device_.has_value() || placement.pin_lower == Pinning::kOff) {
    return absl::OkStatus();
  }
  for (size_t t = 1; t < pools_.size(); ++t) {
    absl::Status status = PinTier(Tier(t), placement);
    if (status.ok()) continue;
    if (placement.pin_lower == Pinning::kRequired) return status;
    pinned_ = std::move(status);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status PoolSet::PinTier(Tier tier, const PoolPlacement& placement) {
  const std::vector<WindowPools>& windows = pools_[tier.value()];
  for (uint32_t w = 0; w < windows.size(); ++w) {
    for (uint32_t p = 0; p < windows[w].size(); ++p) {
      absl::Status status = PinPool(tier, pool(w, p, tier), placement);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status PoolSet::PinPool(Tier tier, SharedMemoryPool& pool, const PoolPlacement& placement) {
  const std::string name = pool.segment().shm_name;
  cuda::PinnedMemory::Options options{.device = primary_device_->device};
  if (placement.progress != nullptr) {
    options.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
      placement.progress(absl::StrCat("pinning ", name, " for ", PlaceName(*primary_device_), ": ",
                                      done_bytes >> 20, " of ", total_bytes >> 20, " MiB"));
    };
  }
  absl::Status status = pool.Pin(options);
  if (status.ok()) return status;
  const std::string what =
      absl::StrCat("the ", DefaultTierName(tier), " pool ", name, " cannot be pinned for ",
                   PlaceName(*primary_device_), ": ", std::string(status.message()));
  return ReasonOf(status) == Reason::kNone ? absl::Status(status.code(), what)
                                           : MakeError(ReasonOf(status), what);
}

MemoryPlace PoolSet::place(Tier tier) const {
  return tier == kPrimaryTier ? primary_device_.value_or(MemoryPlace()) : MemoryPlace();
}

MemoryPages PoolSet::pages(uint32_t window_index, Tier tier) const {
  PAGODA_CHECK(num_slots(window_index, tier) > 0, "the window has pools in this tier");
  MemoryPages smallest = MemoryPages::k1GiB;
  for (const std::unique_ptr<Pool>& pool : pools_[tier.value()][window_index]) {
    smallest = std::min(smallest, pool->segment().pages.value_or(MemoryPages::kPlain));
  }
  return smallest;
}

std::array<uint64_t, kNumMemoryPages> PoolSet::BytesByPages(Tier tier) const {
  std::array<uint64_t, kNumMemoryPages> bytes = {};
  if (tier.value() >= pools_.size()) return bytes;
  if (place(tier).kind != MemoryKind::kHost) return bytes;
  for (const WindowPools& window : pools_[tier.value()]) {
    for (const std::unique_ptr<Pool>& pool : window) {
      const MappingSegment segment = pool->segment();
      bytes[static_cast<size_t>(segment.pages.value_or(MemoryPages::kPlain))] += segment.size_bytes;
    }
  }
  return bytes;
}

std::string PoolSet::PagesShortfall(Tier tier) const {
  if (tier.value() >= pools_.size()) return "";
  if (place(tier).kind != MemoryKind::kHost) return "";
  for (const WindowPools& window : pools_[tier.value()]) {
    for (const std::unique_ptr<Pool>& pool : window) {
      const auto& host = static_cast<const SharedMemoryPool&>(*pool);
      if (!host.pages_shortfall().empty()) return host.pages_shortfall();
    }
  }
  return "";
}

absl::Status PoolSet::RemoveLeftovers(const CacheLayout& layout, const std::string& instance) {
  const PoolSet names(layout);
  const std::vector<uint32_t> slots(layout.windows().size(), 1);
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const auto plan = names.Plan(Tier(t), slots, instance, MemoryLifetime::kProcess, {});
    if (absl::Status status = RemoveMisfits(plan); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<std::vector<SharedMemoryPool::Options>> PoolSet::Plan(
    Tier tier, const std::vector<uint32_t>& slots, const std::string& instance,
    MemoryLifetime lifetime, const PageRequest& pages) const {
  const std::string suffix = tier == kPrimaryTier ? "" : absl::StrCat("-", DefaultTierName(tier));
  std::vector<std::vector<SharedMemoryPool::Options>> plan(slots.size());
  for (size_t w = 0; w < slots.size(); ++w) {
    const WindowLayout& window = layout_.windows()[w];
    if (tier != kPrimaryTier && slots[w] == 0) continue;
    for (size_t p = 0; p < window.pools.size(); ++p) {
      plan[w].push_back({.shm_name = absl::StrCat("/pagoda-", instance, "-w",
                                                  WindowName(window.window), "-p", p, suffix),
                         .layout = window.pools[p],
                         .num_slots = slots[w],
                         .lifetime = lifetime,
                         .pages = pages});
    }
  }
  return plan;
}

void PoolSet::KeepNames() {
  for (const std::vector<WindowPools>& windows : pools_) {
    for (const WindowPools& pools : windows) {
      for (const std::unique_ptr<Pool>& pool : pools) pool->KeepName();
    }
  }
}

bool PoolSet::HasOtherUsers() const {
  for (const std::vector<WindowPools>& windows : pools_) {
    for (const WindowPools& pools : windows) {
      for (const std::unique_ptr<Pool>& pool : pools) {
        if (pool->HasOtherUsers()) return true;
      }
    }
  }
  return false;
}

bool PoolSet::adopted(uint32_t window_index, Tier tier) const {
  if (num_slots(window_index, tier) == 0) return false;
  const WindowPools& pools = pools_[tier.value()][window_index];
  return std::all_of(pools.begin(), pools.end(), [](const auto& pool) { return pool->adopted(); });
}

uint32_t PoolSet::num_slots(uint32_t window_index, Tier tier) const {
  PAGODA_CHECK(window_index < layout_.windows().size(), "a window of the cache");
  if (tier.value() >= pools_.size()) return 0;
  const std::vector<WindowPools>& windows = pools_[tier.value()];
  if (windows.empty() || windows[window_index].empty()) return 0;
  return windows[window_index].front()->num_slots();
}

Pool& PoolSet::any_pool(uint32_t window_index, uint32_t pool_index, Tier tier) const {
  PAGODA_CHECK(num_slots(window_index, tier) > 0, "the window has pools in this tier");
  const WindowPools& pools = pools_[tier.value()][window_index];
  PAGODA_CHECK(pool_index < pools.size(), "a pool of the window");
  return *pools[pool_index];
}

SharedMemoryPool& PoolSet::pool(uint32_t window_index, uint32_t pool_index, Tier tier) {
  PAGODA_CHECK(place(tier).kind == MemoryKind::kHost, "the tier lies in host memory");
  return static_cast<SharedMemoryPool&>(any_pool(window_index, pool_index, tier));
}

std::vector<PoolMapping> PoolSet::Mappings() const {
  std::vector<PoolMapping> mappings;
  for (size_t t = 0; t < pools_.size(); ++t) {
    const std::vector<WindowPools>& windows = pools_[t];
    for (size_t w = 0; w < windows.size(); ++w) {
      for (size_t p = 0; p < windows[w].size(); ++p) {
        const Pool& pool = *windows[w][p];
        PoolMapping& mapping = mappings.emplace_back();
        mapping.window = layout_.windows()[w].window;
        mapping.pool_index = static_cast<uint32_t>(p);
        mapping.tier = Tier(t);
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
  for (const std::vector<WindowPools>& windows : pools_) {
    for (const WindowPools& window : windows) {
      for (const std::unique_ptr<Pool>& pool : window) {
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
  const MappingSegment& segment = mapping.segments.front();
  if (segment.place.kind != MemoryKind::kHost) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("pool ", segment.shm_name, " lies in the memory of ",
                                  PlaceName(segment.place), ", which is not mapped by a name"));
  }
  absl::StatusOr<SharedMemory> memory = SharedMemory::Open(segment.shm_name, access);
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
  if (mapping.segments.front().place.kind == MemoryKind::kCuda) {
    return FromDevice(mapping, segments.front(), access);
  }
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::FromDescriptor(std::move(segments.front()), access);
  if (!memory.ok()) return memory.status();
  return From(mapping, *std::move(memory));
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::From(const PoolMapping& mapping,
                                                             SharedMemory memory) {
  const uint64_t available = memory.bytes().size();
  if (absl::Status status = CheckFits(mapping, available); !status.ok()) return status;
  const MappingSegment& segment = mapping.segments.front();
  if (segment.pages == MemoryPages::kTransparent) {
    // Pages that the owner has not taken yet can still become huge. A failure changes nothing.
    const absl::Span<std::byte> all = memory.bytes();
    AskForTransparent(all.data(), all.size(), Reservation::kSparse).IgnoreError();
  }
  auto pool = absl::WrapUnique(new MappedPool(mapping));
  pool->memory_.address = AddressOf(memory.bytes()) + segment.offset_bytes;
  pool->memory_.size_bytes = segment.size_bytes;
  pool->host_.emplace(std::move(memory));
  return pool;
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::FromDevice(const PoolMapping& mapping,
                                                                   const FileDescriptor& fd,
                                                                   MemoryAccess access) {
  const MappingSegment& segment = mapping.segments.front();
  const absl::StatusOr<int> device = cuda::FindDevice(segment.place.uuid);
  if (!device.ok()) {
    return absl::Status(
        device.status().code(),
        absl::StrCat("pool ", segment.shm_name, " lies in the memory of the daemon's ",
                     PlaceName(segment.place),
                     ", which this process cannot use: ", std::string(device.status().message())));
  }
  uint64_t whole_bytes = 0;
  if (__builtin_add_overflow(segment.offset_bytes, segment.size_bytes, &whole_bytes)) {
    return MakeError(Reason::kInvalidArgument, "the segment's end is beyond 64 bits");
  }
  if (absl::Status status = CheckFits(mapping, whole_bytes); !status.ok()) return status;
  absl::StatusOr<cuda::Memory> memory =
      cuda::Memory::FromDescriptor(fd, *device, whole_bytes, access);
  if (!memory.ok()) return memory.status();
  auto pool = absl::WrapUnique(new MappedPool(mapping));
  pool->memory_.place = segment.place;
  pool->memory_.place.device = *device;
  pool->memory_.address = memory->address() + segment.offset_bytes;
  pool->memory_.size_bytes = segment.size_bytes;
  pool->device_.emplace(*std::move(memory));
  return pool;
}

absl::Span<std::byte> MappedPool::bytes() const {
  PAGODA_CHECK(on_host(), "the pool lies in host memory");
  return {reinterpret_cast<std::byte*>(memory_.address), memory_.size_bytes};
}

absl::Span<std::byte> MappedPool::slot(SlotIndex slot) const {
  return SlotOf(bytes(), mapping_.layout, mapping_.num_slots, slot);
}

absl::Status MappedPool::ReadSlot(SlotIndex slot, absl::Span<std::byte> to) const {
  PAGODA_CHECK(slot.value() < mapping_.num_slots, "a slot lies inside its pool");
  const uint64_t stride = mapping_.layout.slot_stride_bytes();
  PAGODA_CHECK(to.size() == stride, "the bytes of one slot");
  if (device_.has_value()) {
    return device_->Read(mapping_.segments.front().offset_bytes + slot.value() * stride, to);
  }
  std::memcpy(to.data(), this->slot(slot).data(), stride);
  return absl::OkStatus();
}

absl::Status MappedPool::WriteSlot(SlotIndex slot, absl::Span<const std::byte> from) {
  PAGODA_CHECK(slot.value() < mapping_.num_slots, "a slot lies inside its pool");
  const uint64_t stride = mapping_.layout.slot_stride_bytes();
  PAGODA_CHECK(from.size() == stride, "the bytes of one slot");
  if (device_.has_value()) {
    return device_->Write(mapping_.segments.front().offset_bytes + slot.value() * stride, from);
  }
  std::memcpy(this->slot(slot).data(), from.data(), stride);
  return absl::OkStatus();
}

}  // namespace pagoda
