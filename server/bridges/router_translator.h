// From the cache's events to what routers keep.
#ifndef PAGODA_SERVER_BRIDGES_ROUTER_TRANSLATOR_H_
#define PAGODA_SERVER_BRIDGES_ROUTER_TRANSLATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "server/bridges/router_events.h"

namespace pagoda::server {

// Applies the events of a cache in order and says what they mean to somebody who keeps a set of
// hashes for each window and tier. Thread-compatible.
//
//   Created                      nothing
//   Stored                       BlocksStored, one for each run of blocks in one tier; blocks with
//                                copies in farther tiers are told there, too
//   Updated, the tier or copies  BlocksRemoved in tiers that lost the bytes, then BlocksStored in
//                                those that got them
//   Updated, the priority        nothing
//   Removed, blocks              BlocksRemoved
//   Removed, a whole window      AllCleared where no other window has blocks, else BlocksRemoved
//   Removed, released            nothing: raw blocks were never in the tree
//
// A tail, a block with fewer tokens than tokens_per_block, is left out: routers know whole blocks
// alone. A router that trusts this stream expects at most tokens_per_block - 1 tokens too few. The
// blocks of a keyed namespace are left out too: they have no tokens, by which routers find blocks.
//
// Invariants
// 1. A hash that has been announced in a window and tier is not announced there again before it has
// been removed there; it is removed when the last block of this hash leaves.
// 2. Memory: that of the cached blocks and their tokens, because a move and a copy tell them once
// more.
class RouterTranslator {
 public:
  struct Options {
    uint32_t tokens_per_block = 0;
    std::vector<WindowSize> windows;  // Those of the cache.
  };

  explicit RouterTranslator(Options options);

  // Appends what `event` changes.
  void Translate(const Event& event, std::vector<RouterEvent>& out);

  // Forgets every block and appends an AllCleared. Later events may name blocks that were stored
  // before: they are passed over.
  void Forget(std::vector<RouterEvent>& out);

  // Tells of every block that is cached, parents before their children, to somebody who knows of
  // none.
  void TellAll(absl::FunctionRef<void(RouterEvent)> tell) const;

  // Whole blocks that are cached.
  size_t cached_blocks() const;
  // Changes of blocks that were not known, or stored twice. 0 unless Forget was called.
  uint64_t misfits() const { return misfits_; }

  // The most blocks that one RouterEvent tells of, and the tokens beyond which it does not go on.
  static constexpr size_t kMaxRun = 512;
  static constexpr size_t kMaxRunTokens = 16'384;

 private:
  // kUntold: a tail, or a block that a client's key names.
  enum class Kind : uint8_t { kNone, kUntold, kWhole };

  struct Node {
    Kind kind = Kind::kNone;
    TierSet tiers;  // Those that have its bytes.
    bool has_parent = false;
    TenantId tenant;
    BlockHash hash;
    BlockHash parent;
    std::shared_ptr<const NamespaceKey> name_space;
    std::vector<TokenExtra> extras;
  };
  struct Window {
    WindowSize size;
    std::vector<Node> nodes;      // Indexed by BlockId.
    std::vector<TokenId> tokens;  // Of node i from i * tokens_per_block on.
    // Whole blocks of a hash, by tier.
    std::array<absl::flat_hash_map<BlockHash, uint32_t>, kMaxTiers> blocks;

    uint32_t& count(Tier tier, BlockHash hash) { return blocks[static_cast<size_t>(tier)][hash]; }
    // Whether another tier than `tier`, both below the first one, has the hash.
    bool AlsoBelow(Tier tier, BlockHash hash) const;
    bool empty() const;
    Node* Find(BlockId id);
  };

  Window& WindowOf(WindowSize size);
  absl::Span<const TokenId> TokensOf(const Window& window, const Node& node) const;
  void TellWindow(const Window& window, absl::FunctionRef<void(RouterEvent)> tell) const;
  void Store(Window& window, TenantId tenant, const StoredEvent& stored,
             std::vector<RouterEvent>& out);
  void Update(Window& window, const UpdatedEvent& updated, std::vector<RouterEvent>& out);
  void Remove(Window& window, const RemovedEvent& removed, std::vector<RouterEvent>& out);
  void RemoveAll(Window& window, std::vector<RouterEvent>& out);
  void RemoveOne(Window& window, BlockId id, std::vector<RouterEvent>& out);
  // Counts a block in one more tier; whether it is the first of its hash there.
  static bool Enter(Window& window, Node& node, Tier tier);
  // The opposite; tells of it where it was the last one.
  static void Leave(Window& window, Node& node, Tier tier, std::vector<RouterEvent>& out);
  // Tells of a block in a tier: with `run`, the last event, where that ends with the block's
  // parent, else with an event of its own. Returns the last event.
  BlocksStored* TellStored(const Window& window, const Node& node, Tier tier, bool also_below,
                           BlocksStored* run, std::vector<RouterEvent>& out) const;
  bool AllEmpty() const;

  const Options options_;
  std::vector<Window> windows_;
  uint64_t misfits_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_TRANSLATOR_H_
