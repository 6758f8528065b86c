// Cache events in the terms of routers: hashes on a medium, without block ids.
#ifndef PAGODA_SERVER_BRIDGES_ROUTER_EVENTS_H_
#define PAGODA_SERVER_BRIDGES_ROUTER_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda::server {

// Whole blocks entered a tier. The parent of block i+1 is block i. The parent of block 0 is
// `parent`; it is absent for the first block of a sequence.
struct BlocksStored {
  WindowSize window = kFullAttention;
  Tier tier = kPrimaryTier;
  // Another tier below the first one has the blocks, too. Nothing changes for readers that
  // distinguish only the first tier and the tiers below. The same holds in BlocksRemoved.
  bool also_below = false;
  std::optional<BlockHash> parent;
  std::shared_ptr<const NamespaceKey> name_space;  // Shared with the translator; never null.
  std::vector<BlockHash> hashes;
  std::vector<TokenId> tokens;     // tokens_per_block for each block, in the blocks' order.
  std::vector<TokenExtra> extras;  // One entry per token; empty if no block has extras.
  friend bool operator==(const BlocksStored& a, const BlocksStored& b);
};

// Blocks left a tier.
struct BlocksRemoved {
  WindowSize window = kFullAttention;
  Tier tier = kPrimaryTier;
  bool also_below = false;
  std::vector<BlockHash> hashes;
  friend bool operator==(const BlocksRemoved&, const BlocksRemoved&) = default;
};

// Nothing is cached any more, in any window or tier; or what is cached follows, from the beginning.
// It is the first event of its batch.
struct AllCleared {
  friend bool operator==(const AllCleared&, const AllCleared&) = default;
};

struct RouterEvent {
  TenantId tenant = kDefaultTenant;  // The blocks' tenant. AllCleared concerns every tenant.
  std::variant<BlocksStored, BlocksRemoved, AllCleared> what;
  friend bool operator==(const RouterEvent&, const RouterEvent&) = default;
};

// The events that a bridge sends at once; never empty.
struct RouterBatch {
  uint64_t number = 0;       // One more than that of the previous batch.
  uint64_t first_event = 0;  // The number of the first event, counted from 1.
  absl::Time time;           // The time of the last change in it.
  Revision revision;         // This batch and the earlier ones cover the log up to here.
  std::vector<RouterEvent> events;
  size_t bytes = 0;  // The approximate memory.
};
// Shared by the rings that keep the batch and by the streams that are sending it.
using RouterBatchPtr = std::shared_ptr<const RouterBatch>;

inline bool BeginsWithClear(const RouterBatch& batch) {
  return std::holds_alternative<AllCleared>(batch.events.front().what);
}

inline bool operator==(const BlocksStored& a, const BlocksStored& b) {
  return a.window == b.window && a.tier == b.tier && a.also_below == b.also_below &&
         a.parent == b.parent && *a.name_space == *b.name_space && a.hashes == b.hashes &&
         a.tokens == b.tokens && a.extras == b.extras;
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_EVENTS_H_
