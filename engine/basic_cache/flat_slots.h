#ifndef PAGODA_ENGINE_BASIC_CACHE_FLAT_SLOTS_H_
#define PAGODA_ENGINE_BASIC_CACHE_FLAT_SLOTS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/pool.h"
#include "pools/token_flat_pool.h"

namespace pagoda {

// The slots of a set of pools whose memory is used as token-flat pools. A slot is the same run of
// token slots in every pool. Thread-compatible.
//
// 1. The lowest free slots are taken first, so the memory follows the most slots that were ever
//    taken at once.
// 2. A taken slot has memory in every pool.
class FlatSlots {
 public:
  // `pools` outlives this object. REQUIRES: one tier, in host memory, with the same number of slots
  // in every window.
  explicit FlatSlots(PoolSet* pools);

  size_t free_slots() const { return free_.size(); }

  // Takes slots, in ascending order. Errors: BLOCKS_EXHAUSTED; those of TokenFlatPool::Reserve.
  // Then none is taken.
  absl::StatusOr<std::vector<uint32_t>> Take(size_t count);
  // REQUIRES: they are taken.
  void GiveBack(absl::Span<const uint32_t> slots);

  // Copies all bytes of a slot, with its scales.
  void Copy(uint32_t source, uint32_t target);

 private:
  absl::Status Reserve(uint64_t slots);

  const uint32_t tokens_per_block_;
  std::set<uint32_t> free_;
  std::vector<TokenFlatPool> elements_;
  std::vector<SharedMemoryPool*> scales_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_BASIC_CACHE_FLAT_SLOTS_H_
