// The memory that the aging policies of a tier's tenants share.
#ifndef PAGODA_MANAGER_POLICY_AGING_ARENA_H_
#define PAGODA_MANAGER_POLICY_AGING_ARENA_H_

#include <cstdint>

#include "manager/policy/aging_candidates.h"
#include "manager/policy/candidate_arena.h"
#include "manager/policy/use_history.h"

namespace pagoda {

// The lists of candidates of `num_tenants` tenants, and the use counts of all slots.
// Thread-compatible, together with all policies that share it.
struct AgingArena {
  AgingArena(uint32_t num_slots, uint16_t num_tenants)
      : candidates(num_slots, num_tenants * AgingCandidates::kNumLists), uses(num_slots) {}

  CandidateArena candidates;
  UseTable uses;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_AGING_ARENA_H_
