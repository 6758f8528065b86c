// What a window is made with, and what its parts share.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_PART_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_PART_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "manager/accounts/tenants.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/tier_residency.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/tree/sequence.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

struct WindowOptions {
  WindowSize window = kFullAttention;
  uint32_t index = 0;  // Among the cache's windows.
  TokensPerBlock tokens_per_block{1};
  size_t num_tiers = 1;  // The number of the cache's tiers.
  std::array<TierResidency::Options::TierOptions, kMaxTiers> tiers;
  uint32_t max_holes = 0;
  uint32_t pin_budget_blocks = 0;
  // One of so many blocks is followed for WindowStats::reuse_intervals; 0: none.
  uint32_t reuse_sample = 0;
  uint32_t max_distance_samples = 0;  // The most samples of ReuseDistances, under full attention.
  std::string_view policy;            // Its name, if it is in EvictionPolicyNames().
  const TenantTable* tenants = nullptr;                    // Outlives the window.
  uint64_t block_bytes = 0;                                // In all pools.
  std::optional<uint8_t> publish_min_uses = std::nullopt;  // See ManagerOptions.

  bool sliding() const { return window != kFullAttention; }
  // The blocks of each tier of the cache.
  std::vector<uint32_t> BlocksPerTier() const {
    std::vector<uint32_t> blocks;
    for (size_t t = 0; t < num_tiers; ++t) blocks.push_back(tiers[t].blocks);
    return blocks;
  }
  // All block ids are below this.
  uint32_t NumIds() const {
    uint32_t ids = 0;
    bool has_lower = false;
    for (size_t t = 0; t < kMaxTiers; ++t) {
      ids += tiers[t].on_disk ? tiers[t].blocks : SlotsFor(Tier(t), tiers[t].blocks);
      has_lower = has_lower || (t > 0 && tiers[t].blocks != 0);
    }
    if (sliding()) ids += max_holes;
    // Each alias belongs to a primary slot: there are never more aliases than slots.
    if (sliding() || has_lower) ids += tiers.front().blocks;
    return ids;
  }
  // Rule 7: the first block that a sequence of so many tokens needs to go on. REQUIRES: sliding().
  uint32_t FirstNeeded(uint32_t tokens) const {
    const uint64_t reach = uint64_t{window.value()} - 1;
    const uint32_t first = tokens_per_block.BlockForToken(
        static_cast<uint32_t>(tokens - std::min<uint64_t>(tokens, reach)));
    const uint32_t whole = tokens_per_block.BlockForToken(tokens);
    return std::min(first, std::max(whole, 1u) - 1);
  }
};

// What all parts of one window stand on. Everything that it names outlives them.
struct WindowFloor {
  const WindowOptions& options;
  const CoreServices& services;
  BlockStore& store;
  PrefixTree& tree;
  TierResidency& residency;
};

// A part of WindowBlockManager: the class that keeps some of a window's invariants. The parts have
// an order. Each calls only parts below it, which its constructor names:
//
//   counts < holds < pins, publishable < cached < prefixes, sequences, raw blocks, restore, scans
//
// Two calls lead up, both by narrow interfaces: TierResidency evicts through CacheExit, and
// CachedBlocks ends pins through PinEnder. The methods here only shorten how a part reads the
// floor; there is no virtual one.
class WindowPart {
 public:
  WindowPart(const WindowPart&) = delete;
  WindowPart& operator=(const WindowPart&) = delete;

 protected:
  explicit WindowPart(const WindowFloor& floor)
      : options_(floor.options),
        services_(floor.services),
        store_(floor.store),
        tree_(floor.tree),
        residency_(floor.residency),
        window_(floor.options.window),
        index_(floor.options.index),
        tokens_per_block_(floor.options.tokens_per_block) {}
  ~WindowPart() = default;

  WindowSize window() const { return window_; }
  uint32_t index() const { return index_; }
  bool sliding() const { return window_ != kFullAttention; }
  TokensPerBlock tokens_per_block() const { return tokens_per_block_; }
  const TenantAccounts& accounts() const { return residency_.counts().accounts(); }
  EventRecorder& recorder() { return *services_.recorder; }
  SequenceBlocks& BlocksOf(Sequence& sequence) const { return sequence.windows[index_]; }
  const SequenceBlocks& BlocksOf(const Sequence& sequence) const {
    return sequence.windows[index_];
  }

  const WindowOptions& options_;
  const CoreServices& services_;
  BlockStore& store_;
  PrefixTree& tree_;
  TierResidency& residency_;

 private:
  // Copies of the options that each token of a step needs.
  const WindowSize window_;
  const uint32_t index_;
  const TokensPerBlock tokens_per_block_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_PART_H_
