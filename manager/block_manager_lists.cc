// The part of BlockManager that operators read: bounded pages of its content.
#include <algorithm>

#include "manager/block_manager_parts.h"

namespace pagoda {
namespace {

SessionRow RowOf(SessionId id, const Session& session, absl::Time now) {
  SessionRow row{.session = id,
                 .client_name = session.client_name,
                 .tenant = session.tenant,
                 .opened = session.opened,
                 .lease = session.lease,
                 .lease_left = std::nullopt,
                 .streams = session.streams,
                 .sequences = session.sequences.size(),
                 .raw_blocks = session.raw_blocks,
                 .deferred_blocks = session.deferred.size(),
                 .step = session.step,
                 .completed_step = session.completed_step};
  if (session.streams == 0) {
    row.lease_left = std::max(absl::ZeroDuration(), session.deadline - now);
  }
  return row;
}

SequenceRow RowOf(SequenceKey key, const Session& session, const Sequence& sequence) {
  SequenceRow row{.session = key.session,
                  .sequence = key.sequence,
                  .client_name = session.client_name,
                  .tenant = sequence.tenant,
                  .token_count = sequence.token_count,
                  .computed_tokens = sequence.computed_tokens,
                  .reserved_tokens = sequence.reserved_tokens,
                  .matched_tokens = sequence.matched_tokens,
                  .blocks = 0,
                  .losses = sequence.losses};
  for (const SequenceBlocks& blocks : sequence.windows) {
    row.blocks += static_cast<uint32_t>(blocks.table.size()) - blocks.first;
  }
  return row;
}

}  // namespace

std::vector<SessionRow> BlockManager::Sessions(SessionId from, size_t limit, absl::Time now) const {
  std::vector<SessionRow> rows;
  for (auto it = parts().sessions.From(from); it != parts().sessions.end() && rows.size() < limit;
       ++it) {
    rows.push_back(RowOf(it->first, it->second, now));
  }
  return rows;
}

std::vector<SequenceRow> BlockManager::Sequences(std::optional<SessionId> only, SequenceKey from,
                                                 size_t limit) const {
  std::vector<SequenceRow> rows;
  for (auto it = parts().sessions.From(only.value_or(from.session)); it != parts().sessions.end();
       ++it) {
    const auto& [id, session] = *it;
    if (rows.size() == limit || (only.has_value() && id != *only)) break;
    auto name = id == from.session ? session.sequences.lower_bound(from.sequence)
                                   : session.sequences.begin();
    for (; name != session.sequences.end() && rows.size() < limit; ++name) {
      const SequenceKey key{id, *name};
      rows.push_back(RowOf(key, session, parts().sequences.Get(key)));
    }
  }
  return rows;
}

absl::StatusOr<InspectedPrefix> BlockManager::InspectPrefix(const Prompt& prompt) const {
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const PrefixMatcher& matcher = parts().matcher;
  const PromptKey key = KeyOf(prompt, parts().windows.tokens_per_block());
  std::vector<PrefixMatcher::Match> matches = matcher.FindPrefixes(prompt.name_space, key);
  InspectedPrefix prefix{.matched_tokens = matcher.LengthOf(matches, key, key.size()),
                         .blocks = {}};
  const bool has_disk = std::any_of(parts().windows.begin(), parts().windows.end(),
                                    [](const auto& window) { return window->has_disk(); });
  if (has_disk) {
    matches = matcher.FindPrefixes(prompt.name_space, key, PrefixMatcher::Reach::kAllTiers);
  }
  for (size_t w = 0; w < parts().windows.size(); ++w)
    parts().windows[w]->prefixes().Inspect(matches[w], &prefix.blocks);
  return prefix;
}

void BlockManager::SlotStates(uint32_t window_index, Tier tier, uint32_t from,
                              absl::Span<SlotState> states) const {
  parts().windows[window_index]->SlotStates(tier, from, states);
}

void BlockManager::TakePublishable(uint32_t max_prefixes, uint32_t max_blocks,
                                   std::vector<PublishablePrefix>* out) {
  parts().windows.back()->publishable().Take(max_prefixes, max_blocks, out);
}

PublishableBlocks BlockManager::publishable() const {
  return parts().windows.back()->publishable().counts();
}

uint32_t BlockManager::num_prefix_nodes() const { return parts().windows.back()->num_ids(); }

void BlockManager::PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const {
  parts().windows.back()->scans().PrefixNodes(from, nodes);
}

LocatedBlocks BlockManager::LocateBlocks(uint32_t window_index,
                                         absl::Span<const BlockId> blocks) const {
  TierSet host;
  for (size_t tier = 0; tier < info_.tiers.size(); ++tier) {
    if (info_.tiers[tier].medium == Medium::kHost) host.Add(static_cast<Tier>(tier));
  }
  const WindowBlockManager& window = *parts().windows[window_index];
  LocatedBlocks located{.revision = revision(), .blocks = {}};
  located.blocks.reserve(blocks.size());
  for (const BlockId id : blocks) located.blocks.push_back(window.scans().Locate(id, host));
  return located;
}

std::optional<PrefixUse> BlockManager::DescribePrefix(const UsedPrefix& prefix) const {
  return parts().windows.back()->scans().Describe(prefix);
}

}  // namespace pagoda
