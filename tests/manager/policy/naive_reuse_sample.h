// ReuseSample by its definition: one list of contents, which every access goes through.
#ifndef PAGODA_TESTS_MANAGER_POLICY_NAIVE_REUSE_SAMPLE_H_
#define PAGODA_TESTS_MANAGER_POLICY_NAIVE_REUSE_SAMPLE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "manager/policy/reuse_index.h"

namespace pagoda {

// It has an index of its own, because ReuseIndex has its own tests. Cost: O(remembered contents) an
// access.
class NaiveReuseSample {
 public:
  explicit NaiveReuseSample(uint32_t capacity) {
    while ((capacity >> shift) > 2048) ++shift;
    share = std::max(1u, capacity >> shift);
  }

  // The hash that picks the contents.
  bool IsSampled(BlockHash content) const {
    const uint64_t mixed = content.value() * 0x9E37'79B9'7F4A'7C15u;
    return content != BlockHash{} && (shift == 0 || mixed >> (64 - shift) == 0);
  }

  void Accessed(BlockHash content, uint32_t reuse_class) {
    ++now;
    if (!IsSampled(content)) return;
    const auto found = Find(content);
    One one{.content = content};
    if (found != contents.end()) {
      one = *found;
      contents.erase(found);
      Age(one);
      index.Reused(one.reuse_class, one.bin);
    } else if (contents.size() == 8 * size_t{share}) {
      Age(contents.front());
      contents.erase(contents.begin());
    }
    const bool lru_hit = one.in_lru, index_hit = one.in_learned;
    if (!index_hit) MakeRoomInLearned();
    one.last_used = clock();
    one.reuse_class = reuse_class;
    one.bin = 0;
    one.in_lru = one.in_learned = true;
    one.placed = ++placements;
    index.Reached(reuse_class, 0, 0);
    contents.push_back(one);
    KeepLru();
    Judge(lru_hit, index_hit);
    ++sampled;
    has_learned = sampled >= next_rebuild;
    if (!has_learned) return;
    for (One& each : contents) Age(each);
    index.Rebuild();
    // Half as many accesses again; at least 64, and at most the cache's share.
    const uint64_t most = std::max(64u, share);
    next_rebuild = sampled + std::clamp<uint64_t>(sampled / 2, 64, most);
  }

  void Ended(uint64_t accesses) { held = held - held / 64 + accesses; }

  void Reclassify(BlockHash content, uint32_t reuse_class) {
    if (!IsSampled(content)) return;
    const auto found = Find(content);
    if (found == contents.end()) return;
    index.Reclassified(found->reuse_class, reuse_class, found->bin);
    found->reuse_class = reuse_class;
    found->placed = ++placements;
  }

  // How far the lead of the index is above the one at which it loses the trust, or gets it back.
  double Margin() const {
    const double own = lead_of_batch * lead_of_batch;
    return lead - (trusts ? 0 : 1.5 * std::sqrt(std::max(1.0, variance + own)));
  }

  uint32_t shift = 0;
  uint32_t share = 1;
  ReuseIndex index;
  uint64_t held = 0;  // By a request on average, in accesses, times 64.
  double lead = 0;
  double variance = 0;  // The variance over all whole batches.
  double lead_of_batch = 0;
  bool trusts = false;
  bool has_learned = false;  // The last sampled access changed the index.
  double last_margin = 1;    // The margin at the last judgement.

 private:
  struct One {
    BlockHash content;
    uint64_t last_used = 0;
    uint32_t reuse_class = 0;
    uint32_t bin = 0;
    bool in_lru = false;
    bool in_learned = false;
    uint64_t placed = 0;  // When it last became its class's most recent content.
  };

  uint64_t clock() const { return now >> shift; }
  std::vector<One>::iterator Find(BlockHash content) {
    return std::find_if(contents.begin(), contents.end(),
                        [content](const One& one) { return one.content == content; });
  }

  void Age(One& one) {
    const uint32_t bin = std::max(one.bin, ReuseIndex::BinOf(clock() - one.last_used));
    for (; one.bin < bin; ++one.bin) index.Reached(one.reuse_class, one.bin + 1, one.bin + 1);
  }

  // The first class whose oldest content has the smallest index, of those that no request holds. If
  // all are held, the oldest one goes.
  void MakeRoomInLearned() {
    if (std::count_if(contents.begin(), contents.end(),
                      [](const One& one) { return one.in_learned; }) < share) {
      return;
    }
    One* victim = nullptr;
    One* oldest_of_all = nullptr;
    for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
      One* oldest = nullptr;
      for (One& one : contents) {
        if (!one.in_learned || one.reuse_class != c) continue;
        if (oldest == nullptr || one.placed < oldest->placed) oldest = &one;
      }
      if (oldest == nullptr) continue;
      if (oldest_of_all == nullptr || oldest->last_used < oldest_of_all->last_used) {
        oldest_of_all = oldest;
      }
      if (clock() - oldest->last_used < held / 64 >> shift) continue;
      if (victim == nullptr || Worth(*oldest) < Worth(*victim)) victim = oldest;
    }
    (victim != nullptr ? victim : oldest_of_all)->in_learned = false;
  }
  float Worth(const One& one) const {
    return index.at(one.reuse_class, ReuseIndex::BinOf(clock() - one.last_used));
  }

  // LRU has the last `share` contents.
  void KeepLru() {
    for (size_t i = 0; i < contents.size(); ++i) {
      contents[i].in_lru = i + share >= contents.size();
    }
  }

  void Judge(bool lru_hit, bool index_hit) {
    const double keep = 1 - 1 / (4.0 * share + 64);
    lead = lead * keep + (index_hit ? 1 : 0) - (lru_hit ? 1 : 0);
    lead_of_batch += (index_hit ? 1 : 0) - (lru_hit ? 1 : 0);
    // The access that is counted next.
    if ((sampled + 1) % 128 == 0) {
      variance =
          variance * std::max(0.0, 1 - 128 / (4.0 * share + 64)) + lead_of_batch * lead_of_batch;
      lead_of_batch = 0;
    }
    last_margin = Margin();
    trusts = last_margin > 0;
  }

  uint64_t now = 0;
  uint64_t sampled = 0;
  uint64_t next_rebuild = 64;
  uint64_t placements = 0;
  std::vector<One> contents;  // By their last access, the oldest first.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_POLICY_NAIVE_REUSE_SAMPLE_H_
