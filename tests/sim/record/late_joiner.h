// A subscriber that starts when the cache already has content.
#ifndef PAGODA_TESTS_SIM_RECORD_LATE_JOINER_H_
#define PAGODA_TESTS_SIM_RECORD_LATE_JOINER_H_

#include <cstdint>
#include <optional>

#include "events/event_batch.h"
#include "events/snapshot.h"
#include "manager/block_manager.h"
#include "tests/events/shadow_allocations.h"
#include "tests/events/shadow_tree.h"
#include "tests/sim/record/hash_reader.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {

// Reads snapshots in chunks while the world continues. At the end, and for a while after, compares
// its state with the core: the trees, and the taken blocks if events report all of them.
class LateJoiner {
 public:
  // It also reads each snapshot's projection onto hashes, by chunks of `chunk_blocks` blocks.
  LateJoiner(const SimConfig* config, uint32_t chunk_blocks)
      : config_(config), lifecycle_(config->lifecycle), chunk_blocks_(chunk_blocks) {}

  // Events that the core has recorded, in order. Any number of calls can come between two chunks of
  // a snapshot.
  void See(const EventBatch& events);
  // Reads a chunk, begins, ends, or does nothing. REQUIRES: See of all events so far.
  void Act(const BlockManager& core, Random& random, absl::Time now);

  uint64_t snapshots() const { return snapshots_; }
  // Its reader of hashes once a snapshot is complete, while it follows; else null.
  const HashReader* hashes() const { return state_ == State::kFollowing ? &*hashes_ : nullptr; }

 private:
  void Apply(const Event& event);
  void Compare(const BlockManager& core) const;

  enum class State : uint8_t { kAway, kReading, kFollowing };
  State state_ = State::kAway;
  SnapshotPosition position_;
  ShadowTree tree_;
  ShadowAllocations allocations_;
  const SimConfig* config_;
  LifecycleEvents lifecycle_;
  uint32_t chunk_blocks_;
  std::optional<HashReader> hashes_;
  uint64_t snapshots_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_LATE_JOINER_H_
