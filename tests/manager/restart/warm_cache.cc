#include "tests/manager/restart/warm_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pagoda {
namespace {

constexpr uint32_t kPaths = 90;

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::abort();
  }
  return *std::move(value);
}

// The bytes of a block with this content, in all of its window's pools.
std::vector<std::byte> BytesOf(const ContentPath& path, uint32_t w, size_t size) {
  std::mt19937_64 random(std::hash<std::string>{}(path.Name()) + w);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The paths that can be cached: trees in four namespaces, the same in every process.
std::vector<ContentPath> AllPaths() {
  std::mt19937_64 random(7);
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  std::vector<ContentPath> paths = {
      {.name_space = {}},
      {.name_space = {.lora_id = 3, .cache_salt = std::string(kMaxCacheSaltBytes, 's')}},
      {.name_space = {.cache_salt = "salt", .tenant = std::string(kMaxTenantBytes, 't')}},
      {.name_space = {.lora_id = 0}}};
  std::set<std::string> names;
  while (paths.size() < kPaths) {
    ContentPath path = paths[below(static_cast<uint32_t>(paths.size()))];
    const bool is_tail =
        !path.tokens.empty() && path.tokens.back().size() < WarmCache::kTokensPerBlock;
    if (is_tail || path.tokens.size() == 6) continue;
    const uint32_t count =
        below(4) == 0 ? 1 + below(WarmCache::kTokensPerBlock - 1) : WarmCache::kTokensPerBlock;
    path.tokens.emplace_back(count);
    for (TokenId& token : path.tokens.back()) token = below(3);
    path.extras.emplace_back();
    if (below(3) == 0) {
      path.extras.back().resize(count);
      path.extras.back()[below(count)] = {
          .extra_id = below(2), .digest = {1, below(2), 3, 4}, .item_offset = 9, .in_item = true};
    }
    if (names.insert(path.Name()).second) paths.push_back(std::move(path));
  }
  paths.erase(paths.begin(), paths.begin() + 4);  // The namespaces themselves.
  return paths;
}

}  // namespace

ContentPath ContentPath::Parent() const {
  ContentPath parent = *this;
  parent.tokens.pop_back();
  parent.extras.pop_back();
  return parent;
}

std::string ContentPath::Name() const {
  std::string name =
      absl::StrCat(name_space.lora_id.has_value() ? "lora " : "", name_space.lora_id.value_or(0),
                   "|", name_space.cache_salt, "|", name_space.tenant);
  for (size_t i = 0; i < tokens.size(); ++i) {
    absl::StrAppend(&name, "/", absl::StrJoin(tokens[i], ","));
    for (const TokenExtra& extra : extras[i]) {
      absl::StrAppend(&name, ";", extra.extra_id, " ", absl::StrJoin(extra.digest, " "), " ",
                      extra.item_offset, " ", extra.in_item);
    }
  }
  return name;
}

CacheLayout WarmCache::Layout() {
  return *CacheLayout::Create(
      {.name = "warm",
       .model_fingerprint = "model",
       .tokens_per_block = kTokensPerBlock,
       .layers = {{.window = WindowSize(8), .num_kv_heads = 1, .head_dim = 4},
                  {.num_kv_heads = 2, .head_dim = 4},
                  {.num_kv_heads = 1, .head_dim = 8}}});
}

SlotCounts WarmCache::Slots() { return {.tiers = {{10, 20}, {6, 12}}}; }

void WarmCache::Remove(const std::string& instance) {
  { Must(PoolSet::Create(Layout(), Slots(), instance)); }
  if (!StampSet::RemoveLeftovers(Layout(), instance).ok()) std::abort();
}

WarmCache::WarmCache(const std::string& instance, uint64_t seed, SlotStamper::Options options)
    : random_(seed),
      pools_(Must(PoolSet::Create(Layout(), Slots(), instance, MemoryLifetime::kKept))),
      stamps_(Must(StampSet::Create(*pools_, instance))),
      recovery_(Recover(*pools_, *stamps_)),
      stamper_(std::make_unique<SlotStamper>(pools_.get(), stamps_.get(), std::move(options))),
      paths_(AllPaths()),
      windows_(2) {
  pools_->KeepNames();
  stamps_->KeepNames();
  Restore();
}

// Reports the blocks like WarmRestart::Restore: in the list's order, with new ids.
void WarmCache::Restore() {
  for (uint32_t w = 0; w < recovery_.windows.size(); ++w) {
    std::vector<const Entry*> entries;
    std::vector<SlotChange> changes;
    for (const RecoveredBlock& block : recovery_.windows[w].blocks) {
      ContentPath path = block.parent == RecoveredBlock::kRoot
                             ? ContentPath{.name_space = block.name_space}
                             : entries[block.parent]->path;
      path.tokens.push_back(block.tokens);
      path.extras.push_back(block.extras);
      Entry entry = {.path = path,
                     .ref = {BlockId{next_id_++}, Generation{1}},
                     .slot = {},
                     .priority = block.priority};
      if (block.slot.slot != kNoSlot) entry.slot = block.slot;
      entries.push_back(&windows_[w].emplace(path.Name(), entry).first->second);
      changes.push_back({.window_index = w,
                         .slot = block.slot,
                         .ready = {},
                         .content = ContentOf(w, *entries.back()),
                         .found = true});
    }
    Tell(std::move(changes));
  }
}

std::string WarmCache::Check(PoolSet& pools, const std::vector<RecoveredWindow>& windows) {
  for (uint32_t w = 0; w < windows.size(); ++w) {
    std::vector<ContentPath> paths;
    std::set<std::pair<Tier, SlotIndex>> slots;
    for (const RecoveredBlock& block : windows[w].blocks) {
      const size_t index = paths.size();
      const bool is_root = block.parent == RecoveredBlock::kRoot;
      if (!is_root && block.parent >= index) return absl::StrCat(w, ": parent after ", index);
      ContentPath& path = paths.emplace_back(is_root ? ContentPath{.name_space = block.name_space}
                                                     : paths[block.parent]);
      path.tokens.push_back(block.tokens);
      path.extras.push_back(block.extras);
      if (block.slot.slot == kNoSlot) continue;
      if (!slots.insert({block.slot.tier, block.slot.slot}).second) {
        return absl::StrCat(w, ": slot twice, ", block.slot.slot.value());
      }
      std::vector<std::byte> held;
      for (uint32_t p = 0; p < pools.layout().windows()[w].pools.size(); ++p) {
        const auto bytes = pools.pool(w, p, block.slot.tier).slot(block.slot.slot);
        held.insert(held.end(), bytes.begin(), bytes.end());
      }
      if (held != BytesOf(path, w, held.size())) {
        return absl::StrCat("window ", w, ", slot ", block.slot.slot.value(),
                            ": the bytes are not those of ", path.Name());
      }
    }
  }
  return "";
}

CacheContent WarmCache::ContentOf(const std::vector<RecoveredWindow>& windows) {
  CacheContent content;
  for (uint32_t w = 0; w < windows.size(); ++w) {
    std::vector<ContentPath> paths;
    for (const RecoveredBlock& block : windows[w].blocks) {
      ContentPath path = block.parent == RecoveredBlock::kRoot
                             ? ContentPath{.name_space = block.name_space}
                             : paths[block.parent];
      path.tokens.push_back(block.tokens);
      path.extras.push_back(block.extras);
      paths.push_back(path);
      if (block.slot.slot == kNoSlot) continue;
      content[{w, path.Name()}] = {block.slot.tier, block.slot.slot, block.priority.value()};
    }
  }
  return content;
}

CacheContent WarmCache::Recoverable() const {
  std::set<std::string> known;
  for (const Window& window : windows_) {
    for (const auto& [name, entry] : window) {
      if (entry.slot.has_value()) known.insert(name);
    }
  }
  CacheContent content;
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    for (const auto& [name, entry] : windows_[w]) {
      bool reachable = entry.slot.has_value();
      for (ContentPath path = entry.path; path.tokens.size() > 1;) {
        path = path.Parent();
        reachable = reachable && known.count(path.Name()) > 0;
      }
      if (!reachable) continue;
      content[{w, name}] = {entry.slot->tier, entry.slot->slot, entry.priority.value()};
    }
  }
  return content;
}

SlotContent WarmCache::ContentOf(uint32_t w, const Entry& entry) const {
  SlotContent content = {.block = entry.ref,
                         .tokens = entry.path.tokens.back(),
                         .extras = entry.path.extras.back(),
                         .priority = entry.priority};
  if (entry.path.tokens.size() == 1) {
    content.name_space = entry.path.name_space;
  } else {
    content.parent = windows_[w].at(entry.path.Parent().Name()).ref;
  }
  return content;
}

void WarmCache::Write(uint32_t w, SlotRef slot, const ContentPath& path) {
  const WindowLayout& window = pools_->layout().windows()[w];
  const std::vector<std::byte> bytes = BytesOf(path, w, window.block_bytes());
  size_t begin = 0;
  for (uint32_t p = 0; p < window.pools.size(); ++p) {
    const absl::Span<std::byte> to = pools_->pool(w, p, slot.tier).slot(slot.slot);
    std::memcpy(to.data(), &bytes[begin], to.size());
    begin += to.size();
  }
}

// The bytes that a sequence writes to a slot without publishing them.
void WarmCache::Scribble(uint32_t w, SlotRef slot) {
  const absl::Span<std::byte> to = pools_->pool(w, 0, slot.tier).slot(slot.slot);
  for (std::byte& byte : to) byte = static_cast<std::byte>(random_());
}

bool WarmCache::HasChildren(uint32_t w, const Entry& entry, std::optional<Tier> tier) const {
  const std::string name = entry.path.Name();
  return std::any_of(windows_[w].begin(), windows_[w].end(), [&](const auto& other) {
    const ContentPath& path = other.second.path;
    if (path.tokens.size() < 2 || path.Parent().Name() != name) return false;
    return !tier.has_value() || (other.second.slot.has_value() && other.second.slot->tier == *tier);
  });
}

std::optional<SlotRef> WarmCache::FreeSlot(uint32_t w, Tier tier) {
  std::vector<bool> used(pools_->num_slots(w, tier));
  for (const auto& [name, entry] : windows_[w]) {
    if (entry.slot.has_value() && entry.slot->tier == tier) used[entry.slot->slot.value()] = true;
  }
  const uint32_t begin = Random(static_cast<uint32_t>(used.size()));
  for (uint32_t i = 0; i < used.size(); ++i) {
    const uint32_t slot = (begin + i) % static_cast<uint32_t>(used.size());
    if (!used[slot]) return SlotRef{tier, SlotIndex{slot}};
  }
  return std::nullopt;
}

WarmCache::Entry* WarmCache::Any(uint32_t w) {
  if (windows_[w].empty()) return nullptr;
  auto it = windows_[w].begin();
  std::advance(it, Random(static_cast<uint32_t>(windows_[w].size())));
  return &it->second;
}

void WarmCache::Step() {
  const uint32_t w = Random(2);
  switch (Random(6)) {
    case 0:
      return Evict(w);
    case 1:
      return Move(w);
    default:
      return Store(w);
  }
}

bool WarmCache::MayStore(uint32_t w, const ContentPath& path) const {
  if (windows_[w].count(path.Name()) > 0) return false;
  if (path.tokens.size() == 1) return true;
  const auto parent = windows_[w].find(path.Parent().Name());
  if (parent == windows_[w].end()) return false;
  // Rule 13.
  const std::optional<SlotRef>& slot = parent->second.slot;
  return w == 0 || slot->tier == kPrimaryTier;
}

// A sequence takes a free slot, writes it, and publishes it; or a copy brings the bytes.
void WarmCache::Store(uint32_t w) {
  std::vector<const ContentPath*> possible;
  for (const ContentPath& path : paths_) {
    if (MayStore(w, path)) possible.push_back(&path);
  }
  if (possible.empty()) return;
  const ContentPath& path = *possible[Random(static_cast<uint32_t>(possible.size()))];
  const std::optional<SlotRef> slot = FreeSlot(w, kPrimaryTier);
  if (!slot.has_value()) return;
  Tell({{.window_index = w, .slot = *slot}});
  Scribble(w, *slot);
  const Entry& entry =
      windows_[w]
          .emplace(path.Name(), Entry{.path = path,
                                      .ref = {BlockId{next_id_++}, Generation{1 + Random(3)}},
                                      .slot = slot,
                                      .priority = Priority{static_cast<uint8_t>(Random(101))}})
          .first->second;
  const bool copied = Random(2) == 0;
  if (!copied) Write(w, *slot, path);
  if (copied) ++ticket_;
  Tell({{.window_index = w,
         .slot = *slot,
         .ready = Ticket{copied ? ticket_ : 0},
         .content = ContentOf(w, entry)}});
  if (!copied) return;
  Write(w, *slot, path);
  stamper_->CopiesDone(Ticket{ticket_});
}

void WarmCache::Evict(uint32_t w) {
  Entry* const entry = Any(w);
  if (entry == nullptr || !entry->slot.has_value()) return;
  const bool has_children = HasChildren(w, *entry, std::nullopt);
  if (w == 1 && has_children) return;
  const SlotRef slot = *entry->slot;
  Tell({{.window_index = w, .slot = slot}});
  if (Random(2) == 0) Scribble(w, slot);
  entry->slot.reset();
  if (has_children) return;
  // Holes without children leave, too.
  for (ContentPath path = entry->path; !path.tokens.empty(); path = path.Parent()) {
    const auto it = windows_[w].find(path.Name());
    if (it->second.slot.has_value() || HasChildren(w, it->second, std::nullopt)) break;
    windows_[w].erase(it);
  }
}

void WarmCache::Move(uint32_t w) {
  Entry* const entry = Any(w);
  if (entry == nullptr || !entry->slot.has_value()) return;
  const SlotRef from = *entry->slot;
  const bool down = from.tier == kPrimaryTier;
  if (w == 1 && down && HasChildren(w, *entry, kPrimaryTier)) return;
  if (w == 1 && !down && entry->path.tokens.size() > 1 &&
      windows_[w].at(entry->path.Parent().Name()).slot->tier == Tier(1)) {
    return;
  }
  const std::optional<SlotRef> to = FreeSlot(w, down ? Tier(1) : kPrimaryTier);
  if (!to.has_value()) return;
  entry->slot = to;
  const Ticket ticket{++ticket_};
  Tell({{.window_index = w, .slot = from},
        {.window_index = w, .slot = *to, .ready = ticket, .content = ContentOf(w, *entry)}});
  Write(w, *to, entry->path);
  stamper_->CopiesDone(ticket);
  Scribble(w, from);
}

void WarmCache::Flush() { stamper_->Flush(); }

}  // namespace pagoda
