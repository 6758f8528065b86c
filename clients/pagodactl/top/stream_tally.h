// Figures of a cache, computed from its event stream, for `top`.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_TALLY_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_TALLY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "clients/pagodactl/events/event_text.h"
#include "clients/pagodactl/events/stream_position.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

// Figures of one window, in blocks. The counters start at the end of the snapshot.
struct WindowFigures {
  // Blocks in the cache now, held or not. A tier that never had any may be absent.
  std::map<v1::Tier, uint64_t> reusable;
  uint64_t stored = 0;
  uint64_t offloaded = 0;  // Moved to a lower tier, with or without a copy.
  uint64_t onboarded = 0;  // Moved to a nearer tier.
  uint64_t reprioritized = 0;
  uint64_t handed_out = 0;  // Only with the daemon's events.lifecycle.
  // RELEASED counts blocks that were handed out. Every other reason takes blocks out of the cache.
  // The removal of whole pools is not counted.
  std::map<v1::RemovalReason, uint64_t> removed;
};

// Events by type, from the end of the snapshot.
struct EventFigures {
  uint64_t created = 0;
  uint64_t stored = 0;
  uint64_t updated = 0;
  uint64_t removed = 0;

  uint64_t all() const { return created + stored + updated + removed; }
};

struct StreamFigures {
  // The snapshot is complete: the figures are those of `revision`. Before that, the reusable blocks
  // are the ones received so far.
  bool whole = false;
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t snapshot_revision = 0;  // The revision at which the counters start.
  uint64_t snapshots = 0;          // Complete snapshots, over all streams.
  EventFigures events;
  std::map<uint32_t, WindowFigures> windows;  // By size; 0: full attention.
  // The last events, oldest first, at most StreamTally::kRecentEvents.
  std::deque<EventSummary> recent;
};

// Processes the messages of Watch streams with snapshots, one stream after another. For each cached
// block it keeps only the nearest tier. That is enough to count, and to check that the events fit.
// A shadow tree (tests/events/shadow_tree.h) also keeps the tokens and checks the hashes.
// Thread-compatible.
class StreamTally {
 public:
  static constexpr size_t kRecentEvents = 16;

  // The next message is the first one of a new stream. The figures stay until its snapshot begins,
  // but `whole` becomes false. `cache` names the tiers of recent events: see Summarize.
  void BeginStream(v1::CacheInfo cache = {});

  // Errors: DATA_LOSS for a message that does not continue the stream (StreamPosition), and for an
  // event that does not fit: a block that is stored twice, or moved or removed from a tier that
  // does not have it. After an error the figures are invalid until the next snapshot.
  absl::Status Apply(const v1::WatchResponse& message);

  const StreamFigures& figures() const { return figures_; }

 private:
  using Blocks = absl::flat_hash_map<uint32_t, v1::Tier>;

  absl::Status ApplyEvent(const v1::Event& event);
  absl::Status ApplyStored(const v1::StoredEvent& event, WindowFigures& window, Blocks& blocks);
  absl::Status ApplyUpdated(const v1::UpdatedEvent& event, WindowFigures& window, Blocks& blocks);
  absl::Status ApplyRemoved(const v1::RemovedEvent& event, WindowFigures& window, Blocks& blocks);
  void EndSnapshot(uint64_t revision);
  void Remember(const v1::WatchResponse& message);

  std::optional<StreamPosition> position_;  // None before the first stream.
  v1::CacheInfo cache_;
  StreamFigures figures_;
  std::map<uint32_t, Blocks> blocks_;  // By window.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_STREAM_TALLY_H_
