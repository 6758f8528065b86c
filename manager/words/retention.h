// How long cached blocks are worth keeping: a sequence's wishes, and the clocks that end them.
#ifndef PAGODA_MANAGER_WORDS_RETENTION_H_
#define PAGODA_MANAGER_WORDS_RETENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

inline constexpr uint8_t kMaxPriority = 100;

// How a cached block is kept. The duration starts each time the block's last holder releases it.
// When it is over, the priority is kDefaultPriority again.
struct BlockRetention {
  Priority priority = kDefaultPriority;
  absl::Duration duration = absl::InfiniteDuration();
  friend bool operator==(const BlockRetention&, const BlockRetention&) = default;
};

// Whether `wish` never keeps a block at a lower priority than `had` does. The wish must be at least
// the default priority, to which both fall, and at least that of `had`. If `had` is above the
// default, the wish must also last as long.
bool KeepsAtLeast(const BlockRetention& wish, const BlockRetention& had);

// The blocks whose first token is in [token_start, token_end).
struct RetentionRange {
  uint32_t token_start = 0;
  std::optional<uint32_t> token_end;  // None: to the end. Allowed for the last range only.
  BlockRetention retention;
};

// A sequence's wishes for its blocks. `ranges` are for the prompt, `generated` for blocks whose
// first token lies after it.
struct SequenceRetention {
  std::vector<RetentionRange> ranges;
  std::optional<BlockRetention> generated;
  bool empty() const { return ranges.empty() && !generated.has_value(); }
};

// INVALID_ARGUMENT unless the ranges are in order, not empty, do not overlap, only the last is
// open, every priority is at most kMaxPriority and every duration is positive.
absl::Status CheckRetention(const SequenceRetention& retention);

// The retention of the block whose first token is `first_token`, in a sequence with `prompt_tokens`
// prompt tokens; none if `retention` does not name it.
std::optional<BlockRetention> RetentionOf(const SequenceRetention& retention,
                                          uint32_t prompt_tokens, uint32_t first_token);

// The blocks of one window whose priority ends. Thread-compatible. Only blocks with a finite
// duration take memory here. Every call is O(log of their number).
class ExpiryQueue {
 public:
  // Sets the block's duration; infinite: none. A running clock stops.
  void SetDuration(BlockId id, absl::Duration duration);
  bool has_duration(BlockId id) const { return durations_.contains(id); }
  // InfiniteDuration if the block has none.
  absl::Duration duration(BlockId id) const;
  // Starts the block's clock, if it has a duration.
  void Start(BlockId id, absl::Time now);
  // Stops the block's clock. The duration stays.
  void Stop(BlockId id);
  // Removes the block's duration.
  void Forget(BlockId id);

  // Takes the blocks whose time is over by `now`, at most `limit`, the earliest first (then by id).
  // They have no duration afterwards.
  std::vector<BlockId> TakeExpired(absl::Time now,
                                   size_t limit = std::numeric_limits<size_t>::max());
  bool empty() const { return durations_.empty(); }
  // When the next clock ends; InfiniteFuture if none runs.
  absl::Time next() const;

 private:
  struct Timer {
    absl::Duration duration;
    absl::Time deadline = absl::InfiniteFuture();  // Infinite: the clock is stopped.
  };

  absl::flat_hash_map<BlockId, Timer> durations_;
  absl::btree_set<std::pair<absl::Time, BlockId>> running_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_RETENTION_H_
