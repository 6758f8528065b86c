#include "server/bridges/router_translator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "pools/check.h"

namespace pagoda::server {
namespace {

// Almost every block is in the namespace without a name: one for all of them.
std::shared_ptr<const NamespaceKey> Share(const NamespaceKey& key) {
  static const auto& unnamed =
      *new std::shared_ptr<const NamespaceKey>(std::make_shared<NamespaceKey>());
  return key == NamespaceKey{} ? unnamed : std::make_shared<const NamespaceKey>(key);
}

// The last event, where it is a removal that a block of the same kind may be added to.
BlocksRemoved* OpenRemoval(std::vector<RouterEvent>& out, TenantId tenant, WindowSize window,
                           Tier tier) {
  if (out.empty() || out.back().tenant != tenant) return nullptr;
  auto* removed = std::get_if<BlocksRemoved>(&out.back().what);
  if (removed == nullptr || removed->window != window || removed->tier != tier) return nullptr;
  return removed->hashes.size() < RouterTranslator::kMaxRun ? removed : nullptr;
}

bool IsFull(const BlocksStored& run) {
  return run.hashes.size() >= RouterTranslator::kMaxRun ||
         run.tokens.size() >= RouterTranslator::kMaxRunTokens;
}

// Adds the extras of `count` tokens; all of them are without where `extras` is empty.
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

absl::Span<const TokenId> RouterTranslator::TokensOf(const Window& window, size_t id) const {
  return absl::MakeConstSpan(window.tokens)
      .subspan(id * options_.tokens_per_block, options_.tokens_per_block);
}

bool RouterTranslator::AllEmpty() const {
  return absl::c_all_of(windows_, [](const Window& window) { return window.empty(); });
}

size_t RouterTranslator::cached_blocks() const {
  size_t blocks = 0;
  for (const Window& window : windows_) {
    for (const auto& tier : window.blocks) {
      for (const auto& [hash, count] : tier) blocks += count;
    }
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

void RouterTranslator::TellAll(absl::FunctionRef<void(RouterEvent)> tell) const {
  for (const Window& window : windows_) TellWindow(window, tell);
}

void RouterTranslator::TellWindow(const Window& window,
                                  absl::FunctionRef<void(RouterEvent)> tell) const {
  // Of each hash and tier the first block, by hash.
  absl::flat_hash_map<BlockHash, std::array<const Node*, kNumTiers>> blocks;
  for (const Node& node : window.nodes) {
    if (node.kind != Kind::kWhole) continue;
    const Node*& block = blocks[node.hash][static_cast<size_t>(node.tier)];
    if (block == nullptr) block = &node;
  }
  RouterEvent event;
  BlocksStored* run = nullptr;  // In `event`, where it tells of anything.
  const auto add = [&](const Node& node) {
    const bool goes_on = run != nullptr && run->tier == node.tier && node.has_parent &&
                         run->hashes.back() == node.parent && !IsFull(*run);
    if (!goes_on) {
      if (run != nullptr) tell(std::move(event));
      event = {
          node.tenant,
          BlocksStored{.window = window.size, .tier = node.tier, .name_space = node.name_space}};
      run = &std::get<BlocksStored>(event.what);
      if (node.has_parent) run->parent = node.parent;
    }
    const absl::Span<const TokenId> tokens =
        TokensOf(window, static_cast<size_t>(&node - window.nodes.data()));
    AppendExtras(node.extras, tokens.size(), run->tokens.size(), run->extras);
    run->hashes.push_back(node.hash);
    run->tokens.insert(run->tokens.end(), tokens.begin(), tokens.end());
  };
  std::vector<BlockHash> path;
  for (const Node& node : window.nodes) {
    if (node.kind != Kind::kWhole) continue;
    // Up to the first block that was told of, and down again.
    path.clear();
    BlockHash hash = node.hash;
    for (auto it = blocks.find(hash); it != blocks.end(); it = blocks.find(hash)) {
      path.push_back(hash);
      const auto& [primary, secondary] = it->second;
      const Node& any = primary != nullptr ? *primary : *secondary;
      if (!any.has_parent) break;
      hash = any.parent;
    }
    for (; !path.empty(); path.pop_back()) {
      for (const Node* block : blocks[path.back()]) {
        if (block != nullptr) add(*block);
      }
      blocks.erase(path.back());
    }
  }
  if (run != nullptr) tell(std::move(event));
}

bool RouterTranslator::Enter(Window& window, Tier tier, BlockHash hash) {
  return ++window.count(tier, hash) == 1;
}

void RouterTranslator::Leave(Window& window, const Node& node, std::vector<RouterEvent>& out) {
  if (--window.count(node.tier, node.hash) > 0) return;
  window.blocks[static_cast<size_t>(node.tier)].erase(node.hash);
  BlocksRemoved* removed = OpenRemoval(out, node.tenant, window.size, node.tier);
  if (removed == nullptr) {
    out.push_back({node.tenant, BlocksRemoved{.window = window.size, .tier = node.tier}});
    removed = &std::get<BlocksRemoved>(out.back().what);
  }
  removed->hashes.push_back(node.hash);
}

void RouterTranslator::Store(Window& window, TenantId tenant, const StoredEvent& stored,
                             std::vector<RouterEvent>& out) {
  const std::shared_ptr<const NamespaceKey> name_space = Share(*stored.name_space);
  const absl::Span<const TokenId> tokens = stored.tokens;
  const absl::Span<const TokenExtra> extras = stored.extras;
  std::optional<BlockHash> parent = stored.parent_hash;
  BlocksStored* run = nullptr;  // The event that the next block goes on with.
  size_t offset = 0;
  for (const StoredBlock& block : stored.blocks) {
    const size_t id = block.id.value();
    if (id >= window.nodes.size()) window.nodes.resize(std::max(id + 1, 2 * window.nodes.size()));
    if (window.Find(block.id) != nullptr) {
      ++misfits_;
      RemoveOne(window, block.id, out);
      run = nullptr;
    }
    const auto own_tokens = tokens.subspan(offset, block.token_count);
    const auto own_extras = extras.empty() ? extras : extras.subspan(offset, block.token_count);
    offset += block.token_count;
    Node& node = window.nodes[id];
    node = {.kind = block.token_count < options_.tokens_per_block ? Kind::kTail : Kind::kWhole,
            .tier = block.tier,
            .has_parent = parent.has_value(),
            .tenant = tenant,
            .hash = block.hash,
            .parent = parent.value_or(BlockHash()),
            .name_space = name_space};
    parent = block.hash;
    if (node.kind == Kind::kTail) continue;
    node.extras.assign(own_extras.begin(), own_extras.end());
    window.tokens.resize(window.nodes.size() * options_.tokens_per_block);
    absl::c_copy(own_tokens, window.tokens.begin() + id * options_.tokens_per_block);
    if (!Enter(window, block.tier, block.hash)) {
      run = nullptr;
      continue;
    }
    if (run == nullptr || run->tier != block.tier || IsFull(*run)) {
      out.push_back(
          {tenant,
           BlocksStored{.window = window.size, .tier = block.tier, .name_space = name_space}});
      run = &std::get<BlocksStored>(out.back().what);
      if (node.has_parent) run->parent = node.parent;
    }
    AppendExtras(own_extras, own_tokens.size(), run->tokens.size(), run->extras);
    run->hashes.push_back(block.hash);
    run->tokens.insert(run->tokens.end(), own_tokens.begin(), own_tokens.end());
  }
}

void RouterTranslator::Update(Window& window, const UpdatedEvent& updated,
                              std::vector<RouterEvent>& out) {
  if (!updated.tier.has_value()) return;
  Node* node = window.Find(updated.id);
  if (node == nullptr) {
    ++misfits_;
    return;
  }
  if (node->kind == Kind::kTail) {
    node->tier = updated.tier->new_value;
    return;
  }
  Leave(window, *node, out);
  node->tier = updated.tier->new_value;
  if (!Enter(window, node->tier, node->hash)) return;
  const absl::Span<const TokenId> tokens = TokensOf(window, updated.id.value());
  BlocksStored stored{.window = window.size,
                      .tier = node->tier,
                      .name_space = node->name_space,
                      .hashes = {node->hash},
                      .tokens = {tokens.begin(), tokens.end()},
                      .extras = node->extras};
  if (node->has_parent) stored.parent = node->parent;
  out.push_back({node->tenant, std::move(stored)});
}

void RouterTranslator::Remove(Window& window, const RemovedEvent& removed,
                              std::vector<RouterEvent>& out) {
  if (removed.scope == RemovedEvent::Scope::kWindow) return RemoveAll(window, out);
  for (const BlockId id : removed.blocks) RemoveOne(window, id, out);
}

void RouterTranslator::RemoveOne(Window& window, BlockId id, std::vector<RouterEvent>& out) {
  Node* node = window.Find(id);
  if (node == nullptr) {
    ++misfits_;
    return;
  }
  if (node->kind == Kind::kWhole) Leave(window, *node, out);
  *node = Node{};
}

void RouterTranslator::RemoveAll(Window& window, std::vector<RouterEvent>& out) {
  std::vector<RouterEvent> removals;
  for (Node& node : window.nodes) {
    if (node.kind == Kind::kWhole) Leave(window, node, removals);
    node = Node{};
  }
  if (AllEmpty()) {
    out.push_back({.what = AllCleared{}});
  } else {
    absl::c_move(removals, std::back_inserter(out));
  }
}

}  // namespace pagoda::server
