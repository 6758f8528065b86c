#include "tests/events/shadow_allocations.h"

#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

absl::Status Misfit(std::string_view what, BlockId id) {
  return absl::FailedPreconditionError(absl::StrCat(std::string(what), ": block ", id.value()));
}

}  // namespace

absl::Status ShadowAllocations::Apply(const Event& event) {
  Window& window = windows_[event.window];
  if (const auto* created = std::get_if<CreatedEvent>(&event.what)) {
    return ApplyCreated(window, *created);
  }
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    return ApplyStored(window, *stored);
  }
  if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    return ApplyRemoved(window, *removed);
  }
  return absl::OkStatus();  // Updated takes no block and frees none.
}

absl::Status ShadowAllocations::ApplyCreated(Window& window, const CreatedEvent& created) {
  for (const BlockId id : created.blocks) {
    if (window.cached.contains(id)) return Misfit("taken while it is cached", id);
    if (!window.taken.insert(id).second) return Misfit("taken twice", id);
  }
  return absl::OkStatus();
}

// A stored block need not have been taken: another block's bytes can fill a hole, an earlier run
// can have left the block, or the stream reports raw blocks only.
absl::Status ShadowAllocations::ApplyStored(Window& window, const StoredEvent& stored) {
  for (const StoredBlock& block : stored.blocks) {
    if (!window.cached.insert(block.id).second) return Misfit("stored twice", block.id);
    window.taken.erase(block.id);
  }
  return absl::OkStatus();
}

absl::Status ShadowAllocations::ApplyRemoved(Window& window, const RemovedEvent& removed) {
  switch (removed.scope) {
    case RemovedEvent::Scope::kPools:
      window = {};
      return absl::OkStatus();
    case RemovedEvent::Scope::kWindow:
      window.cached.clear();
      return absl::OkStatus();
    case RemovedEvent::Scope::kBlocks:
      break;
  }
  const bool released = removed.reason == RemovalReason::kReleased;
  for (const BlockId id : removed.blocks) {
    if (released && window.taken.erase(id) == 0) return Misfit("released and not taken", id);
    if (!released && window.cached.erase(id) == 0) return Misfit("removed and not cached", id);
  }
  return absl::OkStatus();
}

std::vector<BlockId> ShadowAllocations::Dump(WindowSize window) const {
  const auto found = windows_.find(window);
  if (found == windows_.end()) return {};
  return {found->second.taken.begin(), found->second.taken.end()};
}

}  // namespace pagoda
