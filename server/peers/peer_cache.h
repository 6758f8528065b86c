// A cache whose blocks other daemons can fetch.
#ifndef PAGODA_SERVER_PEERS_PEER_CACHE_H_
#define PAGODA_SERVER_PEERS_PEER_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/restart/content_digest.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/store/stored_value.h"
#include "server/peers/digest_index.h"

namespace pagoda::server {

// Answers by name which blocks the cache has in host memory, and where their bytes lie.
// Thread-safe.
//
// Invariants
// 1. A value that Get returns was the named block when Get returned: between the begin of the
//    hashing and its end, the block was cached with this content, in these slots.
// 2. Nothing holds the block afterwards, so its slots can get other bytes before they are sent. So
//    each part has a checksum of the bytes that Get saw. Whoever sends a part copies it, and sends
//    the copy only if its checksum is the same: bytes that came later never leave.
// 3. No lock of the core is held while bytes are hashed.
class PeerCache {
 public:
  struct Options {
    std::string name;
    SharedManager* manager = nullptr;
    const PoolSet* pools = nullptr;
    // Keeps manager and pools alive, for as long as the PeerCache or its user needs them. May be
    // null if they outlive it anyway.
    std::shared_ptr<const void> owner = nullptr;
    std::string secret = {};  // See RedisOptions::secret.
    // For tests: Get calls it between its first read of the block and its second.
    std::function<void()> between_looks = nullptr;
  };
  static constexpr size_t kPartBytes = 128 << 10;  // The most of a part.
  struct Part {
    absl::Span<const std::byte> bytes;  // In a pool.
    std::array<std::byte, 16> checksum;
  };
  struct Value {
    StoredHeader header;
    std::vector<Part> parts;
    uint64_t bytes = 0;  // The bytes of the header and the parts.
  };

  // Starts the index. Errors: INVALID_ARGUMENT if the cache has no model fingerprint: blocks of
  // different models could be mixed; those of Thread::Start.
  static absl::StatusOr<std::shared_ptr<PeerCache>> Create(Options options);

  const std::string& name() const { return options_.name; }
  // The window that a name means; nothing if it is of another layout.
  std::optional<uint32_t> WindowOf(const ParsedName& name) const;
  // The bytes of each value of the window.
  uint64_t value_bytes(uint32_t window_index) const { return windows_[window_index].value_bytes; }
  // Whether the cache has the block of each name now. A hint: Get decides. Cost: O(names), with
  // one hold of the core's lock.
  std::vector<bool> Exist(uint32_t window_index, absl::Span<const DigestIndex::Name> names);
  // Nothing: a miss. Cost: reads the block's bytes twice, and takes the core's lock twice.
  std::optional<Value> Get(uint32_t window_index, const DigestIndex::Name& name);

  DigestIndex::Stats index_stats() const { return index_.stats(); }

 private:
  // A pool of a window in a tier.
  struct Memory {
    const std::byte* slots = nullptr;  // Null: not in host memory.
    size_t slot_bytes = 0;
  };
  struct Window {
    ContentDigest layout;
    uint32_t window_size = 0;  // The attention window in tokens: see StoreKey.
    uint64_t value_bytes = 0;
    std::vector<std::vector<Memory>> pools;  // By tier, then by pool.
  };

  explicit PeerCache(Options options);
  std::optional<LocatedBlock> Locate(uint32_t window_index, BlockId block, Revision& revision);

  const Options options_;
  std::vector<Window> windows_;
  DigestIndex index_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_CACHE_H_
