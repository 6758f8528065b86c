#include "manager/advice/policy_simulation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr std::string_view kLru = "lru";
// About so many computed contents tell the share that a small cache has.
constexpr double kRemembered = 256;
// A small cache learns from at most so many of its contents: learning takes most of its time.
constexpr uint32_t kMostSampled = 256;

}  // namespace

bool PolicySimulation::IsNeededFor(std::string_view policy) {
  return !policy.empty() && policy != kLru;
}

PolicySimulation::PolicySimulation(std::string_view policy, double capacity, size_t num_contents)
    : places_(num_contents) {
  PAGODA_CHECK(num_contents < kNoContent, "each content has a number");
  for (auto& places : places_) places.fill(kNoPlace);
  for (size_t i = 0; i < kCaches; ++i) {
    const auto size = static_cast<uint32_t>(std::max(1L, std::lround(capacity * kFactors[i])));
    PAGODA_CHECK(size < kNoPlace, "each place has a number");
    Cache& cache = caches_[i];
    PolicyTiers tiers;
    tiers[0] = {.num_slots = size, .most_sampled = kMostSampled};
    cache.policies = *MakeEvictionPolicies(policy, tiers, 1);
    cache.policy = cache.policies[0].front().get();
    cache.entries.resize(size);
    for (uint32_t place = size; place-- > 0;) cache.free.push_back(static_cast<Place>(place));
  }
}

BlockFacts PolicySimulation::FactsOf(const Cache& cache, Place place) {
  const Entry& entry = cache.entries[place];
  return {.slot = SlotIndex{place},
          .block = BlockId{place},
          .hash = entry.hash,
          .uses = entry.uses,
          .content = entry.facts};
}

void PolicySimulation::Withdraw(Cache& cache, Place place) {
  Entry& entry = cache.entries[place];
  if (!entry.is_candidate) return;
  cache.policy->Withdrawn(FactsOf(cache, place));
  entry.is_candidate = false;
}

PolicySimulation::Caches PolicySimulation::Use(Content content, Content parent, BlockHash hash,
                                               ContentFacts facts) {
  const Caches had = Hold(content, parent, hash, facts);
  for (size_t i = 0; i < kCaches; ++i) {
    if ((had >> i & 1) == 0) continue;
    const Place place = PlaceOf(i, content);
    Entry& entry = caches_[i].entries[place];
    entry.uses = static_cast<uint8_t>(std::min<int>(entry.uses + 1, BlockFacts::kMaxUses));
    caches_[i].policy->Touched(FactsOf(caches_[i], place));
  }
  return had;
}

PolicySimulation::Caches PolicySimulation::Hold(Content content, Content parent, BlockHash hash,
                                                ContentFacts facts) {
  Caches had = 0;
  for (size_t i = 0; i < kCaches; ++i) {
    const Place place = PlaceOf(i, content);
    if (place == kNoPlace) {
      Enter(i, content, parent, hash, facts);
    } else {
      had |= static_cast<Caches>(1 << i);
      Withdraw(caches_[i], place);
      caches_[i].entries[place].is_held = true;
    }
  }
  return had;
}

void PolicySimulation::Computed(Caches had) {
  for (size_t i = 0; i < kCaches; ++i) {
    const double computed = had >> i & 1 ? 0 : 1;
    caches_[i].computes += (computed - caches_[i].computes) / kRemembered;
  }
}

void PolicySimulation::Reserve(double contents) {
  for (size_t i = 0; i < kCaches; ++i) {
    Cache& cache = caches_[i];
    const auto wanted = static_cast<size_t>(std::lround(contents * cache.computes));
    const size_t free = std::min(wanted, cache.entries.size());
    if (cache.free.size() >= free) continue;
    SlotIndex victim = cache.policy->Victim();
    while (victim != kNoSlot && cache.free.size() < free) {
      victim = Leave(i, static_cast<Place>(victim.value()));
    }
  }
}

void PolicySimulation::Enter(size_t index, Content content, Content parent, BlockHash hash,
                             ContentFacts facts) {
  Cache& cache = caches_[index];
  if (cache.free.empty()) {
    const SlotIndex victim = cache.policy->Victim();
    if (victim == kNoSlot) return;
    Leave(index, static_cast<Place>(victim.value()));
  }
  const Place place = cache.free.back();
  cache.free.pop_back();
  Entry& entry = cache.entries[place];
  entry = {
      .hash = hash, .birth = ++cache.arrivals, .content = content, .facts = facts, .is_held = true};
  places_[content][index] = place;
  const Place above = parent == kNoContent ? kNoPlace : PlaceOf(index, parent);
  if (above != kNoPlace && above != place) {
    Withdraw(cache, above);
    ++cache.entries[above].children;
    entry.parent = above;
    entry.parent_birth = cache.entries[above].birth;
  }
  cache.policy->Inserted(FactsOf(cache, place));
}

void PolicySimulation::Release(Content content) {
  for (size_t i = 0; i < kCaches; ++i) {
    const Place place = PlaceOf(i, content);
    if (place == kNoPlace) continue;
    Entry& entry = caches_[i].entries[place];
    if (!entry.is_held) continue;
    entry.is_held = false;
    if (entry.children != 0) continue;
    entry.is_candidate = true;
    caches_[i].policy->Released(FactsOf(caches_[i], place));
  }
}

SlotIndex PolicySimulation::Leave(size_t index, Place place) {
  Cache& cache = caches_[index];
  const BlockFacts facts = FactsOf(cache, place);
  const Entry left = cache.entries[place];
  cache.entries[place] = {};
  cache.free.push_back(place);
  places_[left.content][index] = kNoPlace;
  std::optional<BlockFacts> unparked;
  if (left.parent != kNoPlace) {
    Entry& above = cache.entries[left.parent];
    if (above.birth == left.parent_birth && --above.children == 0 && !above.is_held) {
      above.is_candidate = true;
      unparked = FactsOf(cache, left.parent);
    }
  }
  if (left.is_candidate) {
    return cache.policy->Evicted(facts, unparked.has_value() ? &*unparked : nullptr);
  }
  cache.policy->Removed(facts);
  if (unparked.has_value()) cache.policy->Unparked(*unparked);
  return cache.policy->Victim();
}

void PolicySimulation::Remove(Content content) {
  for (size_t i = 0; i < kCaches; ++i) {
    if (const Place place = PlaceOf(i, content); place != kNoPlace) Leave(i, place);
  }
}

void PolicySimulation::Clear() {
  for (size_t content = 0; content < places_.size(); ++content) {
    Remove(static_cast<Content>(content));
  }
}

}  // namespace pagoda
