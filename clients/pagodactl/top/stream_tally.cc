#include "clients/pagodactl/top/stream_tally.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pagoda {
namespace {

absl::Status Misfit(absl::string_view what, uint32_t block_id) {
  return absl::DataLossError(
      absl::StrCat("an event does not fit the earlier events: block ", block_id, " is ", what));
}

}  // namespace

void StreamTally::BeginStream(v1::CacheInfo cache) {
  cache_ = std::move(cache);
  position_.emplace(StreamPosition::Start{.snapshot = true});
  figures_.whole = false;
}

absl::Status StreamTally::Apply(const v1::WatchResponse& message) {
  if (!position_.has_value()) BeginStream();
  if (absl::Status status = position_->Advance(message); !status.ok()) return status;
  if (message.snapshot_begin()) {
    figures_ = StreamFigures{.snapshots = figures_.snapshots};
    blocks_.clear();
  }
  figures_.epoch = message.epoch();
  for (const v1::Event& event : message.events()) {
    if (absl::Status status = ApplyEvent(event); !status.ok()) return status;
  }
  if (figures_.whole) Remember(message);
  figures_.revision = message.revision();
  if (message.snapshot_end()) EndSnapshot(message.revision());
  return absl::OkStatus();
}

// Resets the counters: they saw only a part of the events that happened during the snapshot.
void StreamTally::EndSnapshot(uint64_t revision) {
  for (auto& [size, window] : figures_.windows) {
    window = WindowFigures{.reusable = std::move(window.reusable)};
  }
  figures_.events = {};
  figures_.whole = true;
  figures_.snapshot_revision = revision;
  ++figures_.snapshots;
}

void StreamTally::Remember(const v1::WatchResponse& message) {
  const int first = std::max(message.events_size() - static_cast<int>(kRecentEvents), 0);
  for (int i = first; i < message.events_size(); ++i) {
    figures_.recent.push_back(Summarize(message.events(i), cache_));
    if (figures_.recent.size() > kRecentEvents) figures_.recent.pop_front();
  }
}

absl::Status StreamTally::ApplyEvent(const v1::Event& event) {
  WindowFigures& window = figures_.windows[event.window_size()];
  Blocks& blocks = blocks_[event.window_size()];
  switch (event.event_case()) {
    case v1::Event::kCreated:
      ++figures_.events.created;
      window.handed_out += event.created().block_ids_size();
      return absl::OkStatus();
    case v1::Event::kStored:
      ++figures_.events.stored;
      return ApplyStored(event.stored(), window, blocks);
    case v1::Event::kUpdated:
      ++figures_.events.updated;
      return ApplyUpdated(event.updated(), window, blocks);
    case v1::Event::kRemoved:
      ++figures_.events.removed;
      return ApplyRemoved(event.removed(), window, blocks);
    case v1::Event::EVENT_NOT_SET:
      break;
  }
  return absl::DataLossError(
      "an event of an unknown type: this pagodactl is older than the daemon");
}

absl::Status StreamTally::ApplyStored(const v1::StoredEvent& event, WindowFigures& window,
                                      Blocks& blocks) {
  for (const v1::StoredBlock& block : event.blocks()) {
    if (!blocks.try_emplace(block.block_id(), block.tier()).second) {
      return Misfit("stored twice", block.block_id());
    }
    ++window.reusable[block.tier()];
    ++window.stored;
  }
  return absl::OkStatus();
}

absl::Status StreamTally::ApplyUpdated(const v1::UpdatedEvent& event, WindowFigures& window,
                                       Blocks& blocks) {
  const auto found = blocks.find(event.block_id());
  if (found == blocks.end()) return Misfit("updated but not cached", event.block_id());
  if (event.has_priority()) ++window.reprioritized;
  if (!event.has_tier()) return absl::OkStatus();
  v1::Tier& tier = found->second;
  if (tier != event.tier().old_value()) {
    return Misfit("moved from a tier where it was not", event.block_id());
  }
  tier = event.tier().new_value();
  --window.reusable[event.tier().old_value()];
  ++window.reusable[tier];
  ++(tier > event.tier().old_value() ? window.offloaded : window.onboarded);
  return absl::OkStatus();
}

absl::Status StreamTally::ApplyRemoved(const v1::RemovedEvent& event, WindowFigures& window,
                                       Blocks& blocks) {
  if (event.scope() == v1::REMOVAL_SCOPE_POOLS) {
    blocks.clear();
    window.reusable.clear();
    return absl::OkStatus();
  }
  uint64_t& removed = window.removed[event.reason()];
  if (event.scope() == v1::REMOVAL_SCOPE_WINDOW) {
    removed += blocks.size();
    blocks.clear();
    window.reusable.clear();
    return absl::OkStatus();
  }
  removed += event.block_ids_size();
  if (event.reason() == v1::REMOVAL_REASON_RELEASED) return absl::OkStatus();  // Never cached.
  for (const uint32_t id : event.block_ids()) {
    const auto found = blocks.find(id);
    if (found == blocks.end()) return Misfit("removed but not cached", id);
    --window.reusable[found->second];
    blocks.erase(found);
  }
  return absl::OkStatus();
}

}  // namespace pagoda
