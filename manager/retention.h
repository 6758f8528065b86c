// How long cached blocks are worth keeping: a sequence's wishes, and the clock that ends them.
#ifndef PAGODA_MANAGER_RETENTION_H_
#define PAGODA_MANAGER_RETENTION_H_

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

// What a cached block is kept at. The duration starts when the block's last holder lets go, anew
// each time, and when it is over the priority is kDefaultPriority again.
struct BlockRetention {
  Priority priority = kDefaultPriority;
  absl::Duration duration = absl::InfiniteDuration();
  friend bool operator==(const BlockRetention&, const BlockRetention&) = default;
};

// Whether a block that is kept as `had` is at no time kept lower as `wish`: the wish is no lower
// than the default, which both fall to, nor than `had`, and it lasts as long where `had` is above
// the default.
bool KeepsAtLeast(const BlockRetention& wish, const BlockRetention& had);

// The blocks whose first token is in [token_start, token_end).
struct RetentionRange {
  uint32_t token_start = 0;
  std::optional<uint32_t> token_end;  // None: to the end; only the last range may.
  BlockRetention retention;
};

// What a sequence wishes for its blocks. `ranges` are for the prompt, `generated` for blocks whose
// first token lies behind it.
struct SequenceRetention {
  std::vector<RetentionRange> ranges;
  std::optional<BlockRetention> generated;
  bool empty() const { return ranges.empty() && !generated.has_value(); }
};

// INVALID_ARGUMENT unless the ranges are in order, not empty, do not overlap, only the last is
// open, every priority is at most kMaxPriority and every duration is positive.
absl::Status CheckRetention(const SequenceRetention& retention);

// What `retention` says of the block whose first token is `first_token`, in a sequence whose prompt
// has `prompt_tokens` tokens; none where it says nothing.
std::optional<BlockRetention> RetentionOf(const SequenceRetention& retention,
                                          uint32_t prompt_tokens, uint32_t first_token);

// The blocks of one window whose priority ends. Thread-compatible. Only blocks with a finite
// duration take memory here; every call is O(log of those).
class ExpiryQueue {
 public:
  // From now on the block has this duration; infinite: none. A running clock stops.
  void SetDuration(BlockId id, absl::Duration duration);
  bool has_duration(BlockId id) const { return durations_.contains(id); }
  // InfiniteDuration where the block has none.
  absl::Duration duration(BlockId id) const;
  // The block's clock starts, if it has a duration.
  void Start(BlockId id, absl::Time now);
  // It stops; the duration stays.
  void Stop(BlockId id);
  // The block has no duration any more.
  void Forget(BlockId id);

  // Takes the blocks whose time is over by `now`, the earliest first (by id where equal), at most
  // `limit`. They have no duration afterwards.
  std::vector<BlockId> TakeExpired(absl::Time now,
                                   size_t limit = std::numeric_limits<size_t>::max());
  bool empty() const { return durations_.empty(); }
  // When the next one is over; InfiniteFuture where no clock runs.
  absl::Time next() const;

 private:
  struct Timer {
    absl::Duration duration;
    absl::Time deadline = absl::InfiniteFuture();  // Infinite: the clock stands.
  };

  absl::flat_hash_map<BlockId, Timer> durations_;
  absl::btree_set<std::pair<absl::Time, BlockId>> running_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RETENTION_H_
