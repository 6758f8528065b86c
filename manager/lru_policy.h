#ifndef PAGODA_MANAGER_LRU_POLICY_H_
#define PAGODA_MANAGER_LRU_POLICY_H_

#include <cstdint>
#include <vector>

#include "manager/eviction_policy.h"

namespace pagoda {

// Least recently released first. A block whose last child left goes before all others (rule 13): it
// is at least as old as the child that was just found to be the oldest. 8 bytes a block.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(uint32_t capacity);

  void Released(BlockId id) override;
  void Unparked(BlockId id) override;
  void Withdrawn(BlockId id) override;
  BlockId Victim() const override;

 private:
  // A ring of all candidates through a sentinel at index capacity; a block outside of it links to
  // itself.
  struct Link {
    uint32_t previous;
    uint32_t next;
  };

  void InsertBefore(uint32_t index, uint32_t next);
  uint32_t sentinel() const { return static_cast<uint32_t>(links_.size() - 1); }

  std::vector<Link> links_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_LRU_POLICY_H_
