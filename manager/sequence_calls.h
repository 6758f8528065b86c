// What BlockManager's operations on sequences are given, and what they return.
#ifndef PAGODA_MANAGER_SEQUENCE_CALLS_H_
#define PAGODA_MANAGER_SEQUENCE_CALLS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "manager/retention.h"
#include "pools/copy_order.h"
#include "pools/types.h"

namespace pagoda {

struct Sequence;  // manager/sequence.h

// What a sequence begins with. Refers to its parts.
struct SequencePrompt {
  const NamespaceKey& name_space;
  absl::Span<const TokenId> tokens;
  uint32_t reserved_tokens = 0;  // 0: all of them; less than the match: as many as matched.
  absl::Span<const uint64_t> extra_token_ids = {};
  absl::Span<const MultimodalItem> multimodal_items = {};
  const SequenceRetention* retention = nullptr;
  std::string_view tenant = {};    // Whom it is charged to: see TenantTable::Charged.
  bool whole_blocks_only = false;  // No part of a block is matched.
  // In a keyed namespace the whole blocks that it begins with, instead of tokens. All of them may
  // match: the engine computes what comes next from tokens of its own.
  absl::Span<const ClientKey> keys = {};
  // What CheckContent says of it, where the caller has asked already; else it is asked.
  const absl::Status* content_check = nullptr;

  bool empty() const { return tokens.empty() && keys.empty(); }
};

// In each result: `ready` is the ticket that the slots wait for (0: nothing), and `sequence` is
// valid until the manager's next call.

struct SequenceAdded {
  uint32_t matched_tokens = 0;
  uint32_t matched_secondary_tokens = 0;  // Of these, those that come up for it.
  uint32_t matched_below_tokens = 0;      // Behind these, those that are cached on disk.
  const Sequence* sequence = nullptr;
  Ticket ready;
};

// How a sequence's tables changed: entries from `first_block` on are new or other ones.
struct SequenceGrowth {
  uint32_t first_block = 0;
  uint32_t blocks = 0;  // The entries from there to the end.
  const Sequence* sequence = nullptr;
  Ticket ready;
};

struct SequenceForked {
  const Sequence* sequence = nullptr;  // The new one.
  Ticket ready;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCE_CALLS_H_
