#include "manager/advice/reuse_distances.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace pagoda {
namespace {

uint64_t SamplesWanted(const ReuseDistances::Options& options) {
  const auto reach = static_cast<uint64_t>(HitRateCurve::kMaxFactor) * options.capacity_blocks;
  return std::min<uint64_t>({options.max_samples, ReuseCounts::kMaxDistance, reach});
}

}  // namespace

ReuseDistances::ReuseDistances(const Options& options)
    : capacity_blocks_(options.capacity_blocks),
      max_samples_(static_cast<uint32_t>(SamplesWanted(options))) {
  if (max_samples_ == 0) return;
  const double reach = HitRateCurve::kMaxFactor * static_cast<double>(capacity_blocks_);
  counts_.rate = std::min(1.0, max_samples_ / reach);
  counts_.capacity_blocks = capacity_blocks_;
  picked_below_ = static_cast<uint64_t>(std::ldexp(counts_.rate, 32));
  entries_.resize(max_samples_);
  table_.resize(std::bit_ceil(size_t{2} * max_samples_));
  table_mask_ = table_.size() - 1;
  places_.resize(size_t{2} * max_samples_);
  places_up_to_.resize(places_.size() + 1);
  lookups_until_forgetting_ = LookupsPerStep();
  Clear();
  if (!PolicySimulation::IsNeededFor(options.policy)) return;
  simulation_ = std::make_unique<PolicySimulation>(
      options.policy, static_cast<double>(capacity_blocks_) * counts_.rate, max_samples_);
  counts_.is_simulated = true;
}

// --- The table ---

// The cell of the hash, or the free cell where it belongs.
ReuseDistances::Index* ReuseDistances::Find(BlockHash hash) {
  size_t cell = Home(hash.value());
  while (table_[cell] != kNone && entries_[table_[cell]].hash != hash.value()) {
    cell = (cell + 1) & table_mask_;
  }
  return &table_[cell];
}

// Returns kNone if everything is held. REQUIRES: the hash is not followed.
ReuseDistances::Index ReuseDistances::Insert(BlockHash hash) {
  if (followed_ == max_samples_) {
    if (placed_ == 0) return kNone;
    DropOldest();
  }
  const auto index = static_cast<Index>(first_free_);
  Entry& entry = entries_[index];
  first_free_ = entry.place;
  entry = {.hash = hash.value()};
  *Find(hash) = index;
  ++followed_;
  return index;
}

// Moves later entries of the same run of cells forward, so that no probe ends early.
void ReuseDistances::Erase(Index* erased) {
  Entry& entry = entries_[*erased];
  if (simulation_ != nullptr) simulation_->Remove(*erased);
  LeavePlace(entry);
  entry.place = first_free_;
  first_free_ = *erased;
  --followed_;
  auto hole = static_cast<size_t>(erased - table_.data());
  for (size_t cell = (hole + 1) & table_mask_; table_[cell] != kNone;
       cell = (cell + 1) & table_mask_) {
    const size_t home = Home(entries_[table_[cell]].hash);
    // Whether a probe from its home reaches its cell by way of the hole.
    if (((cell - home) & table_mask_) < ((cell - hole) & table_mask_)) continue;
    table_[hole] = table_[cell];
    hole = cell;
  }
  table_[hole] = kNone;
}

void ReuseDistances::DropOldest() {
  while (places_[oldest_] == kNone) ++oldest_;
  has_dropped_ = true;
  Erase(Find(BlockHash{entries_[places_[oldest_]].hash}));
}

// --- The order ---

void ReuseDistances::Add(uint32_t place, int change) {
  for (size_t i = place + 1; i < places_up_to_.size(); i += i & (~i + 1)) {
    places_up_to_[i] = static_cast<uint16_t>(places_up_to_[i] + change);
  }
}

uint32_t ReuseDistances::PlacesUpTo(uint32_t place) const {
  uint32_t sum = 0;
  for (size_t i = place + 1; i != 0; i -= i & (~i + 1)) sum += places_up_to_[i];
  return sum;
}

void ReuseDistances::LeavePlace(Entry& entry) {
  if (entry.place == kNoPlace) return;
  places_[entry.place] = kNone;
  Add(entry.place, -1);
  entry.place = kNoPlace;
  --placed_;
}

// There are twice as many places as entries, so the entries move together after as many uses as
// there are entries, or more.
uint32_t ReuseDistances::NextPlace() {
  if (next_place_ < places_.size()) return next_place_++;
  next_place_ = oldest_ = 0;
  std::fill(places_up_to_.begin(), places_up_to_.end(), 0);
  for (size_t from = 0; from < places_.size(); ++from) {
    const Index index = places_[from];
    if (index == kNone) continue;
    places_[from] = kNone;
    places_[next_place_] = index;
    entries_[index].place = next_place_;
    Add(next_place_++, 1);
  }
  PAGODA_CHECK(next_place_ == placed_ && next_place_ < places_.size(), "places move together");
  return next_place_++;
}

// --- Uses ---

void ReuseDistances::Count(BlockHash hash, size_t bucket) {
  ++lookups_;
  if (bucket != kNone) ++counts_.groups[GroupOf(hash)].by_distance[bucket];
}

PolicySimulation::Caches ReuseDistances::Simulate(Index index, ContentFacts facts,
                                                  Request& request) {
  if (simulation_ == nullptr) return 0;
  const PolicySimulation::Caches had =
      simulation_->Use(index, request.last, BlockHash{entries_[index].hash}, facts);
  request.last = index;
  return had;
}

void ReuseDistances::CountSimulated(BlockHash hash, PolicySimulation::Caches had) {
  for (size_t i = 0; i < PolicySimulation::kCaches; ++i) {
    counts_.groups[GroupOf(hash)].simulated_hits[i] += had >> i & 1;
  }
}

void ReuseDistances::CountHit(BlockHash hash, ContentFacts facts, Request& request) {
  const Index index = *Find(hash);
  if (index == kNone) return;
  ++counts_.groups[GroupOf(hash)].hits;
  Count(hash, ReuseCounts::BucketOf(DistanceOf(entries_[index])));
  CountSimulated(hash, Simulate(index, facts, request));
}

void ReuseDistances::CountMiss(BlockHash hash, ContentFacts facts, Request& request) {
  Index index = *Find(hash);
  if (index == kNone) {
    Count(hash, kNone);
    index = Insert(hash);
    if (index == kNone) return;
  } else {
    Entry& entry = entries_[index];
    // Moments wrap around, and no request lasts for half of them.
    const bool counted_since =
        entry.missed_at != 0 && static_cast<int32_t>(entry.missed_at - request.since) > 0;
    if (!counted_since) {
      entry.missed_bucket = static_cast<uint16_t>(ReuseCounts::BucketOf(DistanceOf(entry)));
    }
    Count(hash, entry.missed_bucket);
    LeavePlace(entry);
    if (counted_since) {
      CountSimulated(hash, entry.had);
      if (simulation_ != nullptr) simulation_->Hold(index, request.last, hash, facts);
      request.last = index;
      return;
    }
  }
  entries_[index].missed_at = lookups_;
  entries_[index].had = Simulate(index, facts, request);
  Computed(entries_[index].had);
  CountSimulated(hash, entries_[index].had);
}

PolicySimulation::Caches ReuseDistances::Hold(BlockHash hash, ContentFacts facts,
                                              Request& request) {
  Index index = *Find(hash);
  if (index == kNone) {
    index = Insert(hash);
    if (index == kNone) return 0;
  } else {
    LeavePlace(entries_[index]);
  }
  PolicySimulation::Caches had = 0;
  if (simulation_ != nullptr) had = simulation_->Hold(index, request.last, hash, facts);
  request.last = index;
  return had;
}

void ReuseDistances::Release(BlockHash hash) {
  const Index index = *Find(hash);
  if (index == kNone || entries_[index].place != kNoPlace) return;
  if (simulation_ != nullptr) simulation_->Release(index);
  const uint32_t place = NextPlace();
  places_[place] = index;
  entries_[index].place = place;
  Add(place, 1);
  ++placed_;
}

void ReuseDistances::Remove(BlockHash hash) {
  Index* const cell = Find(hash);
  if (*cell != kNone) Erase(cell);
}

void ReuseDistances::Clear() {
  if (max_samples_ == 0) return;
  if (simulation_ != nullptr) simulation_->Clear();
  for (uint32_t i = 0; i < entries_.size(); ++i) entries_[i] = {.place = i + 1};
  first_free_ = next_place_ = oldest_ = followed_ = placed_ = 0;
  std::fill(table_.begin(), table_.end(), kNone);
  std::fill(places_.begin(), places_.end(), kNone);
  std::fill(places_up_to_.begin(), places_up_to_.end(), 0);
  has_dropped_ = false;
}

// --- Counts over all blocks ---

void ReuseDistances::CountRequest(absl::Time now) {
  ++counts_.requests;
  if (counts_.requests == 1) last_forgetting_ = now;
  first_request_ = std::min(first_request_, now);
  if (last_request_ != absl::InfinitePast()) {
    counts_.seconds += absl::ToDoubleSeconds(now - last_request_);
  }
  last_request_ = std::max(last_request_, now);
}

void ReuseDistances::CountLookups(uint64_t hits, uint64_t misses) {
  counts_.hits += static_cast<double>(hits);
  counts_.lookups += static_cast<double>(hits + misses);
  uint64_t left = hits + misses;
  for (; left >= lookups_until_forgetting_; Forget()) {
    if (IsTooEarlyToForget()) {
      lookups_until_forgetting_ = 0;
      return;
    }
    left -= lookups_until_forgetting_;
  }
  lookups_until_forgetting_ -= left;
}

// Without a request there is no time.
bool ReuseDistances::IsTooEarlyToForget() const {
  return counts_.requests != 0 &&
         last_request_ - last_forgetting_ < kLeastHalfLife / kForgettingSteps;
}

void ReuseDistances::Forget() {
  lookups_until_forgetting_ = LookupsPerStep();
  last_forgetting_ = last_request_;
  const double kept = std::exp2(-1.0 / kForgettingSteps);
  for (ReuseCounts::Group& group : counts_.groups) {
    for (double& count : group.by_distance) count *= kept;
    for (double& count : group.simulated_hits) count *= kept;
    group.hits *= kept;
  }
  counts_.lookups *= kept;
  counts_.hits *= kept;
  counts_.seconds *= kept;
}

ReuseCounts ReuseDistances::counts() const {
  ReuseCounts counts = counts_;
  if (max_samples_ == 0) return counts;
  const double reach = HitRateCurve::kMaxFactor * static_cast<double>(capacity_blocks_);
  counts.known_blocks = has_dropped_ ? reach : followed_ / counts_.rate;
  if (counts_.requests != 0) counts.observed = last_request_ - first_request_;
  return counts;
}

}  // namespace pagoda
