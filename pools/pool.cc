#include "pools/pool.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryPool>> SharedMemoryPool::Create(Options options) {
  const absl::StatusOr<uint64_t> size_bytes = PoolBytes(options.layout, options.num_slots);
  if (!size_bytes.ok()) return size_bytes.status();
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create(options.shm_name, *size_bytes);
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
  PAGODA_CHECK(slot.value() < options_.num_slots, "a slot lies inside its pool");
  const uint64_t stride = options_.layout.slot_stride_bytes();
  return memory_.bytes().subspan(slot.value() * stride, stride);
}

absl::StatusOr<std::unique_ptr<PoolSet>> PoolSet::Create(
    const CacheLayout& layout, const std::vector<uint32_t>& slots_per_window,
    const std::string& instance) {
  PAGODA_CHECK(slots_per_window.size() == layout.windows().size(), "one slot count a window");
  auto set = absl::WrapUnique(new PoolSet(layout));
  for (size_t w = 0; w < layout.windows().size(); ++w) {
    const WindowLayout& window = layout.windows()[w];
    std::vector<std::unique_ptr<SharedMemoryPool>>& pools = set->pools_.emplace_back();
    for (size_t p = 0; p < window.pools.size(); ++p) {
      absl::StatusOr<std::unique_ptr<SharedMemoryPool>> pool = SharedMemoryPool::Create(
          {.shm_name = absl::StrCat("/pagoda-", instance, "-w", WindowName(window.window), "-p", p),
           .layout = window.pools[p],
           .num_slots = slots_per_window[w]});
      if (!pool.ok()) return pool.status();
      pools.push_back(*std::move(pool));
    }
  }
  return set;
}

std::vector<PoolMapping> PoolSet::Mappings() const {
  std::vector<PoolMapping> mappings;
  for (size_t w = 0; w < pools_.size(); ++w) {
    for (size_t p = 0; p < pools_[w].size(); ++p) {
      const SharedMemoryPool& pool = *pools_[w][p];
      PoolMapping& mapping = mappings.emplace_back();
      mapping.window = layout_.windows()[w].window;
      mapping.pool_index = static_cast<uint32_t>(p);
      mapping.layout = pool.layout();
      mapping.num_slots = pool.num_slots();
      mapping.segments = {pool.segment()};
    }
  }
  return mappings;
}

absl::StatusOr<std::unique_ptr<MappedPool>> MappedPool::Open(const PoolMapping& mapping) {
  if (mapping.segments.size() != 1) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("a pool of ", mapping.segments.size(), " segments, not 1"));
  }
  const MappingSegment& segment = mapping.segments.front();
  absl::StatusOr<SharedMemory> memory = SharedMemory::Open(segment.shm_name);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<uint64_t> needed = PoolBytes(mapping.layout, mapping.num_slots);
  if (!needed.ok()) return needed.status();
  const uint64_t available = memory->bytes().size();
  if (segment.size_bytes < *needed || segment.offset_bytes > available ||
      available - segment.offset_bytes < segment.size_bytes) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("shared memory ", segment.shm_name, " has ", available,
                                  " bytes; the segment says ", segment.size_bytes, " at ",
                                  segment.offset_bytes, " for slots of ", *needed));
  }
  const absl::Span<std::byte> bytes =
      memory->bytes().subspan(segment.offset_bytes, segment.size_bytes);
  return absl::WrapUnique(new MappedPool(mapping, *std::move(memory), bytes));
}

}  // namespace pagoda
