#include "manager/cache_lists.h"

#include <algorithm>

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

CacheLists::CacheLists(absl::Span<const TierSpec> tiers, const TenantTable& tenants,
                       const SequenceAccounts& accounts, const SessionTable& sessions,
                       const WindowSet& windows, const PrefixMatcher& matcher,
                       const RunningSequences& sequences, const EventRecorder& recorder)
    : tenants_(tenants),
      accounts_(accounts),
      sessions_(sessions),
      windows_(windows),
      matcher_(matcher),
      sequences_(sequences),
      recorder_(recorder) {
  for (size_t tier = 0; tier < tiers.size(); ++tier) {
    if (tiers[tier].medium == Medium::kHost) host_tiers_.Add(Tier(tier));
  }
}

std::vector<SessionRow> CacheLists::Sessions(SessionId from, size_t limit, absl::Time now) const {
  std::vector<SessionRow> rows;
  for (auto it = sessions_.From(from); it != sessions_.end() && rows.size() < limit; ++it) {
    rows.push_back(RowOf(it->first, it->second, now));
  }
  return rows;
}

std::vector<SequenceRow> CacheLists::Sequences(std::optional<SessionId> only, SequenceKey from,
                                               size_t limit) const {
  std::vector<SequenceRow> rows;
  for (auto it = sessions_.From(only.value_or(from.session)); it != sessions_.end(); ++it) {
    const auto& [id, session] = *it;
    if (rows.size() == limit || (only.has_value() && id != *only)) break;
    auto name = id == from.session ? session.sequences.lower_bound(from.sequence)
                                   : session.sequences.begin();
    for (; name != session.sequences.end() && rows.size() < limit; ++name) {
      const SequenceKey key{id, *name};
      rows.push_back(RowOf(key, session, sequences_.Get(key)));
    }
  }
  return rows;
}

std::vector<TenantUsage> CacheLists::TenantUses() const {
  std::vector<TenantUsage> list(tenants_.size());
  for (uint16_t i = 0; i < tenants_.size(); ++i) {
    const TenantId tenant{i};
    list[i].tenant = tenant;
    list[i].sequences = accounts_.sequences(tenant);
    list[i].max_sequences = accounts_.most_sequences(tenant);
    list[i].sequence_bytes = accounts_.bytes(tenant);
    list[i].max_sequence_bytes = accounts_.most_bytes(tenant);
    list[i].sessions = static_cast<uint32_t>(sessions_.size(tenant));
    for (const auto& window : windows_) window->AddUses(tenant, &list[i].uses);
  }
  return list;
}

absl::StatusOr<InspectedPrefix> CacheLists::InspectPrefix(const SequencePrompt& prompt) const {
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const PromptKey key = KeyOf(prompt, windows_.tokens_per_block());
  std::vector<PrefixMatcher::Match> matches = matcher_.FindPrefixes(prompt.name_space, key);
  InspectedPrefix prefix{.matched_tokens = matcher_.LengthOf(matches, key, key.size()),
                         .blocks = {}};
  const bool has_disk = std::any_of(windows_.begin(), windows_.end(),
                                    [](const auto& window) { return window->has_disk(); });
  if (has_disk) {
    matches = matcher_.FindPrefixes(prompt.name_space, key, PrefixMatcher::Reach::kAllTiers);
  }
  for (size_t w = 0; w < windows_.size(); ++w)
    windows_[w]->prefixes().Inspect(matches[w], &prefix.blocks);
  return prefix;
}

void CacheLists::SlotStates(uint32_t window_index, Tier tier, uint32_t from,
                            absl::Span<SlotState> states) const {
  windows_[window_index]->SlotStates(tier, from, states);
}

void CacheLists::TakePublishable(uint32_t max_prefixes, uint32_t max_blocks,
                                 std::vector<PublishablePrefix>* out) {
  windows_.back()->publishable().Take(max_prefixes, max_blocks, out);
}

PublishableBlocks CacheLists::publishable() const {
  return windows_.back()->publishable().counts();
}

uint32_t CacheLists::num_prefix_nodes() const { return windows_.back()->num_ids(); }

void CacheLists::PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const {
  windows_.back()->scans().PrefixNodes(from, nodes);
}

LocatedBlocks CacheLists::LocateBlocks(uint32_t window_index,
                                       absl::Span<const BlockId> blocks) const {
  const WindowBlockManager& window = *windows_[window_index];
  LocatedBlocks located{.revision = recorder_.last(), .blocks = {}};
  located.blocks.reserve(blocks.size());
  for (const BlockId id : blocks) located.blocks.push_back(window.scans().Locate(id, host_tiers_));
  return located;
}

std::optional<PrefixUse> CacheLists::DescribePrefix(const UsedPrefix& prefix) const {
  return windows_.back()->scans().Describe(prefix);
}

}  // namespace pagoda
