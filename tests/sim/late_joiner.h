// A subscriber that comes when there is something already.
#ifndef PAGODA_TESTS_SIM_LATE_JOINER_H_
#define PAGODA_TESTS_SIM_LATE_JOINER_H_

#include <cstdint>

#include "events/event_batch.h"
#include "events/shadow_allocations.h"
#include "events/shadow_tree.h"
#include "events/snapshot.h"
#include "manager/block_manager.h"
#include "tests/sim/random.h"

namespace pagoda::sim {

// Reads snapshots piece by piece while the world goes on, and holds what it has in the end, and for
// a while after, against the core: the trees, and which blocks are taken where it is told of all.
class LateJoiner {
 public:
  explicit LateJoiner(LifecycleEvents lifecycle = LifecycleEvents::kRaw) : lifecycle_(lifecycle) {}

  // The core has recorded these, in order. Between two pieces of a snapshot any number of calls
  // comes.
  void See(const EventBatch& events);
  // Reads a piece, begins or ends, or does nothing. After See of all events so far.
  void Act(const BlockManager& core, Random& random, absl::Time now);

  uint64_t snapshots() const { return snapshots_; }

 private:
  void Apply(const Event& event);
  void Compare(const BlockManager& core) const;

  enum class State : uint8_t { kAway, kReading, kFollowing };
  State state_ = State::kAway;
  SnapshotPosition position_;
  ShadowTree tree_;
  ShadowAllocations allocations_;
  LifecycleEvents lifecycle_;
  uint64_t snapshots_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_LATE_JOINER_H_
