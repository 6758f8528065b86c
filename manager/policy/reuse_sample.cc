#include "manager/policy/reuse_sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "base/check.h"

namespace pagoda {
namespace {

constexpr float kDeviationsToTrust = 1.5F;
constexpr float kNothing = 1e-3F;  // A lead that has faded. Much smaller numbers are slow.

// The smallest shift with which the cache's share of the sample is at most `most_share`.
uint32_t ShiftFor(uint32_t capacity, uint32_t most_share) {
  uint32_t shift = 0;
  while (capacity >> shift > most_share) ++shift;
  return shift;
}

// The last bin has no end.
constexpr std::array<uint32_t, ReuseIndex::kBins> kBinEnds = [] {
  std::array<uint32_t, ReuseIndex::kBins> ends;
  ends.fill(std::numeric_limits<uint32_t>::max());
  for (uint32_t bin = 0; bin + 1 < ends.size(); ++bin) {
    ends[bin] = static_cast<uint32_t>(ReuseIndex::StartOf(bin + 1));
  }
  return ends;
}();

}  // namespace

ReuseSample::ReuseSample(uint32_t capacity, uint32_t most_share)
    : shift_(ShiftFor(capacity, std::min(most_share, kMostShare))),
      picked_below_((uint64_t{1} << 32) >> shift_),
      share_(std::max(1u, capacity >> shift_)) {
  const uint32_t remembered = share_ * kRemembered;
  static_assert(kMostShare * kRemembered < kNone);
  entries_.resize(remembered);
  ages_.resize(remembered);
  free_.reserve(remembered);
  for (uint32_t i = remembered; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
  places_.assign(std::bit_ceil(remembered * 2), kNone);
}

// --- The table ---

uint32_t ReuseSample::PlaceOf(BlockHash content) const {
  return static_cast<uint32_t>(content.value() >> 20) & static_cast<uint32_t>(places_.size() - 1);
}

uint16_t ReuseSample::Find(BlockHash content) const {
  for (uint32_t at = PlaceOf(content);; at = (at + 1) & static_cast<uint32_t>(places_.size() - 1)) {
    if (places_[at] == kNone || entries_[places_[at]].content == content) return places_[at];
  }
}

uint16_t ReuseSample::Add(BlockHash content) {
  if (free_.empty()) Forget(by_age_.oldest);
  const uint16_t entry = free_.back();
  free_.pop_back();
  entries_[entry] = {.content = content};
  uint32_t at = PlaceOf(content);
  while (places_[at] != kNone) at = (at + 1) & static_cast<uint32_t>(places_.size() - 1);
  places_[at] = entry;
  return entry;
}

void ReuseSample::Forget(uint16_t entry) {
  Entry& of = entries_[entry];
  CountAge(entry);
  Remove<&Entry::by_age>(by_age_, entry);
  if (of.in_lru) {
    Remove<&Entry::by_lru>(lru_, entry);
    --lru_size_;
  }
  if (of.in_learned) {
    Remove<&Entry::by_class>(learned_[of.reuse_class], entry);
    --learned_size_;
  }
  const auto mask = static_cast<uint32_t>(places_.size() - 1);
  uint32_t hole = PlaceOf(of.content);
  while (places_[hole] != entry) hole = (hole + 1) & mask;
  places_[hole] = kNone;
  // Entries behind the hole move up if they would not be found otherwise.
  for (uint32_t at = (hole + 1) & mask; places_[at] != kNone; at = (at + 1) & mask) {
    const uint32_t wanted = PlaceOf(entries_[places_[at]].content);
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    places_[hole] = places_[at];
    places_[at] = kNone;
    hole = at;
  }
  of.content = {};
  free_.push_back(entry);
}

// --- Learning ---

void ReuseSample::AccessedSampled(BlockHash content, uint32_t reuse_class) {
  uint16_t entry = Find(content);
  if (entry == kNone) {
    entry = Add(content);
  } else {
    CountAge(entry);
    index_.Reused(entries_[entry].reuse_class, entries_[entry].bin);
    Remove<&Entry::by_age>(by_age_, entry);
  }
  const bool lru_hit = entries_[entry].in_lru;
  const bool learned_hit = entries_[entry].in_learned;
  ShadowLearned(entry, reuse_class);
  entries_[entry].bin = 0;
  ages_[entry] = {.last_used = clock(), .bin_end = kBinEnds[0]};
  PushNewest<&Entry::by_age>(by_age_, entry);
  index_.Reached(reuse_class, 0, 0);
  ShadowLru(entry);
  Judge(lru_hit, learned_hit);
  ++sampled_;
  if (sampled_ >= next_rebuild_) Learn();
}

void ReuseSample::ReclassifySampled(BlockHash content, uint32_t reuse_class) {
  const uint16_t entry = Find(content);
  if (entry == kNone) return;
  Entry& of = entries_[entry];
  index_.Reclassified(of.reuse_class, reuse_class, of.bin);
  if (of.in_learned) Remove<&Entry::by_class>(learned_[of.reuse_class], entry);
  of.reuse_class = static_cast<uint8_t>(reuse_class);
  if (of.in_learned) PushNewest<&Entry::by_class>(learned_[reuse_class], entry);
}

// REQUIRES: the content has reached another bin.
void ReuseSample::CountBins(uint16_t entry) {
  Entry& of = entries_[entry];
  const uint32_t bin = ReuseIndex::BinOf(AgeOf(entry));
  index_.Reached(of.reuse_class, of.bin + 1u, bin);
  of.bin = static_cast<uint8_t>(bin);
  ages_[entry].bin_end = kBinEnds[bin];
}

// More often at first; later as often as the cache's share is used once.
void ReuseSample::Learn() {
  const uint32_t now = clock();
  const absl::Span<const Age> ages = ages_;
  for (size_t entry = 0; entry < ages.size(); ++entry) {
    const bool is_due = now - ages[entry].last_used >= ages[entry].bin_end;
    if (is_due) CountBins(static_cast<uint16_t>(entry));
  }
  index_.Rebuild();
  next_rebuild_ = sampled_ + std::clamp<uint64_t>(sampled_ / 2, 64, std::max(64u, share_));
}

ReuseTable ReuseSample::Learned() const {
  return {.shift = shift_,
          .counts = index_.counts(),
          .lead = lead_,
          .variance = variance_,
          .trusts_index = trusts_index_};
}

void ReuseSample::Restore(const ReuseTable& table) {
  index_.Restore(Rescaled(table, shift_).counts);
  lead_ = table.lead;
  variance_ = table.variance;
  trusts_index_ = table.trusts_index;
}

// --- The shadow caches ---

void ReuseSample::ShadowLru(uint16_t entry) {
  Entry& of = entries_[entry];
  if (of.in_lru) {
    Remove<&Entry::by_lru>(lru_, entry);
  } else {
    of.in_lru = true;
    ++lru_size_;
  }
  PushNewest<&Entry::by_lru>(lru_, entry);
  if (lru_size_ <= share_) return;
  const uint16_t victim = lru_.oldest;
  Remove<&Entry::by_lru>(lru_, victim);
  entries_[victim].in_lru = false;
  --lru_size_;
}

void ReuseSample::ShadowLearned(uint16_t entry, uint32_t reuse_class) {
  Entry& of = entries_[entry];
  if (of.in_learned) {
    Remove<&Entry::by_class>(learned_[of.reuse_class], entry);
  } else {
    if (learned_size_ == share_) {
      const uint16_t victim = LearnedVictim();
      Remove<&Entry::by_class>(learned_[entries_[victim].reuse_class], victim);
      entries_[victim].in_learned = false;
      --learned_size_;
    }
    of.in_learned = true;
    ++learned_size_;
  }
  of.reuse_class = static_cast<uint8_t>(reuse_class);
  PushNewest<&Entry::by_class>(learned_[reuse_class], entry);
}

// If all are held, the oldest one.
uint16_t ReuseSample::LearnedVictim() const {
  const uint64_t held = held_sum_ / kRequestsAveraged >> shift_;
  uint16_t victim = kNone;
  bool victim_is_held = true;
  float least = 0;
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    const uint16_t oldest = learned_[c].oldest;
    if (oldest == kNone) continue;
    const uint32_t age = AgeOf(oldest);
    const bool is_held = age < held;
    const float worth = is_held ? -static_cast<float>(age) : index_.at(c, ReuseIndex::BinOf(age));
    const bool goes_first = is_held == victim_is_held ? worth < least : victim_is_held;
    if (victim != kNone && !goes_first) continue;
    victim = oldest;
    victim_is_held = is_held;
    least = worth;
  }
  PAGODA_CHECK(victim != kNone, "a full shadow cache has a victim");
  return victim;
}

// The index gets the trust when it is ahead by more than 1.5 standard deviations of an even game,
// which one even game in 15 is, and loses it when it is ahead no more. The blocks of a conversation
// hit or miss together. So what counts for the deviation is the lead of each batch, and a batch is
// longer than most requests.
void ReuseSample::Judge(bool lru_hit, bool learned_hit) {
  const auto window = static_cast<float>(4 * share_ + 64);
  lead_ *= 1 - 1 / window;
  if (std::abs(lead_) < kNothing) lead_ = 0;
  if (lru_hit != learned_hit) {
    const float one = learned_hit ? 1.0F : -1.0F;
    lead_ += one;
    lead_of_batch_ += one;
  }
  if (++size_of_batch_ == kBatch) {
    variance_ *= std::max(0.0F, 1 - static_cast<float>(kBatch) / window);
    variance_ += lead_of_batch_ * lead_of_batch_;
    lead_of_batch_ = 0;
    size_of_batch_ = 0;
  }
  const float deviation = std::sqrt(std::max(1.0F, variance_ + lead_of_batch_ * lead_of_batch_));
  trusts_index_ = lead_ > (trusts_index_ ? 0 : kDeviationsToTrust * deviation);
}

// --- Lists ---

template <ReuseSample::Links ReuseSample::Entry::*kLinks>
void ReuseSample::PushNewest(List& list, uint16_t entry) {
  entries_[entry].*kLinks = {.newer = kNone, .older = list.newest};
  if (list.newest == kNone) {
    list.oldest = entry;
  } else {
    (entries_[list.newest].*kLinks).newer = entry;
  }
  list.newest = entry;
}

template <ReuseSample::Links ReuseSample::Entry::*kLinks>
void ReuseSample::Remove(List& list, uint16_t entry) {
  const Links links = entries_[entry].*kLinks;
  if (links.newer == kNone) {
    list.newest = links.older;
  } else {
    (entries_[links.newer].*kLinks).older = links.older;
  }
  if (links.older == kNone) {
    list.oldest = links.newer;
  } else {
    (entries_[links.older].*kLinks).newer = links.newer;
  }
}

}  // namespace pagoda
