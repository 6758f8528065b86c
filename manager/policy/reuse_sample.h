// Follows a sample of the contents that requests use, cached or not.
#ifndef PAGODA_MANAGER_POLICY_REUSE_SAMPLE_H_
#define PAGODA_MANAGER_POLICY_REUSE_SAMPLE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "manager/policy/reuse_index.h"
#include "manager/policy/reuse_table.h"

namespace pagoda {

// Teaches a ReuseIndex, and says whether the index would evict better than LRU.
//
// A hash chooses the contents: one of 2^shift, so that a cache's share of the sample has at most
// most_share contents. The sample remembers eight times as many, so it sees re-uses of contents
// that were evicted long ago. The clock of the ages is the number of all accesses / 2^shift.
//
// Two shadow caches run on the sample, each with the cache's share: one evicts by LRU, the other by
// the index. Neither evicts what was used so recently that its request still holds it: LRU would
// not anyway, but the index has less room for what it prefers. They know no prefixes. The index has
// to earn the trust: its shadow must be ahead (see trusts_index()). So a cache starts by LRU.
//
// Deterministic. Cost of an access outside the sample: a multiplication. Within the sample it is
// amortised O(classes + bins): each time that the index is computed anew, all remembered contents
// are looked at, some 50 us. Takes 38 to 42 bytes for each remembered content: at most 0.7 MB.
// Thread-compatible.
//
// Invariants
// 1. The remembered contents are in a list, the last used first.
// 2. Each shadow cache holds at most its capacity. Its lists hold the contents in the order of
// their last access; one that changed its class counts as accessed then.
class ReuseSample {
 public:
  static constexpr uint32_t kMostShare = 2048;

  // `capacity`: blocks of the cache, over all its tiers. `most_share`: see above; at least 1.
  explicit ReuseSample(uint32_t capacity, uint32_t most_share = kMostShare);
  ReuseSample(const ReuseSample&) = delete;
  ReuseSample& operator=(const ReuseSample&) = delete;

  // The content was used by a request; it is of that class from now on. BlockHash{} only moves the
  // clock.
  void Accessed(BlockHash content, uint32_t reuse_class) {
    ++now_;
    if (IsSampled(content)) AccessedSampled(content, reuse_class);
  }
  // So many accesses to contents outside the sample.
  void Skip(uint64_t accesses) { now_ += accesses; }
  // Whether the content is in a sample with that rate().
  static bool IsPicked(BlockHash content, uint64_t rate) {
    return (content.value() * 0x9E37'79B9'7F4A'7C15u) >> 32 < rate && content.value() != 0;
  }
  // The sample has so many of 2^32 contents. A sample with a higher rate has them too.
  uint64_t rate() const { return picked_below_; }

  // The content that was used last, or soon before, is of another class.
  void Reclassify(BlockHash content, uint32_t reuse_class) {
    if (IsSampled(content)) ReclassifySampled(content, reuse_class);
  }

  // A request ended, which held its blocks while so many accesses were made.
  void Ended(uint64_t accesses) { held_sum_ += accesses - held_sum_ / kRequestsAveraged; }

  // All accesses.
  uint64_t now() const { return now_; }
  // Those of the sample. Only these change index() and trusts_index().
  uint64_t sampled() const { return sampled_; }
  // The bin of the index for a block that was last used that many accesses ago.
  uint32_t BinOf(uint64_t age) const { return ReuseIndex::BinOf(age >> shift_); }
  const ReuseIndex& index() const { return index_; }
  bool trusts_index() const { return trusts_index_; }

  // What the accesses taught, without the sampled contents. Restore() takes it over from a sample
  // of any capacity.
  ReuseTable Learned() const;
  void Restore(const ReuseTable& table);

 private:
  static constexpr uint16_t kNone = 0xffff;
  static constexpr uint32_t kNoEnd = 0xffff'ffff;
  static constexpr uint32_t kBatch = 128;
  static constexpr uint32_t kRequestsAveraged = 64;
  static constexpr uint32_t kRemembered = 8;  // Times the cache's share.

  struct Links {
    uint16_t newer = kNone;
    uint16_t older = kNone;
  };
  struct Entry {
    BlockHash content;
    uint8_t reuse_class = 0;
    uint8_t bin = 0;  // The last one that counts it.
    bool in_lru = false;
    bool in_learned = false;
    Links by_age;
    Links by_lru;
    Links by_class;
  };
  // Apart from the entries, because all of them are looked at each time that the index is computed.
  struct Age {
    uint32_t last_used = 0;     // The sample's clock.
    uint32_t bin_end = kNoEnd;  // The age at which the next bin begins.
  };
  struct List {
    uint16_t newest = kNone;
    uint16_t oldest = kNone;
  };

  uint32_t clock() const { return static_cast<uint32_t>(now_ >> shift_); }
  bool IsSampled(BlockHash content) const { return IsPicked(content, picked_below_); }
  void AccessedSampled(BlockHash content, uint32_t reuse_class);
  void ReclassifySampled(BlockHash content, uint32_t reuse_class);
  uint16_t Find(BlockHash content) const;
  uint32_t PlaceOf(BlockHash content) const;
  uint16_t Add(BlockHash content);
  void Forget(uint16_t entry);
  // Counts the bins that the content has reached since it was looked at last.
  void CountAge(uint16_t entry) {
    if (AgeOf(entry) >= ages_[entry].bin_end) CountBins(entry);
  }
  void CountBins(uint16_t entry);
  uint32_t AgeOf(uint16_t entry) const { return clock() - ages_[entry].last_used; }
  void Learn();
  void ShadowLru(uint16_t entry);
  void ShadowLearned(uint16_t entry, uint32_t reuse_class);
  uint16_t LearnedVictim() const;
  void Judge(bool lru_hit, bool learned_hit);

  template <Links Entry::*kLinks>
  void PushNewest(List& list, uint16_t entry);
  template <Links Entry::*kLinks>
  void Remove(List& list, uint16_t entry);

  const uint32_t shift_;
  const uint64_t picked_below_;
  const uint32_t share_;  // The capacity of each shadow cache, in sampled blocks.
  uint64_t now_ = 0;
  uint64_t sampled_ = 0;
  uint64_t next_rebuild_ = 64;
  ReuseIndex index_;
  std::vector<Entry> entries_;
  std::vector<Age> ages_;  // By entry.
  std::vector<uint16_t> free_;
  std::vector<uint16_t> places_;  // A hash table with linear probing.
  List by_age_;
  List lru_;
  uint32_t lru_size_ = 0;
  std::array<List, ReuseClass::kCount> learned_;
  uint32_t learned_size_ = 0;
  // For how many accesses a request holds its blocks, on average, times kRequestsAveraged.
  uint64_t held_sum_ = 0;
  // The lead of the index: its hits less those of LRU, over recent accesses. It fades with each
  // sampled access. Its variance, if both were equally good, fades with each batch.
  float lead_ = 0;
  float variance_ = 0;
  float lead_of_batch_ = 0;
  uint32_t size_of_batch_ = 0;
  bool trusts_index_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_REUSE_SAMPLE_H_
