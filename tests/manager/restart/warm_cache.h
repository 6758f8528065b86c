// A cache that plays the core over real shared memory. Random blocks come, move and leave, and a
// SlotStamper is told as the core would tell it. Each block's bytes are derived from its content,
// so any slot can be checked.
#ifndef PAGODA_TESTS_MANAGER_RESTART_WARM_CACHE_H_
#define PAGODA_TESTS_MANAGER_RESTART_WARM_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "manager/restart/recovery.h"
#include "manager/restart/slot_stamper.h"
#include "manager/restart/stamp_set.h"
#include "pools/pool.h"

namespace pagoda {

// A namespace, then the tokens of block after block.
struct ContentPath {
  NamespaceKey name_space;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<TokenExtra>> extras;

  ContentPath Parent() const;
  std::string Name() const;  // Tells any two paths apart.
};

// Blocks by window and path's name: the slot and the priority of each.
using CacheContent =
    std::map<std::pair<uint32_t, std::string>, std::tuple<Tier, SlotIndex, uint8_t>>;

class WarmCache {
 public:
  static constexpr uint32_t kTokensPerBlock = 4;
  static CacheLayout Layout();  // A window of 8 tokens, and full attention in two pools.
  static SlotCounts Slots();

  // Takes over the memory that an earlier cache of that instance left, if any. Recovers it, and
  // tells the stamper about it as the core would.
  WarmCache(const std::string& instance, uint64_t seed, SlotStamper::Options options = {});
  // Removes every trace of an instance.
  static void Remove(const std::string& instance);

  const Recovery& recovery() const { return recovery_; }
  // Empty if every recovered block has the bytes of its content, and no two blocks share a slot;
  // else the error.
  static std::string Check(PoolSet& pools, const std::vector<RecoveredWindow>& windows);
  static CacheContent ContentOf(const std::vector<RecoveredWindow>& windows);

  // One random change.
  void Step();
  // Returns once everything told is stamped.
  void Flush();
  // What a recovery must find once everything is stamped: every block under full attention, and
  // blocks of sliding windows if some window has their beginnings.
  CacheContent Recoverable() const;

  SlotStamper& stamper() { return *stamper_; }
  PoolSet& pools() { return *pools_; }
  StampSet& stamps() { return *stamps_; }

 private:
  struct Entry {
    ContentPath path;
    BlockRef ref;
    std::optional<SlotRef> slot;  // None: a hole.
    Priority priority;
  };
  using Window = std::map<std::string, Entry>;  // By the path's name.

  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  void Restore();
  SlotContent ContentOf(uint32_t w, const Entry& entry) const;
  void Tell(std::vector<SlotChange> changes) { stamper_->Apply(std::move(changes)); }
  void Write(uint32_t w, SlotRef slot, const ContentPath& path);
  void Scribble(uint32_t w, SlotRef slot);
  bool HasChildren(uint32_t w, const Entry& entry, std::optional<Tier> tier) const;
  std::optional<SlotRef> FreeSlot(uint32_t w, Tier tier);
  bool MayStore(uint32_t w, const ContentPath& path) const;
  void Store(uint32_t w);
  void Evict(uint32_t w);
  void Move(uint32_t w);
  Entry* Any(uint32_t w);

  std::mt19937_64 random_;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<StampSet> stamps_;
  Recovery recovery_;
  std::unique_ptr<SlotStamper> stamper_;
  std::vector<ContentPath> paths_;
  std::vector<Window> windows_;
  uint32_t next_id_ = 0;
  uint64_t ticket_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_RESTART_WARM_CACHE_H_
