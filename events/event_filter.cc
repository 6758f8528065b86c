#include "events/event_filter.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "events/hash_projection.h"

namespace pagoda {
namespace {

using Keep = absl::FunctionRef<bool(BlockId, TierSet)>;
using ShowEvent = absl::FunctionRef<void(const Event&)>;

template <class T>
Event Like(const Event& event, T what) {
  return {.revision = event.revision,
          .time = event.time,
          .window = event.window,
          .tenant = event.tenant,
          .what = std::move(what)};
}

void ForEachStoredPart(const Event& event, const StoredEvent& stored, Keep keep, ShowEvent show) {
  std::optional<StoredEvent> part;
  const auto end_part = [&] {
    if (part.has_value()) show(Like(event, *std::exchange(part, std::nullopt)));
  };
  BlockId parent = stored.parent;
  std::optional<BlockHash> parent_hash = stored.parent_hash;
  uint32_t end_token = stored.first_token;
  size_t token = 0;
  for (const StoredBlock& block : stored.blocks) {
    const size_t begin = std::exchange(token, token + stored.EntriesOf(block));
    const uint32_t first_token = std::exchange(end_token, end_token + block.token_count);
    if (keep(block.id, block.tiers())) {
      if (!part.has_value()) {
        part.emplace();
        part->parent = parent;
        part->parent_hash = parent_hash;
        part->first_token = first_token;
        part->name_space = stored.name_space;
        part->content_hidden = stored.content_hidden;
      }
      part->blocks.push_back(block);
      if (stored.content_hidden) {
        parent = block.id;
        parent_hash = block.hash;
        continue;
      }
      part->tokens.insert(part->tokens.end(), stored.tokens.begin() + begin,
                          stored.tokens.begin() + token);
      if (!stored.extras.empty()) {
        part->extras.insert(part->extras.end(), stored.extras.begin() + begin,
                            stored.extras.begin() + token);
      }
    } else {
      end_part();
    }
    parent = block.id;
    parent_hash = block.hash;
  }
  end_part();
}

struct PartShower {
  const Event& event;
  Keep keep;
  ShowEvent show;

  void operator()(const CreatedEvent& created) const {
    CreatedEvent part = created;
    std::erase_if(part.blocks, [this](BlockId id) { return !keep(id, TierSet()); });
    if (!part.blocks.empty() || !part.blocks_per_tier.empty()) show(Like(event, std::move(part)));
  }
  void operator()(const StoredEvent& stored) const {
    const bool all =
        std::all_of(stored.blocks.begin(), stored.blocks.end(),
                    [this](const auto& block) { return keep(block.id, block.tiers()); });
    if (all) {
      show(event);
    } else if (stored.hashes_only) {
      ShowHashes(stored);
    } else {
      ForEachStoredPart(event, stored, keep, show);
    }
  }
  void operator()(const UpdatedEvent& updated) const {
    if (keep(updated.id, TierSet())) show(event);
  }
  void operator()(const RemovedEvent& removed) const {
    if (removed.scope != RemovedEvent::Scope::kBlocks) return show(event);
    RemovedEvent part{.reason = removed.reason};
    for (size_t i = 0; i < removed.blocks.size(); ++i) {
      if (!keep(removed.blocks[i], TierSet())) continue;
      part.blocks.push_back(removed.blocks[i]);
      if (!removed.hashes.empty()) part.hashes.push_back(removed.hashes[i]);
      if (!removed.end_tokens.empty()) part.end_tokens.push_back(removed.end_tokens[i]);
    }
    if (part.blocks.size() == removed.blocks.size()) return show(event);
    if (!part.blocks.empty()) show(Like(event, std::move(part)));
  }

  void ShowHashes(const StoredEvent& stored) const {
    StoredEvent part = stored;
    std::erase_if(part.blocks,
                  [this](const auto& block) { return !keep(block.id, block.tiers()); });
    if (!part.blocks.empty()) show(Like(event, std::move(part)));
  }
};

Event HideContent(const Event& event, const StoredEvent& stored) {
  StoredEvent hidden{.parent_hash = stored.parent_hash,
                     .parent = stored.parent,
                     .first_token = stored.first_token,
                     .name_space = {},
                     .blocks = stored.blocks,
                     .tokens = {},
                     .extras = {},
                     .content_hidden = true};
  NamespaceKey name_space = *stored.name_space;
  name_space.cache_salt.clear();
  hidden.name_space = SharedNamespace(name_space);
  return Like(event, std::move(hidden));
}

bool HasBit(uint8_t mask, size_t bit) { return (mask >> bit & 1) != 0; }

// The tiers in which a copy of the block came or went.
TierSet ChangedTiers(const UpdatedEvent& updated) {
  TierSet changed;
  if (updated.lower.has_value()) {
    changed = TierSet::FromBits(updated.lower->old_value.bits() ^ updated.lower->new_value.bits());
  }
  if (updated.tier.has_value()) {
    changed.Add(updated.tier->old_value);
    changed.Add(updated.tier->new_value);
  }
  return changed;
}

}  // namespace

void ForEachPart(const Event& event, Keep keep, ShowEvent show) {
  std::visit(PartShower{event, keep, show}, event.what);
}

void EventFilter::Apply(const Event& event, ShowEvent show) const {
  if (!HasBit(types, event.what.index())) return;
  if (!windows.empty() && !std::binary_search(windows.begin(), windows.end(), event.window)) {
    return;
  }
  const auto* removed = std::get_if<RemovedEvent>(&event.what);
  const auto* created = std::get_if<CreatedEvent>(&event.what);
  const bool everybodys = (removed != nullptr && removed->scope != RemovedEvent::Scope::kBlocks) ||
                          (created != nullptr && !created->blocks_per_tier.empty());
  const auto* updated = std::get_if<UpdatedEvent>(&event.what);
  if (tenant.has_value() && !everybodys && event.tenant != *tenant) {
    if (!default_tenant || event.tenant != kDefaultTenant) return;
    if (updated != nullptr && updated->ended_pin.has_value()) return;
    const auto* stored = std::get_if<StoredEvent>(&event.what);
    if (stored != nullptr && chunk_tokens == 0 && !stored->name_space->cache_salt.empty()) {
      return ShowInTiers(HideContent(event, *stored), show);
    }
  }
  if (chunk_tokens == 0) return ShowInTiers(event, show);
  const std::optional<Event> hashes = ProjectOntoHashes(event, chunk_tokens);
  if (hashes.has_value()) ShowInTiers(*hashes, show);
}

void EventFilter::ShowInTiers(const Event& event, ShowEvent show) const {
  if (tiers == kAll) return show(event);
  if (const auto* updated = std::get_if<UpdatedEvent>(&event.what); updated != nullptr) {
    // A priority changes in every tier.
    const bool of_any_tier = updated->priority.has_value() ||
                             (!updated->tier.has_value() && !updated->lower.has_value());
    if (of_any_tier || (ChangedTiers(*updated).bits() & tiers) != 0) show(event);
    return;
  }
  const auto* created = std::get_if<CreatedEvent>(&event.what);
  if (created != nullptr && !created->blocks_per_tier.empty()) {
    CreatedEvent part = *created;
    for (size_t tier = 0; tier < part.blocks_per_tier.size(); ++tier) {
      if (!HasBit(tiers, tier)) part.blocks_per_tier[tier] = 0;
    }
    return show(Like(event, std::move(part)));
  }
  ForEachPart(
      event,
      [this](BlockId, TierSet block) { return block.empty() || (block.bits() & tiers) != 0; },
      show);
}

}  // namespace pagoda
