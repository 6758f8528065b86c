#include "server/peers/peer_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/cache_lists.h"
#include "manager/exchange/stored_prefix.h"
#include "pools/layout.h"
#include "pools/memory/memory_place.h"

namespace pagoda::server {

absl::StatusOr<std::shared_ptr<PeerCache>> PeerCache::Create(Options options) {
  if (options.pools->layout().spec().model_fingerprint.empty()) {
    return InvalidArgument(
        absl::StrCat("the cache ", options.name,
                     " has no model fingerprint, so its blocks cannot be told from other models'"));
  }
  std::shared_ptr<PeerCache> cache(new PeerCache(std::move(options)));
  if (!cache->index_.started().ok()) return cache->index_.started();
  return cache;
}

PeerCache::PeerCache(Options options)
    : options_(std::move(options)),
      index_({.manager = options_.manager, .secret = options_.secret}) {
  const CacheLayout& layout = options_.pools->layout();
  for (uint32_t w = 0; w < layout.windows().size(); ++w) {
    const WindowLayout& from = layout.windows()[w];
    Window& window = windows_.emplace_back();
    window.layout = StoredLayout(layout, w);
    window.window_size = from.window == kFullAttention ? 0 : from.window.value();
    window.value_bytes = kStoredHeaderBytes;
    for (const PoolLayout& pool : from.pools) window.value_bytes += pool.slot_stride_bytes();
    for (size_t t = 0; t < options_.pools->num_tiers(); ++t) {
      const Tier tier(t);
      std::vector<Memory>& pools = window.pools.emplace_back(from.pools.size());
      if (options_.pools->num_slots(w, tier) == 0) continue;
      for (uint32_t p = 0; p < pools.size(); ++p) {
        const PoolMemory memory = options_.pools->any_pool(w, p, tier).memory();
        if (memory.place.kind != MemoryKind::kHost) continue;
        pools[p] = {.slots = reinterpret_cast<const std::byte*>(memory.address),
                    .slot_bytes = from.pools[p].slot_stride_bytes()};
      }
    }
  }
}

std::optional<uint32_t> PeerCache::WindowOf(const ParsedName& name) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    if (windows_[w].window_size == name.window_size &&
        std::equal(name.layout.begin(), name.layout.end(), windows_[w].layout.bytes.begin())) {
      return w;
    }
  }
  return std::nullopt;
}

std::vector<bool> PeerCache::Exist(uint32_t window_index,
                                   absl::Span<const DigestIndex::Name> names) {
  std::vector<bool> exist(names.size(), false);
  std::vector<BlockId> blocks;
  std::vector<size_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::optional<DigestIndex::Entry> entry = index_.Find(window_index, names[i]);
    if (!entry.has_value()) continue;
    blocks.push_back(entry->block);
    places.push_back(i);
  }
  if (blocks.empty()) return exist;
  const LocatedBlocks located = options_.manager->Read(
      [&](const BlockManager& core) { return core.lists().LocateBlocks(window_index, blocks); });
  for (size_t i = 0; i < places.size(); ++i) exist[places[i]] = located.blocks[i].has_value();
  return exist;
}

std::optional<LocatedBlock> PeerCache::Locate(uint32_t window_index, BlockId block,
                                              Revision& revision) {
  LocatedBlocks located = options_.manager->Read([&](const BlockManager& core) {
    return core.lists().LocateBlocks(window_index, {&block, 1});
  });
  revision = located.revision;
  return located.blocks.front();
}

std::optional<PeerCache::Value> PeerCache::Get(uint32_t window_index,
                                               const DigestIndex::Name& name) {
  const std::optional<DigestIndex::Entry> entry = index_.Find(window_index, name);
  if (!entry.has_value()) return std::nullopt;
  Revision revision;
  const std::optional<LocatedBlock> before = Locate(window_index, entry->block, revision);
  if (!before.has_value()) return std::nullopt;
  const Window& window = windows_[window_index];
  std::vector<absl::Span<const std::byte>> pieces;
  for (const Memory& pool : window.pools[before->slot.tier.value()]) {
    if (pool.slots == nullptr) return std::nullopt;
    pieces.emplace_back(pool.slots + before->slot.slot.value() * pool.slot_bytes, pool.slot_bytes);
  }
  if (options_.between_looks != nullptr) options_.between_looks();
  Value value{.header = {}, .parts = {}, .bytes = window.value_bytes};
  value.header = MakeStoredHeader({.layout = window.layout.bytes,
                                   .digest = entry->digest.bytes,
                                   .window_size = window.window_size},
                                  options_.secret, pieces);
  for (absl::Span<const std::byte> piece : pieces) {
    for (; !piece.empty(); piece.remove_prefix(std::min(kPartBytes, piece.size()))) {
      const absl::Span<const std::byte> part = piece.first(std::min(kPartBytes, piece.size()));
      value.parts.push_back({.bytes = part, .checksum = ChecksumOf(part)});
    }
  }
  // The block can have left meanwhile, and even have come back. Its generation and its slot do not
  // tell that: a sequence that cuts its tail goes on in the same block. And a tenant can make two
  // contents with one hash. So the index decides.
  if (Locate(window_index, entry->block, revision) != before ||
      !index_.HadUntil(window_index, *entry, revision)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace pagoda::server
