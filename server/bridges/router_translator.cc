#include "server/bridges/router_translator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"

namespace pagoda::server {
namespace {

// Almost every block is in the namespace without a name, so all of them share one key.
std::shared_ptr<const NamespaceKey> Share(const NamespaceKey& key) {
  static const auto& unnamed =
      *new std::shared_ptr<const NamespaceKey>(std::make_shared<NamespaceKey>());
  return key == NamespaceKey{} ? unnamed : std::make_shared<const NamespaceKey>(key);
}

// The last event, if it is a removal that another such block can join; else null.
BlocksRemoved* OpenRemoval(std::vector<RouterEvent>& out, TenantId tenant, WindowSize window,
                           Tier tier, bool also_below) {
  if (out.empty() || out.back().tenant != tenant) return nullptr;
  auto* removed = std::get_if<BlocksRemoved>(&out.back().what);
  if (removed == nullptr || removed->window != window || removed->tier != tier ||
      removed->also_below != also_below) {
    return nullptr;
  }
  return removed->hashes.size() < RouterTranslator::kMaxRun ? removed : nullptr;
}

// Whether the set has the tier and also a nearer one.
bool IsCopy(TierSet tiers, Tier tier) {
  return tiers.contains(tier) && (tiers.bits() & ((1u << tier.value()) - 1)) != 0;
}

bool IsFull(const BlocksStored& run) {
  return run.hashes.size() >= RouterTranslator::kMaxRun ||
         run.tokens.size() >= RouterTranslator::kMaxRunTokens;
}

// Adds the extras of `count` tokens. With empty `extras`, these tokens have none.
void AppendExtras(absl::Span<const TokenExtra> extras, size_t count, size_t tokens_before,
                  std::vector<TokenExtra>& out) {
  if (extras.empty() && out.empty()) return;
  out.resize(tokens_before);
  if (extras.empty()) {
    out.resize(tokens_before + count);
  } else {
    out.insert(out.end(), extras.begin(), extras.end());
  }
}

}  // namespace

RouterTranslator::RouterTranslator(Options options) : options_(std::move(options)) {
  for (const WindowSize size : options_.windows) windows_.push_back({.size = size});
}

bool RouterTranslator::Window::AlsoBelow(Tier tier, BlockHash hash) const {
  if (tier == kPrimaryTier) return false;
  for (size_t t = 1; t < kMaxTiers; ++t) {
    if (t != tier.value() && blocks[t].contains(hash)) return true;
  }
  return false;
}

bool RouterTranslator::Window::empty() const {
  return absl::c_all_of(blocks, [](const auto& tier) { return tier.empty(); });
}

RouterTranslator::Node* RouterTranslator::Window::Find(BlockId id) {
  if (id.value() >= nodes.size()) return nullptr;
  Node& node = nodes[id.value()];
  return node.kind == Kind::kNone ? nullptr : &node;
}

RouterTranslator::Window& RouterTranslator::WindowOf(WindowSize size) {
  const auto it = absl::c_find_if(windows_, [=](const Window& w) { return w.size == size; });
  PAGODA_CHECK(it != windows_.end(), "an event names a window that the cache does not have");
  return *it;
}

absl::Span<const TokenId> RouterTranslator::TokensOf(const Window& window, const Node& node) const {
  const auto id = static_cast<size_t>(&node - window.nodes.data());
  return absl::MakeConstSpan(window.tokens)
      .subspan(id * options_.tokens_per_block, options_.tokens_per_block);
}

bool RouterTranslator::AllEmpty() const {
  return absl::c_all_of(windows_, [](const Window& window) { return window.empty(); });
}

size_t RouterTranslator::cached_blocks() const {
  size_t blocks = 0;
  for (const Window& window : windows_) {
    blocks += static_cast<size_t>(
        absl::c_count_if(window.nodes, [](const Node& node) { return node.kind == Kind::kWhole; }));
  }
  return blocks;
}

void RouterTranslator::Translate(const Event& event, std::vector<RouterEvent>& out) {
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    Store(WindowOf(event.window), event.tenant, *stored, out);
  } else if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    Update(WindowOf(event.window), *updated, out);
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    if (removed->reason != RemovalReason::kReleased) Remove(WindowOf(event.window), *removed, out);
  }
}

void RouterTranslator::Forget(std::vector<RouterEvent>& out) {
  for (Window& window : windows_) window = Window{.size = window.size};
  out.push_back({.what = AllCleared{}});
}

void RouterTranslator::EmitAll(absl::FunctionRef<void(RouterEvent)> tell) const {
  for (const Window& window : windows_) EmitWindow(window, tell);
}

void RouterTranslator::EmitWindow(const Window& window,
                                  absl::FunctionRef<void(RouterEvent)> tell) const {
  // The first block of each hash and tier, by hash.
  absl::flat_hash_map<BlockHash, std::array<const Node*, kMaxTiers>> blocks;
  for (const Node& node : window.nodes) {
    if (node.kind != Kind::kWhole) continue;
    auto& by_tier = blocks[node.hash];
    node.tiers.ForEach([&](Tier tier) {
      const Node*& block = by_tier[tier.value()];
      if (block == nullptr) block = &node;
    });
  }
  // The open run of each tier, if any. The parent of its first block is announced already, or will
  // never be.
  std::array<std::vector<RouterEvent>, kMaxTiers> open;
  const auto tell_oldest = [&](std::vector<RouterEvent>& events) {
    tell(std::move(events.front()));
    events.erase(events.begin());
  };
  const auto add = [&](const Node& node, Tier tier, bool also_below) {
    std::vector<RouterEvent>& own = open[tier.value()];
    BlocksStored* run = own.empty() ? nullptr : &std::get<BlocksStored>(own.back().what);
    if (EmitStored(window, node, tier, also_below, run, own) == run) return;
    if (own.size() > 1) tell_oldest(own);
    for (std::vector<RouterEvent>& other : open) {
      if (&other == &own || other.empty() || !node.has_parent) continue;
      if (absl::c_linear_search(std::get<BlocksStored>(other.back().what).hashes, node.parent)) {
        tell_oldest(other);
      }
    }
  };
  std::vector<BlockHash> path;
  for (const Node& node : window.nodes) {
    if (node.kind != Kind::kWhole) continue;
    // Climbs to the topmost ancestor that is not announced yet, then announces downwards.
    path.clear();
    BlockHash hash = node.hash;
    for (auto it = blocks.find(hash); it != blocks.end(); it = blocks.find(hash)) {
      path.push_back(hash);
      // The same content has the same parent in every tier.
      const Node* const any = *std::find_if(it->second.begin(), it->second.end(),
                                            [](const Node* one) { return one != nullptr; });
      if (!any->has_parent) break;
      hash = any->parent;
    }
    for (; !path.empty(); path.pop_back()) {
      bool below = false;
      const auto& by_tier = blocks[path.back()];
      for (uint8_t tier = 0; tier < kMaxTiers; ++tier) {
        if (by_tier[tier] == nullptr) continue;
        add(*by_tier[tier], Tier{tier}, below);
        below = below || tier > 0;
      }
      blocks.erase(path.back());
    }
  }
  for (std::vector<RouterEvent>& events : open) {
    if (!events.empty()) tell_oldest(events);
  }
}

BlocksStored* RouterTranslator::EmitStored(const Window& window, const Node& node, Tier tier,
                                           bool also_below, BlocksStored* run,
                                           std::vector<RouterEvent>& out) const {
  const bool goes_on = run != nullptr && run->tier == tier && run->also_below == also_below &&
                       node.has_parent && run->hashes.back() == node.parent && !IsFull(*run);
  if (!goes_on) {
    out.push_back({node.tenant, BlocksStored{.window = window.size,
                                             .tier = tier,
                                             .also_below = also_below,
                                             .name_space = node.name_space}});
    run = &std::get<BlocksStored>(out.back().what);
    if (node.has_parent) run->parent = node.parent;
  }
  const absl::Span<const TokenId> tokens = TokensOf(window, node);
  AppendExtras(node.extras, tokens.size(), run->tokens.size(), run->extras);
  run->hashes.push_back(node.hash);
  run->tokens.insert(run->tokens.end(), tokens.begin(), tokens.end());
  return run;
}

bool RouterTranslator::Enter(Window& window, Node& node, Tier tier) {
  node.tiers.Add(tier);
  return ++window.count(tier, node.hash) == 1;
}

void RouterTranslator::Leave(Window& window, Node& node, Tier tier, std::vector<RouterEvent>& out) {
  node.tiers.Remove(tier);
  if (--window.count(tier, node.hash) > 0) return;
  window.blocks[tier.value()].erase(node.hash);
  const bool also_below = window.AlsoBelow(tier, node.hash);
  BlocksRemoved* removed = OpenRemoval(out, node.tenant, window.size, tier, also_below);
  if (removed == nullptr) {
    out.push_back({node.tenant,
                   BlocksRemoved{.window = window.size, .tier = tier, .also_below = also_below}});
    removed = &std::get<BlocksRemoved>(out.back().what);
  }
  removed->hashes.push_back(node.hash);
}

void RouterTranslator::Store(Window& window, TenantId tenant, const StoredEvent& stored,
                             std::vector<RouterEvent>& out) {
  const std::shared_ptr<const NamespaceKey> name_space = Share(*stored.name_space);
  std::optional<BlockHash> parent = stored.parent_hash;
  BlocksStored* run = nullptr;  // The event that the next block can extend.
  const auto enter = [&](Node& node, Tier tier) {
    if (!Enter(window, node, tier)) return;
    run = EmitStored(window, node, tier, window.AlsoBelow(tier, node.hash), run, out);
  };
  size_t offset = 0;
  TierSet lower;
  for (const StoredBlock& block : stored.blocks) {
    const size_t id = block.id.value();
    if (id >= window.nodes.size()) window.nodes.resize(std::max(id + 1, 2 * window.nodes.size()));
    if (window.Find(block.id) != nullptr) {
      ++misfits_;
      RemoveOne(window, block.id, out);
      run = nullptr;
    }
    const BlockKey key = stored.KeyAt(offset, block);
    offset += key.tokens.size();
    Node& node = window.nodes[id];
    const bool untold = key.keyed || block.token_count < options_.tokens_per_block;
    node = {.kind = untold ? Kind::kUntold : Kind::kWhole,
            .tiers = {},
            .has_parent = parent.has_value(),
            .tenant = tenant,
            .hash = block.hash,
            .parent = parent.value_or(BlockHash()),
            .name_space = name_space};
    parent = block.hash;
    if (untold) continue;
    node.extras.assign(key.extras.begin(), key.extras.end());
    window.tokens.resize(window.nodes.size() * options_.tokens_per_block);
    absl::c_copy(key.tokens, window.tokens.begin() + id * options_.tokens_per_block);
    enter(node, block.tier);
    lower = TierSet::FromBits(lower.bits() | block.lower.bits());
  }
  lower.ForEach([&](Tier tier) {
    for (const StoredBlock& block : stored.blocks) {
      Node& node = window.nodes[block.id.value()];
      if (node.kind == Kind::kWhole && block.lower.contains(tier)) enter(node, tier);
    }
  });
}

void RouterTranslator::Update(Window& window, const UpdatedEvent& updated,
                              std::vector<RouterEvent>& out) {
  if (!updated.tier.has_value() && !updated.lower.has_value()) return;
  Node* node = window.Find(updated.id);
  if (node == nullptr) {
    ++misfits_;
    return;
  }
  if (node->kind == Kind::kUntold) return;
  TierSet before, after;
  if (updated.lower.has_value()) {
    before = updated.lower->old_value;
    after = updated.lower->new_value;
  }
  if (updated.tier.has_value()) {
    before.Add(updated.tier->old_value);
    after.Add(updated.tier->new_value);
  }
  before.ForEach([&](Tier tier) {
    if (!after.contains(tier) && node->tiers.contains(tier)) Leave(window, *node, tier, out);
  });
  after.ForEach([&](Tier tier) {
    if (node->tiers.contains(tier) || !Enter(window, *node, tier)) return;
    EmitStored(window, *node, tier, window.AlsoBelow(tier, node->hash), nullptr, out);
  });
}

void RouterTranslator::Remove(Window& window, const RemovedEvent& removed,
                              std::vector<RouterEvent>& out) {
  if (removed.scope == RemovedEvent::Scope::kWindow) return RemoveAll(window, out);
  // First the lower copies of all blocks: one event for each tier.
  for (uint8_t t = kMaxTiers - 1; t > 0; --t) {
    const Tier tier{t};
    for (const BlockId id : removed.blocks) {
      Node* node = window.Find(id);
      if (node != nullptr && IsCopy(node->tiers, tier)) Leave(window, *node, tier, out);
    }
  }
  for (const BlockId id : removed.blocks) RemoveOne(window, id, out);
}

void RouterTranslator::RemoveOne(Window& window, BlockId id, std::vector<RouterEvent>& out) {
  Node* node = window.Find(id);
  if (node == nullptr) {
    ++misfits_;
    return;
  }
  const TierSet tiers = node->tiers;
  tiers.ForEach([&](Tier tier) { Leave(window, *node, tier, out); });
  *node = Node{};
}

void RouterTranslator::RemoveAll(Window& window, std::vector<RouterEvent>& out) {
  std::vector<RouterEvent> removals;
  for (uint8_t tier = 0; tier < kMaxTiers; ++tier) {
    for (Node& node : window.nodes) {
      if (node.tiers.contains(Tier{tier})) Leave(window, node, Tier{tier}, removals);
    }
  }
  absl::c_fill(window.nodes, Node{});
  if (AllEmpty()) {
    out.push_back({.what = AllCleared{}});
  } else {
    absl::c_move(removals, std::back_inserter(out));
  }
}

}  // namespace pagoda::server
