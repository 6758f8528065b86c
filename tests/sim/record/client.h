// The knowledge of the simulated clients: their sessions, sequences, raw blocks and pins, as the
// answers described them.
#ifndef PAGODA_TESTS_SIM_RECORD_CLIENT_H_
#define PAGODA_TESTS_SIM_RECORD_CLIENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "events/tenant_id.h"
#include "manager/api/operation.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"

namespace pagoda::sim {

// A sequence's blocks in one window.
struct SimTable {
  std::vector<BlockHandle> blocks;  // By token; kNoBlock for entries that the window has passed.
  // The client does not see these, but they can be derived. `canonical`: the cached block that
  // stands for a published one, if that is another. tree_epoch and tip: whether the path has left
  // the tree.
  std::vector<BlockId> canonical;
  uint32_t published = 0;
  BlockId tip = kNoBlock;  // The cached block of entry published - 1.
  bool detached = false;
  // The last entry is another sequence's tail. A fork shares it until it grows.
  bool borrowed_tail = false;
  // The block at this index was taken over, and had this retention.
  std::optional<std::pair<uint32_t, BlockRetention>> taken_over;
};

struct SimSequence {
  bool running = false;
  SequenceId id;
  TenantId tenant;            // The tenant that is charged for its blocks.
  Content content;            // All tokens named.
  std::vector<Value> values;  // The values that an engine writes for these tokens.
  uint32_t prompt_tokens = 0;
  uint32_t computed = 0;
  uint32_t reserved = 0;
  uint32_t forked = 0;  // The highest number of computed tokens at a fork.
  Ticket ready;
  // How often a failed copy took computed tokens; how many of these losses the client has read, and
  // how many its commits have named.
  uint32_t losses = 0;
  uint32_t known_losses = 0;
  uint32_t named_losses = 0;
  SequenceRetention retention;
  std::array<SimTable, kMaxWindows> tables;

  uint32_t tokens() const { return static_cast<uint32_t>(content.tokens.size()); }
  void Name(uint32_t from);  // Values of the tokens from `from` on.
};

struct SimRaw {
  uint32_t window = 0;
  BlockHandle handle;
  Ticket ready;
  bool written = false;
  Value tag = 0;  // The value that the owner has written.
  // What the owner has declared.
  uint32_t filled = 0;
  bool finalized = false;
};

struct SimSession {
  bool open = false;
  // The session is over, and its blocks are being freed.
  bool ending = false;
  // While it ends: its tails are not published, and the releases of its blocks are deferred.
  bool drops_tails = false;
  bool deferred_below = false;
  bool in_table() const { return open || ending; }
  SessionRef ref;
  TenantId tenant;
  absl::Duration lease;
  absl::Time deadline;
  uint32_t streams = 0;
  bool writes = false;  // It has mapped the pools for writing.
  bool counts_steps = false;
  StepRange steps;
  std::optional<StepRange> batch_steps;  // The steps of its latest batch.
  std::array<SimSequence, kSequencesPerSession> sequences;
  std::vector<SimRaw> raw;
};

// A block of a window that has a holder.
struct HeldBlock {
  uint32_t window = 0;
  BlockId id;
  friend bool operator==(const HeldBlock&, const HeldBlock&) = default;
};

struct SimPin {
  PinId id;
  TenantId tenant;
  uint32_t tokens = 0;
  absl::Time expires;
  std::vector<HeldBlock> blocks;
};

// A block released in a step that is not completed. The session's kernels can still read it, and
// write the tokens that they had not computed.
struct SimDeferredRelease {
  SessionId session;
  TenantId tenant;
  uint64_t step = 0;
  HeldBlock block;
  SlotRef slot;
  uint32_t count = 0;  // Values that must not change.
  // Values in [writable_begin, writable_end) may still be written.
  uint32_t writable_begin = 0, writable_end = 0;
  std::array<Value, kMaxTokensPerBlock> values;
};

// A session whose lease ran out and that could still write: its deferred releases go on. Session 0
// stands for an earlier run of the daemon.
struct SimQuarantine {
  SessionRef ref;
  uint32_t blocks = 0;
};

inline void SimSequence::Name(uint32_t from) {
  values.resize(tokens());
  Value value = from == 0 ? RootValue(content.name_space) : values[from - 1];
  for (uint32_t i = from; i < tokens(); ++i) value = values[i] = Extend(value, content.key(i));
}

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_CLIENT_H_
