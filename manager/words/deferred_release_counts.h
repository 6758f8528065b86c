// The number of deferred releases of each block.
#ifndef PAGODA_MANAGER_WORDS_DEFERRED_RELEASE_COUNTS_H_
#define PAGODA_MANAGER_WORDS_DEFERRED_RELEASE_COUNTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "manager/words/ids.h"

namespace pagoda {

// A counter for each block id, in pages that are allocated at the first deferred release of one of
// their blocks. A hash map would stop its caller for 80 ms when it grows to a million blocks.
// Thread-compatible.
class DeferredReleaseCounts {
 public:
  // For ids below `num_ids`.
  explicit DeferredReleaseCounts(uint32_t num_ids) : pages_((num_ids + kPageIds - 1) / kPageIds) {}

  uint32_t of(BlockId id) const {
    const std::unique_ptr<Page>& page = pages_[id.value() / kPageIds];
    return page == nullptr ? 0 : (*page)[id.value() % kPageIds];
  }
  void Add(BlockId id) {
    std::unique_ptr<Page>& page = pages_[id.value() / kPageIds];
    if (page == nullptr) page = std::make_unique<Page>();
    ++(*page)[id.value() % kPageIds];
  }
  // Returns how many are left. REQUIRES: the block has a deferred release.
  uint32_t Remove(BlockId id) {
    PAGODA_CHECK(of(id) > 0, "a deferred release ends once");
    return --(*pages_[id.value() / kPageIds])[id.value() % kPageIds];
  }

 private:
  static constexpr uint32_t kPageIds = 4096;
  using Page = std::array<uint32_t, kPageIds>;

  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_DEFERRED_RELEASE_COUNTS_H_
