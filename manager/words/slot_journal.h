// Which slots got or lost reusable content. A sink writes that down beside the memory, so that
// another run of the daemon can find the content again.
#ifndef PAGODA_MANAGER_WORDS_SLOT_JOURNAL_H_
#define PAGODA_MANAGER_WORDS_SLOT_JOURNAL_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// The content of a cached block.
struct SlotContent {
  BlockRef block;
  BlockRef parent{kNoBlock, Generation{}};  // kNoBlock: it is the first of its namespace.
  NamespaceKey name_space;                  // If it is the first; else empty.
  std::vector<TokenId> tokens;              // For a keyed block, the words of its key.
  std::vector<TokenExtra> extras;           // Empty, or as long as tokens.
  Priority priority = kDefaultPriority;
  bool keyed = false;

  BlockKey key() const { return {tokens, extras, keyed}; }
};

// A slot has `content` from now on; its bytes are there when the copies up to `ready` have ended.
// Without content the slot has none any more, and can be written at once.
struct SlotChange {
  uint32_t window_index = 0;
  SlotRef slot;
  Ticket ready;
  std::optional<SlotContent> content;
  // The slot was found with this content when the daemon started. What was written down about it
  // still holds.
  bool found = false;
};

// Writes slot changes down. Called under the core's lock, in order. Must not block.
class SlotChangeSink {
 public:
  virtual ~SlotChangeSink() = default;
  // After this returns, no slot that lost its content counts as having it, even if the process
  // dies.
  virtual void Apply(std::vector<SlotChange> changes) = 0;
  // Every copy up to this ticket has ended.
  virtual void CopiesDone(Ticket completed) = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_SLOT_JOURNAL_H_
