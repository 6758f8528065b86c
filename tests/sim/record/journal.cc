#include "tests/sim/record/journal.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

Journal::Journal(const SimConfig* config) : config_(config) {
  for (size_t w = 0; w < config->windows.size(); ++w) {
    for (const Tier tier : kTiers) {
      if (config->IsOnDisk(tier)) continue;  // The file itself says what it holds.
      entries_[w][tier.value()].resize(config->slots_in(static_cast<uint32_t>(w), tier));
    }
  }
}

void Journal::Apply(const std::vector<SlotChange>& changes) {
  for (const SlotChange& change : changes) {
    std::optional<Entry>& entry =
        entries_[change.window_index][change.slot.tier.value()][change.slot.slot.value()];
    entry.reset();
    if (!change.content.has_value()) continue;
    entry = Entry{.content = *change.content, .ready = change.ready, .keys = {}};
    const SlotContent& content = entry->content;
    SIM_CHECK(content.extras.empty() || content.extras.size() == content.tokens.size(),
              "the journal has extras for some tokens only");
    const std::vector<TokenId> tokens = TokensOf(content.key(), config_->tokens_per_block);
    for (size_t i = 0; i < tokens.size(); ++i) {
      entry->keys.push_back(content.extras.empty() ? KeyOf(tokens[i])
                                                   : KeyOf(tokens[i], content.extras[i]));
    }
  }
}

void Journal::Check(uint32_t window, const Shadow& shadow, const Ledger& ledger,
                    bool resetting) const {
  for (const Tier tier : kTiers) {
    const Entries& entries = At(window, tier);
    for (uint32_t s = 0; s < entries.size(); ++s) {
      const uint32_t id = ledger.owner({tier, SlotIndex{s}});
      // The journal has only the nearest slot of a block.
      const bool cached =
          id != kNone && shadow.node(id).cached() && !ledger.IsDuplicate(id, {tier, SlotIndex{s}});
      SIM_CHECK(entries[s].has_value() == cached || (resetting && !cached),
                "the journal of window ", WindowName(config_->windows[window].size),
                cached ? " lacks the content of " : " still has content for ",
                DefaultTierName(tier), " slot ", s);
      if (!cached) continue;
      const SlotContent& content = entries[s]->content;
      const Node& node = shadow.node(id);
      const bool same_parent =
          content.parent.id.value() == node.parent &&
          content.keyed == config_->keyed(node.name_space) &&
          (node.parent != kNone || content.name_space == config_->name_spaces[node.name_space]);
      SIM_CHECK(content.block.id.value() == id && same_parent &&
                    entries[s]->keys.size() == node.count &&
                    std::equal(entries[s]->keys.begin(), entries[s]->keys.end(), node.keys.begin()),
                "the journal has other content for ", DefaultTierName(tier), " slot ", s,
                " than block ", id);
    }
  }
}

RecoveredWindow Journal::Recover(uint32_t window, const Memory& memory) const {
  RecoveredWindow recovered{.window = config_->windows[window].size, .blocks = {}};
  struct Found {
    SlotRef slot;
    const Entry* entry;
  };
  std::map<std::pair<uint32_t, uint32_t>, Found> found;  // By block id and generation.
  const auto name = [](const BlockRef& block) {
    return std::pair{block.id.value(), block.generation.value()};
  };
  for (const Tier tier : kTiers) {
    const Entries& entries = At(window, tier);
    for (uint32_t s = 0; s < entries.size(); ++s) {
      if (!entries[s].has_value() || memory.completed() < entries[s]->ready) continue;
      found[name(entries[s]->content.block)] = {{tier, SlotIndex{s}}, &*entries[s]};
    }
  }
  std::map<std::pair<uint32_t, uint32_t>, size_t> places;  // In recovered.blocks.
  // By parent, name space and keys.
  std::map<std::tuple<size_t, uint64_t, std::vector<TokenKey>>, size_t> contents;
  const bool full = config_->windows[window].full();
  for (bool more = true; more;) {
    more = false;
    for (const auto& [block, one] : found) {
      const SlotContent& content = one.entry->content;
      if (places.contains(block)) continue;
      size_t parent = RecoveredBlock::kRoot;
      if (content.parent.id != kNoBlock) {
        const auto above = places.find(name(content.parent));
        if (above == places.end()) continue;
        parent = above->second;
        if (full && recovered.blocks[parent].slot.tier > one.slot.tier) continue;
      }
      // A reset that was interrupted has left content that has been stored again since.
      const auto [same, is_new] =
          contents.try_emplace({parent, HashNamespace(content.name_space).value(), one.entry->keys},
                               recovered.blocks.size());
      if (!is_new) {
        places.emplace(block, same->second);
        more = true;
        continue;
      }
      places.emplace(block, recovered.blocks.size());
      recovered.blocks.push_back({.slot = one.slot,
                                  .parent = parent,
                                  .name_space = content.name_space,
                                  .tokens = content.tokens,
                                  .extras = content.extras,
                                  .priority = content.priority,
                                  .keyed = content.keyed});
      more = true;
    }
  }
  return recovered;
}

}  // namespace pagoda::sim
