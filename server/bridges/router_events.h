// What is cached, in the words of the routers' world: hashes on a medium, without block ids.
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

// Whole blocks came to a tier. Block i+1's parent is block i; block 0's parent is named, or absent
// below the namespace's root.
struct BlocksStored {
  WindowSize window = kFullAttention;
  Tier tier = Tier::kPrimary;
  // Another tier below the first has them, too: nothing changed for readers that know near and far
  // alone. Likewise below.
  bool also_below = false;
  std::optional<BlockHash> parent;
  std::shared_ptr<const NamespaceKey> name_space;  // Shared with the translator; never null.
  std::vector<BlockHash> hashes;
  std::vector<TokenId> tokens;     // tokens_per_block of each block, one block after another.
  std::vector<TokenExtra> extras;  // As long as tokens; empty where no block has any.
  friend bool operator==(const BlocksStored& a, const BlocksStored& b);
};

// Blocks left a tier.
struct BlocksRemoved {
  WindowSize window = kFullAttention;
  Tier tier = Tier::kPrimary;
  bool also_below = false;
  std::vector<BlockHash> hashes;
  friend bool operator==(const BlocksRemoved&, const BlocksRemoved&) = default;
};

// Nothing is cached any more, in no window and no tier.
struct AllCleared {
  friend bool operator==(const AllCleared&, const AllCleared&) = default;
};

struct RouterEvent {
  TenantId tenant = kDefaultTenant;  // Whose blocks; an AllCleared concerns everybody.
  std::variant<BlocksStored, BlocksRemoved, AllCleared> what;
  friend bool operator==(const RouterEvent&, const RouterEvent&) = default;
};

// What a bridge sends at once; never empty.
struct RouterBatch {
  uint64_t number = 0;       // One more than the batch before.
  uint64_t first_event = 0;  // Events before this batch, plus 1.
  absl::Time time;           // Of the last change in it.
  Revision revision;         // Events up to this one are told of in this batch and those before.
  std::vector<RouterEvent> events;
  size_t bytes = 0;  // Memory, about.
};
// Shared by the rings that keep it and by the streams that send it at the moment.
using RouterBatchPtr = std::shared_ptr<const RouterBatch>;

inline bool operator==(const BlocksStored& a, const BlocksStored& b) {
  return a.window == b.window && a.tier == b.tier && a.also_below == b.also_below &&
         a.parent == b.parent && *a.name_space == *b.name_space && a.hashes == b.hashes &&
         a.tokens == b.tokens && a.extras == b.extras;
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_EVENTS_H_
