// The expected hits of a cached block for each unit of time that it stays cached, learned from
// re-uses.
#ifndef PAGODA_MANAGER_POLICY_REUSE_INDEX_H_
#define PAGODA_MANAGER_POLICY_REUSE_INDEX_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace pagoda {

// What a block is to those that decide how long it is kept.
enum class ContentKind : uint8_t {
  kPrompt,
  kReply,  // Some tokens were generated.
  kLast,   // The last block of a request, until another request uses it. Many are never used again:
           // the conversation goes on with other tokens there.
};

// What is known of a block when a request uses it: how often it was used before, and its kind.
class ReuseClass {
 public:
  static constexpr uint32_t kUses = 4;  // The last one means that many or more.
  static constexpr uint32_t kKinds = 3;
  static constexpr uint32_t kCount = kUses * kKinds;

  static constexpr uint32_t Of(uint32_t uses, ContentKind kind) {
    return uses * kKinds + static_cast<uint32_t>(kind);
  }
  static constexpr uint32_t UsesOf(uint32_t reuse_class) { return reuse_class / kKinds; }
  static constexpr uint32_t KindOf(uint32_t reuse_class) { return reuse_class % kKinds; }
};

// A life table by class and age, and from it a Gittins index (J. Gittins, "Bandit Processes and
// Dynamic Allocation Indices", JRSS B 1979): for a block of a class that was last used some time
// ago, the best ratio, over all times T at which to give it up, of the hits that are expected until
// T and the time that the block is expected to stay until its hit or T. Blocks with the lowest
// index are worth the least memory.
//
// Ages are in steps of the caller's clock. Their bins grow by a third of an octave, so that neither
// the size of a cache nor the speed of its requests needs a constant. At first every class has the
// same index, which falls with age: the order of LRU. A class that was hardly seen follows the
// others. Ages beyond all that were observed are worth less with each bin. Counts lose half of
// their weight in 64 rebuilds.
//
// Deterministic. Takes 12 KB. Thread-compatible.
class ReuseIndex {
 public:
  static constexpr uint32_t kBins = 64;

  struct Counts {
    float reached = 0;
    float reused = 0;
  };
  using CountTable = std::array<std::array<Counts, kBins>, ReuseClass::kCount>;

  ReuseIndex();

  // The bin of an age. Cost: O(1).
  static uint32_t BinOf(uint64_t age) {
    if (age < kFirstBinEnd) return 0;
    const auto octave = static_cast<uint32_t>(std::bit_width(age) - std::bit_width(kFirstBinEnd));
    const uint32_t first = 1 + octave * 3;  // The octave's first bin.
    if (first + 2 >= kBins) return kBins - 1;
    return first + (age >= kStarts[first + 1] ? 1 : 0) + (age >= kStarts[first + 2] ? 1 : 0);
  }
  // The first age of a bin.
  static constexpr uint64_t StartOf(uint32_t bin) { return kStarts[bin]; }

  // A block of that class has reached these bins, and was not used again before.
  void Reached(uint32_t reuse_class, uint32_t first, uint32_t last) {
    AddReached(reuse_class, first, last, 1);
  }
  // It was used again at that age.
  void Reused(uint32_t reuse_class, uint32_t bin) { ++counts_[reuse_class][bin].reused; }

  // A block that has reached the bins up to `last` is of another class.
  void Reclassified(uint32_t from, uint32_t to, uint32_t last) {
    AddReached(from, 0, last, -1);
    AddReached(to, 0, last, 1);
  }

  // Computes the index from the counts. Cost: O(classes * bins), some 10 us.
  void Rebuild();

  // What was seen, for another run of the daemon. Restore() computes the index from it.
  CountTable counts() const;
  void Restore(const CountTable& counts) {
    counts_ = counts;
    reached_changes_ = {};
    Rebuild();
  }

  float at(uint32_t reuse_class, uint32_t bin) const { return index_[reuse_class][bin]; }

  using Chances = std::array<float, kBins>;  // By bin: of a re-use before its end.
  // The index by bin of a block with these chances. Cost: O(bins).
  static std::array<float, kBins> IndexOf(const Chances& chances);

 private:
  static constexpr uint64_t kFirstBinEnd = 16;
  // The first age of each bin. The last one has no end.
  static constexpr std::array<uint64_t, kBins> kStarts = [] {
    std::array<uint64_t, kBins> starts = {};
    double start = kFirstBinEnd;
    for (uint32_t bin = 1; bin < kBins; ++bin) {
      starts[bin] = static_cast<uint64_t>(start);
      start *= 1.2599210498948732;  // The cube root of 2.
    }
    return starts;
  }();

  void AddReached(uint32_t reuse_class, uint32_t first, uint32_t last, int32_t blocks) {
    reached_changes_[reuse_class][first] += blocks;
    reached_changes_[reuse_class][last + 1] -= blocks;
  }
  static Counts Smoothed(const std::array<Counts, kBins>& counts, uint32_t bin);
  Chances PooledChances() const;
  std::array<float, ReuseClass::kCount> Factors(const Chances& pooled) const;

  // The counts, but for the blocks that reached bins since the last rebuild. Of these it has the
  // change of their number from one bin to the next, so many bins at once take two additions.
  CountTable counts_ = {};
  std::array<std::array<int32_t, kBins + 1>, ReuseClass::kCount> reached_changes_ = {};
  std::array<std::array<float, kBins>, ReuseClass::kCount> index_ = {};
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_REUSE_INDEX_H_
