// The lists for operators: rows of sessions and sequences, and the blocks of a prefix. Plain
// values, copied out under the core's lock.
#ifndef PAGODA_MANAGER_WORDS_LISTS_H_
#define PAGODA_MANAGER_WORDS_LISTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "events/event.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

struct SessionRow {
  SessionId session;
  std::string client_name;
  TenantId tenant = kDefaultTenant;
  absl::Time opened;
  absl::Duration lease;
  // Time left of the lease; nothing while a stream or a waiting batch holds it.
  std::optional<absl::Duration> lease_left;
  uint32_t streams = 0;
  uint64_t sequences = 0;
  uint64_t raw_blocks = 0;
  uint64_t deferred_blocks = 0;  // Released in a step that the client has not completed.
  uint64_t step = 0;
  uint64_t completed_step = 0;
};

struct SequenceRow {
  SessionId session;
  SequenceId sequence;
  std::string client_name;
  TenantId tenant = kDefaultTenant;  // The tenant that is charged for its blocks.
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t reserved_tokens = 0;
  uint32_t matched_tokens = 0;  // Cached when it was added; a fork has those of its original.
  uint32_t blocks = 0;          // In its tables now, over all windows.
  uint32_t losses = 0;
};

// A cached block on the path of a prompt.
struct InspectedBlock {
  WindowSize window = kFullAttention;
  uint32_t token_start = 0;  // The block's first token, in the prompt.
  uint32_t token_count = 0;  // The number of its first tokens that match the prompt.
  BlockHandle block;
  Tier tier = kPrimaryTier;  // The nearest tier that has its bytes.
  TierSet lower;             // Farther tiers with a copy.
  BlockHash hash;
  Priority priority;
  uint32_t holders = 0;  // Sequences, pins and deferred releases.
  bool pinned = false;
};

struct InspectedPrefix {
  // What an AddSequence with these tokens and one more would match.
  uint32_t matched_tokens = 0;
  // All cached blocks on the path, by window, then by place. A block can lie behind the match if
  // another window lacks its part.
  std::vector<InspectedBlock> blocks;
};

// A copy of a cached block whose bytes are complete.
struct LocatedBlock {
  Generation generation;
  BlockHash hash;
  SlotRef slot;
  friend bool operator==(const LocatedBlock&, const LocatedBlock&) = default;
};

struct LocatedBlocks {
  Revision revision;  // All of this is true as of it.
  // One for each block that was asked for; nothing if it is not cached, or has no such copy.
  std::vector<std::optional<LocatedBlock>> blocks;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_LISTS_H_
