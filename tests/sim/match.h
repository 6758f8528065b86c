// What a prompt must match and what it must take, found by looking at everything.
#ifndef PAGODA_TESTS_SIM_MATCH_H_
#define PAGODA_TESTS_SIM_MATCH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tests/sim/world.h"

namespace pagoda::sim {

class MatchOracle {
 public:
  // Which tiers count. In memory what is on disk alone is not there: under full attention a match
  // ends before it.
  enum class Reach : uint8_t { kMemory, kAllTiers };
  // Of several blocks that share most with the end of what is asked for, some may be on disk alone.
  // Then the core may look at one of these and match no part: in the windows of this set it does.
  using Windows = uint32_t;  // A bit each.
  // Of the first `limit` tokens of `keys`, as the trees are now.
  MatchOracle(World& world, uint32_t name_space, const std::vector<TokenKey>& keys, uint32_t limit,
              Reach reach = Reach::kAllTiers, Windows without_part = 0);
  // All that may be true of what is in memory.
  static std::vector<MatchOracle> InMemory(World& world, uint32_t name_space,
                                           const std::vector<TokenKey>& keys, uint32_t limit);
  // Whether something on disk alone was met.
  bool has_more_on_disk() const { return has_more_on_disk_; }

  // The largest length up to `most` that is valid in every window (rule 7).
  uint32_t Longest(uint32_t most) const;
  // That length, cut at its end to a tail that is cached as it is in every window, or to whole
  // blocks.
  uint32_t LongestWhole() const;

  // The first block that a sequence needs to go on from `length`.
  uint32_t first(uint32_t window, uint32_t length) const;
  // Block `index` of the path, and the blocks from which the part of a block at the end of `length`
  // may come.
  uint32_t block(uint32_t window, uint32_t index) const { return paths_[window][index]; }
  std::vector<uint32_t> Sources(uint32_t window, uint32_t length) const;
  // The cached tail at the end of `length` that has no other tokens; kNone where there is none.
  uint32_t Tail(uint32_t window, uint32_t length) const;

  struct Room {
    bool fits = false;
    // Whether that is sure: where several blocks may be the source, they may differ.
    bool sure = true;
  };
  // Whether `tenant` can have room for `room` tokens in `window` with a match of `length` tokens.
  Room DemandFor(uint32_t window, uint32_t length, uint64_t reserved, TenantId tenant) const;
  // Whether the length ends in the place of a hole.
  bool EndsInHole(uint32_t window, uint32_t length) const;

 private:
  // The cached blocks that share the tokens of `length` behind its whole blocks, where the path has
  // a hole there.
  std::vector<uint32_t> BesideHole(uint32_t window, uint32_t length) const;
  // Whether the blocks of the first `end` tokens are there that a sequence of `length` needs.
  bool Valid(uint32_t window, uint32_t length, uint32_t end) const;
  bool IsInMemory(uint32_t window) const { return (in_memory_ & (1u << window)) != 0; }
  // Whether the block's bytes count as there.
  bool IsThere(uint32_t window, uint32_t id) const {
    return world_.shadows[window].node(id).cached() &&
           !(IsInMemory(window) && world_.IsOnlyOnDisk(window, id));
  }
  void FindPartials(uint32_t window, uint32_t parent, uint32_t begin, bool without_part);

  World& world_;
  const uint32_t name_space_;
  const bool keyed_;  // Whole blocks alone match.
  const std::vector<TokenKey> keys_;
  const uint32_t tokens_per_block_;
  const uint32_t limit_;
  Windows in_memory_ = 0;  // What is on disk alone does not count in these.
  Windows may_lack_part_ = 0;
  bool has_more_on_disk_ = false;
  std::array<std::vector<uint32_t>, kMaxWindows> paths_;     // Whole blocks, holes among them.
  std::array<std::vector<uint32_t>, kMaxWindows> partials_;  // Cached ones that share most behind.
  std::array<uint32_t, kMaxWindows> partial_tokens_ = {};    // How much that is.
};

// What is cached of all of the content.
MatchOracle MatchAll(World& world, const Content& content);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_MATCH_H_
