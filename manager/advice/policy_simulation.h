// Small caches that evict by a policy: how many hits it would have with more or less memory.
#ifndef PAGODA_MANAGER_ADVICE_POLICY_SIMULATION_H_
#define PAGODA_MANAGER_ADVICE_POLICY_SIMULATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "events/block_hash.h"
#include "manager/advice/hit_rate_curve.h"
#include "manager/policy/eviction_policy.h"
#include "manager/words/block_facts.h"

namespace pagoda {

// Runs a sample of the contents through one small cache for each of kFactors, as large as the
// sample's share of a cache with that multiple of today's capacity. A policy of the given name
// decides in each what leaves (C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park, "Cache Modeling
// and Optimization using Miniature Simulations", USENIX ATC 2017).
//
// A simulated cache keeps content as long as it has content that was computed behind it, as a
// prefix cache does. The parent of a content is the last one before it in the request that is in
// the sample. Without this rule the hit rates were up to 2.8 points off, with it 1.0
// (manager/BENCHMARKS.md).
//
// A cache evicts when a request takes memory, and what the request computes is published later. In
// between, other requests look up their blocks. So Reserve() reports memory without content.
//
// A simulated cache is one tier in memory, of one tenant, without priorities. Content that is held
// is no candidate. If all of a cache is held, further content does not enter it.
//
// Invariants, for each cache
// 1. A place has a content that is held, or has children, or is a candidate of the policy; or it is
// free.
// 2. `children` of a place is the number of places whose parent it is. A place is younger than its
// parent, so there is no cycle.
//
// Deterministic. Thread-compatible. Cost: each call does for every cache what the policy does,
// amortised O(1). Takes 8 bytes for each content, and for each place of a cache 32 bytes and what
// the policy takes: 1.0 MB for 16,384 contents with "learned".
class PolicySimulation {
 public:
  static constexpr size_t kCaches = ReuseCounts::kSimulated;
  static constexpr const auto& kFactors = ReuseCounts::kSimulatedFactors;
  // A number that the caller gives to a content, below num_contents.
  using Content = uint16_t;
  static constexpr Content kNoContent = 0xFFFF;
  // A bit for each cache.
  using Caches = uint8_t;

  // Whether a cache with that policy is worth a simulation. LRU is not: distances tell its hits.
  static bool IsNeededFor(std::string_view policy);

  // `capacity`: contents of today's cache. REQUIRES: there is a policy of that name; num_contents
  // is below kNoContent, and at least four times the capacity.
  PolicySimulation(std::string_view policy, double capacity, size_t num_contents);

  // A request looked up the content and holds it. Returns the caches that had it. The other caches
  // add it. `parent`: see above. The hash and the facts of a content are those of the first call.
  Caches Use(Content content, Content parent, BlockHash hash, ContentFacts facts);
  // Holds the content like Use(), but without a lookup: the request has computed it, or something
  // else holds it.
  Caches Hold(Content content, Content parent, BlockHash hash, ContentFacts facts);
  // The cache has computed and published a sampled content, which these small caches had.
  void Computed(Caches had);
  // Requests have taken memory for `contents` of the sample that they have not published yet. A
  // small cache needs no memory for what it has, so it makes room for the same share of them as of
  // the last ones: evicts until so many places are free, or nothing is a candidate.
  void Reserve(double contents);
  // The last holder released it.
  void Release(Content content);
  // It leaves all caches, whatever the policies say. Its number is free for another content.
  void Remove(Content content);
  // All contents leave, in the order of their numbers.
  void Clear();

 private:
  using Place = uint16_t;
  static constexpr Place kNoPlace = 0xFFFF;

  struct Entry {
    BlockHash hash;
    uint32_t birth = 0;         // Counts the arrivals in the cache.
    uint32_t parent_birth = 0;  // If another one has the parent's place, the parent has left.
    Content content = kNoContent;
    Place parent = kNoPlace;
    uint16_t children = 0;
    ContentFacts facts;
    uint8_t uses = 0;
    bool is_held = false;
    bool is_candidate = false;
  };
  struct Cache {
    TierPolicies policies;
    EvictionPolicy* policy = nullptr;  // The only one of them.
    std::vector<Entry> entries;        // By place.
    std::vector<Place> free;
    uint32_t arrivals = 0;
    double computes = 1;  // The share of the computed contents that it did not have.
  };

  static BlockFacts FactsOf(const Cache& cache, Place place);
  static void Withdraw(Cache& cache, Place place);
  Place PlaceOf(size_t index, Content content) const { return places_[content][index]; }
  void Enter(size_t index, Content content, Content parent, BlockHash hash, ContentFacts facts);
  // Returns the next victim of the cache's policy.
  SlotIndex Leave(size_t index, Place place);

  std::array<Cache, kCaches> caches_;
  std::vector<std::array<Place, kCaches>> places_;  // By content.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ADVICE_POLICY_SIMULATION_H_
