#include "tests/sim/record/late_joiner.h"

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

void LateJoiner::See(const EventBatch& events) {
  for (const Event& event : events) {
    if (state_ == State::kFollowing) Apply(event);
    if (state_ == State::kReading) {
      ForEachPassed(event, position_, [this](const Event& part) { Apply(part); });
    }
  }
}

void LateJoiner::Act(const BlockManager& core, Random& random, absl::Time now) {
  switch (state_) {
    case State::kAway:
      if (!random.OneIn(8)) return;
      tree_ = {};
      tree_.BeginSnapshot();
      allocations_.BeginSnapshot();
      hashes_.emplace(*config_, chunk_blocks_);
      position_ = {};
      state_ = State::kReading;
      return;
    case State::kReading: {
      if (random.OneIn(3)) return;
      const SnapshotPiece piece =
          core.ReadSnapshot(position_, 1 + random.Below(12), 1 + random.Below(200), now);
      SIM_CHECK(piece.revision == core.revision(), "a piece is of now");
      for (const Event& event : piece.events) {
        SIM_CHECK(event.revision.value() == 0, "what a piece tells is no event of its own");
        Apply(event);
      }
      position_ = piece.end;
      if (!position_.done) return;
      const absl::Status status = tree_.EndSnapshot(piece.revision);
      SIM_CHECK(status.ok(), "a snapshot: ", status.ToString());
      ++snapshots_;
      state_ = State::kFollowing;
      return Compare(core);
    }
    case State::kFollowing:
      if (random.OneIn(4)) Compare(core);
      if (random.OneIn(16)) state_ = State::kAway;
      return;
  }
}

void LateJoiner::Apply(const Event& event) {
  hashes_->See(event);
  absl::Status status = tree_.Apply(event);
  status.Update(allocations_.Apply(event));
  SIM_CHECK(status.ok(), "for who comes late: ", status.ToString());
}

void LateJoiner::Compare(const BlockManager& core) const {
  for (const CacheInfo::Window& window : core.info().windows) {
    const absl::Status status = tree_.Compare(window.window, core.DumpTree(window.window));
    SIM_CHECK(status.ok(), "who came late has another tree: ", status.ToString());
    SIM_CHECK(lifecycle_ != LifecycleEvents::kAll ||
                  allocations_.Dump(window.window) == core.DumpAllocated(window.window),
              "who came late has other blocks taken, in window ", WindowName(window.window));
  }
}

}  // namespace pagoda::sim
