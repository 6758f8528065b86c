// Events: the changes of a cache. A reader that applies them in order has the prefix tree, as
// tests/events/shadow_tree.h does.
#ifndef PAGODA_EVENTS_EVENT_H_
#define PAGODA_EVENTS_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "events/pin_id.h"
#include "events/shared_namespace.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda {

// Position in the event stream. The first event has revision 1; revisions have no holes.
using Revision = StrongId<struct RevisionTag, uint64_t>;

// One incarnation of a cache's state, drawn at random. Revisions and block ids of another epoch
// mean nothing.
using Epoch = StrongId<struct EpochTag, uint64_t>;

// Retention priority of a cached block: 0 is evicted first, 100 last.
using Priority = StrongId<struct PriorityTag, uint8_t>;
inline constexpr Priority kDefaultPriority{35};

// A set of tiers.
class TierSet {
 public:
  constexpr TierSet() = default;
  // One bit for each tier; the lowest bit is the first tier's.
  static constexpr TierSet FromBits(uint8_t bits) {
    TierSet set;
    set.bits_ = bits;
    return set;
  }
  constexpr uint8_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool contains(Tier tier) const { return (bits_ >> tier.value() & 1) != 0; }
  constexpr void Add(Tier tier) { bits_ = static_cast<uint8_t>(bits_ | 1 << tier.value()); }
  constexpr void Remove(Tier tier) { bits_ = static_cast<uint8_t>(bits_ & ~(1 << tier.value())); }
  // Calls `visit` with each tier, nearest first.
  template <class Visit>
  constexpr void ForEach(Visit visit) const {
    for (uint8_t tier = 0; tier < kMaxTiers; ++tier) {
      if (contains(Tier{tier})) visit(Tier{tier});
    }
  }
  friend constexpr bool operator==(TierSet, TierSet) = default;

 private:
  static_assert(kMaxTiers <= 8);
  uint8_t bits_ = 0;
};

// Why blocks left the cache.
enum class RemovalReason : uint8_t {
  kEvicted,    // Its slot was needed.
  kDisplaced,  // Another block took its place in a lower tier.
  // A sequence that matched the block, or its first tokens, continues in it. Or it was a tail that
  // nothing held, and a longer block that begins with its tokens was cached.
  kTakenOver,
  kTruncated,    // A sequence dropped refused draft tokens and continues in it.
  kInvalidated,  // An operator or client invalidated its prefix.
  kCleared,      // The prefix cache was reset.
  kReleased,     // The counterpart of CreatedEvent, for its blocks or for the window's pools.
  kLost,         // A copy of its bytes, or of the bytes of a block above it, failed.
};
std::string_view RemovalReasonName(RemovalReason reason);  // "evicted"

// Why a pin ended.
enum class PinEnd : uint8_t {
  kUnpinned,    // A client unpinned it.
  kExpired,     // Its lease was over.
  kPrefixLeft,  // A block of its prefix leaves the tree.
};
std::string_view PinEndName(PinEnd end);  // "unpinned"

// The bounds of one event, so that a message with it stays below gRPC's default limit of 4 MiB. An
// operation that exceeds a bound continues in the next event. A Stored event takes no further block
// once it has kMaxStoredTokens tokens.
inline constexpr size_t kMaxStoredBlocks = 4096;
inline constexpr size_t kMaxStoredTokens = 32'768;
inline constexpr size_t kMaxListedBlocks = 65'536;  // The bound of a Created or a Removed event.

// In an EventBatch, the vectors of an event take their memory from the batch. In every other event,
// including a copy of a batch's event, they take it from the heap.

// Pools were created (blocks_per_tier), or blocks were taken (blocks): raw blocks, or with
// LifecycleEvents::kAll any blocks (events/README.md). One of the two is empty.
struct CreatedEvent {
  std::pmr::vector<uint32_t> blocks_per_tier;  // Indexed by Tier.
  std::pmr::vector<BlockId> blocks;
  friend bool operator==(const CreatedEvent&, const CreatedEvent&) = default;
};

struct StoredBlock {
  BlockId id;
  BlockHash hash;
  uint32_t token_count = 0;  // Below tokens_per_block only for a sequence's tail.
  Tier tier = kPrimaryTier;  // The nearest tier that has its bytes.
  Priority priority = kDefaultPriority;
  TierSet lower;  // Farther tiers with a copy of its bytes.

  // All tiers that have its bytes.
  TierSet tiers() const {
    TierSet tiers = lower;
    tiers.Add(tier);
    return tiers;
  }
  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

// A block of the prefix tree. kNoBlock: the root of a namespace, which ends at token 0.
struct TreeBlock {
  BlockId id = kNoBlock;
  BlockHash hash;
  uint32_t end_token = 0;  // The number of tokens from the prompt's start to the block's end.
  friend bool operator==(const TreeBlock&, const TreeBlock&) = default;
};

// Blocks became reusable. The parent of block i+1 is block i. The parent of block 0 is named, or
// absent below the namespace's root. In a sliding window that parent may have left the cache; its
// hash says what it was.
struct StoredEvent {
  std::optional<BlockHash> parent_hash;
  BlockId parent = kNoBlock;
  uint32_t first_token =
      0;  // The number of tokens before block 0, counted from the prompt's start.
  SharedNamespace name_space;
  std::pmr::vector<StoredBlock> blocks;
  // The tokens of all blocks, one block after another. In a keyed namespace the words of their keys
  // (client_key.h).
  std::pmr::vector<TokenId> tokens;
  std::pmr::vector<TokenExtra> extras;  // One entry per token; empty if no block has extras.
  // The reader is not allowed to know the salt: the salt, tokens and extras are left out.
  bool content_hidden = false;
  // The reader wants hashes (hash_projection.h): the blocks have hashes and tiers alone, kNoBlock
  // as their ids, and need not be a chain. Nothing else is set.
  bool hashes_only = false;

  bool keyed() const { return name_space->keyed; }
  // The number of entries of `tokens` that belong to the block.
  size_t EntriesOf(const StoredBlock& block) const {
    if (content_hidden || hashes_only) return 0;
    return keyed() ? ClientKey::kWords : block.token_count;
  }
  // The content of the block whose entries begin at `begin`. Refers to the event.
  BlockKey KeyAt(size_t begin, const StoredBlock& block) const {
    const size_t entries = EntriesOf(block);
    const auto all = absl::MakeConstSpan(extras);
    return {.tokens = absl::MakeConstSpan(tokens).subspan(begin, entries),
            .extras = all.empty() ? all : all.subspan(begin, entries),
            .keyed = keyed()};
  }
  friend bool operator==(const StoredEvent&, const StoredEvent&) = default;
};

template <class T>
struct Change {
  T old_value;
  T new_value;
  friend bool operator==(const Change&, const Change&) = default;
};

struct EndedPin {
  PinId pin;
  PinEnd why = PinEnd::kUnpinned;
  std::optional<RemovalReason> removal;  // With kPrefixLeft: why the block leaves.
  friend bool operator==(const EndedPin&, const EndedPin&) = default;
};

// Tier, lower copies or priority of a cached block changed, or a pin ended.
//
// For a pin, the block is the last one of the pin's prefix in the cache's largest window, and the
// event's tenant is the pin's. If the pin ends because a block leaves, this event comes before the
// Removed event.
struct UpdatedEvent {
  BlockId id;
  uint32_t end_token = 0;  // The block's TreeBlock::end_token; 0 if a pin ended.
  BlockHash hash;
  std::optional<Change<Tier>> tier;      // The nearest tier that has its bytes.
  std::optional<Change<TierSet>> lower;  // Farther tiers with a copy of its bytes.
  std::optional<Change<Priority>> priority;
  std::optional<EndedPin> ended_pin;  // The pin that ended. Nothing else changes with it.
  friend bool operator==(const UpdatedEvent&, const UpdatedEvent&) = default;
};

// One of:
// * Blocks left the tree: ids, hashes and end tokens, index for index.
// * Every block of the window left the tree.
// * Taken blocks were freed: ids only.
// * The window's pools go, with everything in them.
struct RemovedEvent {
  enum class Scope : uint8_t {
    kBlocks,
    kWindow,  // The cached blocks. Taken blocks stay.
    kPools,   // Cached and taken blocks. The stream's last events, one for each window.
  };

  RemovalReason reason = RemovalReason::kEvicted;
  Scope scope = Scope::kBlocks;
  std::pmr::vector<BlockId> blocks;
  std::pmr::vector<BlockHash> hashes;
  std::pmr::vector<uint32_t> end_tokens;  // The blocks' TreeBlock::end_token, in their order.
  friend bool operator==(const RemovedEvent&, const RemovedEvent&) = default;
};

struct Event {
  Revision revision;
  absl::Time time;
  WindowSize window = kFullAttention;
  TenantId tenant = kDefaultTenant;  // The owner of its blocks.
  std::variant<CreatedEvent, StoredEvent, UpdatedEvent, RemovedEvent> what;
  friend bool operator==(const Event&, const Event&) = default;
};

// An event without contents, whose vectors take their memory from `memory`.
template <class T>
T EmptyEvent(std::pmr::memory_resource* memory);
template <>
inline CreatedEvent EmptyEvent(std::pmr::memory_resource* memory) {
  return {.blocks_per_tier = std::pmr::vector<uint32_t>(memory),
          .blocks = std::pmr::vector<BlockId>(memory)};
}
template <>
inline StoredEvent EmptyEvent(std::pmr::memory_resource* memory) {
  return {.parent_hash = {},
          .first_token = 0,
          .name_space = {},
          .blocks = std::pmr::vector<StoredBlock>(memory),
          .tokens = std::pmr::vector<TokenId>(memory),
          .extras = std::pmr::vector<TokenExtra>(memory),
          .content_hidden = false,
          .hashes_only = false};
}
template <>
inline UpdatedEvent EmptyEvent(std::pmr::memory_resource*) {
  return {};
}
template <>
inline RemovedEvent EmptyEvent(std::pmr::memory_resource* memory) {
  return {.blocks = std::pmr::vector<BlockId>(memory),
          .hashes = std::pmr::vector<BlockHash>(memory),
          .end_tokens = std::pmr::vector<uint32_t>(memory)};
}

}  // namespace pagoda

#endif  // PAGODA_EVENTS_EVENT_H_
