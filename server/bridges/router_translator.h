// Translates the cache's events into events for routers.
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

// Applies the events of a cache in order and translates them for a router, which keeps a set of
// hashes for each window and tier. Thread-compatible.
//
//   Created                      nothing
//   Stored                       BlocksStored, one for each run of blocks in one tier; blocks with
//                                copies in lower tiers are announced there, too
//   Updated, the tier or copies  BlocksRemoved in tiers that lost the bytes, then BlocksStored in
//                                tiers that got them
//   Updated, the priority        nothing
//   Removed, blocks              BlocksRemoved
//   Removed, a whole window      AllCleared if no other window has blocks, else BlocksRemoved
//   Removed, released            nothing: raw blocks were never in the tree
//
// A tail (a block with fewer tokens than tokens_per_block) is left out, because routers know only
// whole blocks. A router that trusts this stream expects at most tokens_per_block - 1 tokens too
// few. The blocks of a keyed namespace are left out, too: routers find blocks by their tokens, and
// these have none.
//
// Invariants
// 1. A hash that was announced in a window and tier is announced there again only after its removal
//    there. It is removed when the last block with this hash leaves.
// 2. Memory: the cached blocks and their tokens, because a move or a copy announces them again.
class RouterTranslator {
 public:
  struct Options {
    uint32_t tokens_per_block = 0;
    std::vector<WindowSize> windows;  // The cache's windows.
  };

  explicit RouterTranslator(Options options);

  // Appends the router events for `event`.
  void Translate(const Event& event, std::vector<RouterEvent>& out);

  // Forgets every block and appends an AllCleared. Later events about blocks that were stored
  // earlier are ignored.
  void Forget(std::vector<RouterEvent>& out);

  // Announces every cached block, parents before children, for a reader that knows no block.
  void EmitAll(absl::FunctionRef<void(RouterEvent)> tell) const;

  // The number of whole blocks that are cached.
  size_t cached_blocks() const;
  // The number of changes of unknown blocks and of blocks stored twice. 0 unless Forget was called.
  uint64_t misfits() const { return misfits_; }

  // The most blocks of one RouterEvent, and the number of tokens at which it takes no more blocks.
  static constexpr size_t kMaxRun = 512;
  static constexpr size_t kMaxRunTokens = 16'384;

 private:
  // kUntold: a tail or a block of a keyed namespace, which routers do not see.
  enum class Kind : uint8_t { kNone, kUntold, kWhole };

  struct Node {
    Kind kind = Kind::kNone;
    TierSet tiers;  // The tiers that have its bytes.
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
    std::vector<TokenId> tokens;  // The tokens of node i begin at i * tokens_per_block.
    // By tier: the number of whole blocks of each hash.
    std::array<absl::flat_hash_map<BlockHash, uint32_t>, kMaxTiers> blocks;

    uint32_t& count(Tier tier, BlockHash hash) { return blocks[tier.value()][hash]; }
    // Whether `tier` and another tier that has the hash are both below the first tier.
    bool AlsoBelow(Tier tier, BlockHash hash) const;
    bool empty() const;
    Node* Find(BlockId id);
  };

  Window& WindowOf(WindowSize size);
  absl::Span<const TokenId> TokensOf(const Window& window, const Node& node) const;
  void EmitWindow(const Window& window, absl::FunctionRef<void(RouterEvent)> tell) const;
  void Store(Window& window, TenantId tenant, const StoredEvent& stored,
             std::vector<RouterEvent>& out);
  void Update(Window& window, const UpdatedEvent& updated, std::vector<RouterEvent>& out);
  void Remove(Window& window, const RemovedEvent& removed, std::vector<RouterEvent>& out);
  void RemoveAll(Window& window, std::vector<RouterEvent>& out);
  void RemoveOne(Window& window, BlockId id, std::vector<RouterEvent>& out);
  // Counts a block in one more tier. Returns whether it is the first of its hash there.
  static bool Enter(Window& window, Node& node, Tier tier);
  // Undoes Enter. Announces the removal if the block was the last of its hash there.
  static void Leave(Window& window, Node& node, Tier tier, std::vector<RouterEvent>& out);
  // Announces a block in a tier. Extends `run`, the last event, if it ends with the block's parent;
  // else appends a new event. Returns the last event.
  BlocksStored* EmitStored(const Window& window, const Node& node, Tier tier, bool also_below,
                           BlocksStored* run, std::vector<RouterEvent>& out) const;
  bool AllEmpty() const;

  const Options options_;
  std::vector<Window> windows_;
  uint64_t misfits_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_TRANSLATOR_H_
