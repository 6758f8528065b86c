// The prefix that a prompt must match and the blocks that it must take, found by a search of all
// blocks.
#ifndef PAGODA_TESTS_SIM_MATCH_H_
#define PAGODA_TESTS_SIM_MATCH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tests/sim/world.h"

namespace pagoda::sim {

class MatchOracle {
 public:
  // The tiers that count. With kMemory a block on disk alone is missing; under full attention a
  // match ends before it.
  enum class Reach : uint8_t { kMemory, kAllTiers };
  // Several blocks can share the most tokens with the end of the prompt, some of them on disk
  // alone. The core may then try one of these and match no part. It does so in the windows of
  // this set.
  using Windows = uint32_t;  // A bit each.
  // Matches the first `limit` tokens of `keys` against the present trees.
  MatchOracle(World& world, uint32_t name_space, const std::vector<TokenKey>& keys, uint32_t limit,
              Reach reach = Reach::kAllTiers, Windows without_part = 0);
  // All matches that are possible in memory.
  static std::vector<MatchOracle> InMemory(World& world, uint32_t name_space,
                                           const std::vector<TokenKey>& keys, uint32_t limit);
  // Whether the match met a block on disk alone.
  bool has_more_on_disk() const { return has_more_on_disk_; }

  // The largest length up to `most` that is valid in every window (rule 7).
  uint32_t Longest(uint32_t most) const;
  // That length, cut at its end to a tail that is cached unchanged in every window, or to whole
  // blocks.
  uint32_t LongestWhole() const;

  // The first block that a sequence needs to go on from `length`.
  uint32_t first(uint32_t window, uint32_t length) const;
  // Block `index` of the path. Below: the blocks that can give the part of a block at the end of
  // `length`.
  uint32_t block(uint32_t window, uint32_t index) const { return paths_[window][index]; }
  std::vector<uint32_t> Sources(uint32_t window, uint32_t length) const;
  // The cached tail at the end of `length` without further tokens; kNone if there is none.
  uint32_t Tail(uint32_t window, uint32_t length) const;

  struct Demand {
    bool fits = false;
    // False if several blocks can be the source and their needs differ.
    bool sure = true;
  };
  // Whether `tenant` can have capacity for `reserved` tokens in `window` with a match of `length`
  // tokens.
  Demand DemandFor(uint32_t window, uint32_t length, uint64_t reserved, TenantId tenant) const;
  // Whether the length ends at a hole.
  bool EndsInHole(uint32_t window, uint32_t length) const;

 private:
  // If the path has a hole there: the cached blocks that share the tokens of `length` behind its
  // whole blocks.
  std::vector<uint32_t> BesideHole(uint32_t window, uint32_t length) const;
  // Whether the blocks of the first `end` tokens that a sequence of `length` tokens needs are
  // there.
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
  const bool keyed_;  // Only whole blocks match.
  const std::vector<TokenKey> keys_;
  const uint32_t tokens_per_block_;
  const uint32_t limit_;
  Windows in_memory_ = 0;  // Blocks on disk alone do not count in these.
  Windows may_lack_part_ = 0;
  bool has_more_on_disk_ = false;
  std::array<std::vector<uint32_t>, kMaxWindows> paths_;  // Whole blocks, holes among them.
  // Cached blocks that share most after the path.
  std::array<std::vector<uint32_t>, kMaxWindows> partials_;
  std::array<uint32_t, kMaxWindows> partial_tokens_ = {};  // How many tokens they share.
};

// The match of the whole content.
MatchOracle MatchAll(World& world, const Content& content);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_MATCH_H_
