// Arguments and results of the operations on sequences (sequences/running_sequences.h).
#ifndef PAGODA_MANAGER_API_SEQUENCE_CALLS_H_
#define PAGODA_MANAGER_API_SEQUENCE_CALLS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "manager/words/retention.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

struct Sequence;  // manager/tree/sequence.h

// The beginning of a sequence. Refers to its parts.
struct SequencePrompt {
  const NamespaceKey& name_space;
  absl::Span<const TokenId> tokens;
  uint32_t reserved_tokens = 0;  // At least the matched tokens. 0: the whole prompt.
  absl::Span<const uint64_t> extra_token_ids = {};
  absl::Span<const MultimodalItem> multimodal_items = {};
  const SequenceRetention* retention = nullptr;
  std::string_view tenant = {};    // The tenant that is charged: see TenantTable::Charged.
  bool whole_blocks_only = false;  // Match no part of a block.
  // In a keyed namespace: the prompt's whole blocks, instead of tokens. All of them can match,
  // because the engine computes the next token from tokens of its own.
  absl::Span<const ClientKey> keys = {};
  // Statistics count a request's prompt once. This is a further sequence of a request, which goes
  // on after a preemption, or none of a request.
  bool uncounted = false;
  // The result of CheckContent, if the caller has it already. Null: it is checked now.
  const absl::Status* content_check = nullptr;

  bool empty() const { return tokens.empty() && keys.empty(); }
};

// In each result, `ready` is the ticket for which the slots wait (0: none). `sequence` is valid
// until the manager's next call.

struct SequenceAdded {
  uint32_t matched_tokens = 0;
  uint32_t matched_lower_tokens = 0;  // The matched tokens that are onboarded for the sequence.
  uint32_t matched_below_tokens = 0;  // The tokens after the match that are cached on disk.
  const Sequence* sequence = nullptr;
  Ticket ready;
};

// How a sequence's tables changed: entries from `first_block` on are new or different.
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

// What a reader of a sequence's KV needs in one window. A reader reads the slots without a lock,
// and asks again afterwards: if the version and the blocks are the same, the bytes are the
// sequence's.
struct SequenceKv {
  uint64_t version = 0;  // Sequence::kv_version.
  uint32_t computed_tokens = 0;
  uint32_t losses = 0;
  bool must_be_freed = false;
  uint32_t first_block = 0;         // The window has no entry of its table before this one.
  std::vector<BlockHandle> blocks;  // The entries that were asked for, as far as they exist.
  Ticket ready;                     // When their computed tokens are there; 0: now.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_SEQUENCE_CALLS_H_
