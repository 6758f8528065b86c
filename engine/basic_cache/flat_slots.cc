#include "engine/basic_cache/flat_slots.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

FlatSlots::FlatSlots(PoolSet* pools) : tokens_per_block_(pools->layout().spec().tokens_per_block) {
  const auto& windows = pools->layout().windows();
  for (uint32_t w = 0; w < windows.size(); ++w) {
    for (uint32_t p = 0; p < windows[w].pools.size(); ++p) {
      SharedMemoryPool& pool = pools->pool(w, p);
      if (pool.layout().content == PoolContent::kElements) {
        elements_.emplace_back(&pool);
      } else {
        scales_.push_back(&pool);
      }
    }
  }
  for (uint32_t slot = 0; slot < pools->num_slots(0, kPrimaryTier); ++slot) {
    free_.insert(free_.end(), slot);
  }
}

// Grows by half if there is memory for it, so that many small steps cost few system calls.
absl::Status FlatSlots::Reserve(uint64_t slots) {
  for (TokenFlatPool& pool : elements_) {
    const uint64_t needed = slots * tokens_per_block_;
    const uint64_t reserved = pool.reserved_token_slots();
    if (needed <= reserved) continue;
    const uint64_t wanted = std::max(needed, reserved + reserved / 2);
    if (pool.Reserve(std::min(wanted, pool.layout().token_slots)).ok()) continue;
    if (absl::Status status = pool.Reserve(needed); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> FlatSlots::Take(size_t count) {
  if (count > free_.size()) {
    return MakeError(Reason::kBlocksExhausted,
                     absl::StrCat("needed: ", Counted(count, "slot"), "; free: ", free_.size()));
  }
  if (count == 0) return std::vector<uint32_t>();
  const auto end = std::next(free_.begin(), static_cast<std::ptrdiff_t>(count));
  std::vector<uint32_t> taken(free_.begin(), end);
  if (absl::Status status = Reserve(uint64_t{taken.back()} + 1); !status.ok()) return status;
  free_.erase(free_.begin(), end);
  return taken;
}

void FlatSlots::GiveBack(absl::Span<const uint32_t> slots) {
  free_.insert(slots.begin(), slots.end());
}

void FlatSlots::Copy(uint32_t source, uint32_t target) {
  for (TokenFlatPool& pool : elements_) {
    pool.Copy(uint64_t{source} * tokens_per_block_, uint64_t{target} * tokens_per_block_,
              tokens_per_block_);
  }
  for (SharedMemoryPool* const pool : scales_) {
    const absl::Span<std::byte> from = pool->slot(SlotIndex(source));
    std::memcpy(pool->slot(SlotIndex(target)).data(), from.data(), from.size());
  }
}

}  // namespace pagoda
