#include "tests/events/hash_mirror.h"

#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

absl::Status Misfit(std::string_view what, BlockHash hash = {}) {
  return absl::FailedPreconditionError(
      absl::StrCat("the hash ", absl::Hex(hash.value()), ": ", std::string(what)));
}

}  // namespace

absl::Status HashMirror::Apply(const Event& event) {
  Entries& entries = windows_[event.window];
  return std::visit([&](const auto& what) { return ApplyTo(entries, what); }, event.what);
}

absl::Status HashMirror::ApplyTo(Entries&, const CreatedEvent& created) {
  if (created.blocks_per_tier.empty() || !created.blocks.empty()) {
    return Misfit("a Created part is about capacities");
  }
  return absl::OkStatus();
}

absl::Status HashMirror::ApplyTo(Entries& entries, const StoredEvent& stored) {
  const bool bare = stored.hashes_only && !stored.parent_hash.has_value() &&
                    stored.parent == kNoBlock && stored.name_space == SharedNamespace() &&
                    stored.tokens.empty() && stored.extras.empty() && !stored.content_hidden;
  if (!bare || stored.blocks.empty()) return Misfit("a Stored part has blocks and nothing else");
  for (const StoredBlock& block : stored.blocks) {
    if (block.id != kNoBlock || block.token_count != 0 || block.priority != Priority{0}) {
      return Misfit("is stored with more than its tiers", block.hash);
    }
    const Entry entry{.hash = block.hash, .tier = block.tier, .lower = block.lower};
    if (!entries.try_emplace(block.hash, entry).second) return Misfit("stored twice", block.hash);
  }
  return absl::OkStatus();
}

absl::Status HashMirror::ApplyTo(Entries& entries, const UpdatedEvent& updated) {
  if (updated.id != kNoBlock || updated.priority.has_value() || updated.ended_pin.has_value() ||
      (!updated.tier.has_value() && !updated.lower.has_value())) {
    return Misfit("an Updated part is about tiers alone", updated.hash);
  }
  const auto found = entries.find(updated.hash);
  if (found == entries.end()) return Misfit("changed but not stored", updated.hash);
  Entry& entry = found->second;
  if ((updated.tier.has_value() && updated.tier->old_value != entry.tier) ||
      (updated.lower.has_value() && updated.lower->old_value != entry.lower)) {
    return Misfit("changed from other tiers than it has", updated.hash);
  }
  if (updated.tier.has_value()) entry.tier = updated.tier->new_value;
  if (updated.lower.has_value()) entry.lower = updated.lower->new_value;
  return absl::OkStatus();
}

absl::Status HashMirror::ApplyTo(Entries& entries, const RemovedEvent& removed) {
  const bool listed = removed.scope == RemovedEvent::Scope::kBlocks;
  if (!removed.blocks.empty() || removed.hashes.empty() == listed) {
    return Misfit("a Removed part has hashes or a scope");
  }
  if (!listed) entries.clear();
  for (const BlockHash hash : removed.hashes) {
    if (entries.erase(hash) == 0) return Misfit("removed but not stored", hash);
  }
  return absl::OkStatus();
}

absl::Status HashMirror::Compare(WindowSize window, absl::Span<const Entry> expected) const {
  static const Entries& none = *new Entries;
  const auto found = windows_.find(window);
  const Entries& entries = found == windows_.end() ? none : found->second;
  for (const Entry& entry : expected) {
    const auto there = entries.find(entry.hash);
    if (there == entries.end()) return Misfit("cached, but not in the mirror", entry.hash);
    if (there->second != entry) return Misfit("in other tiers than in the mirror", entry.hash);
  }
  if (entries.size() == expected.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the mirror of window ", WindowName(window),
                                                    " has ", entries.size(), " hashes instead of ",
                                                    expected.size()));
}

}  // namespace pagoda
