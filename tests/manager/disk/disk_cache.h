// A cache that plays the core over a disk tier: random blocks are written to the files, read back,
// dropped and erased. Each block's bytes are derived from its content, so every read can be
// checked. A naive model beside it tracks the content of each slot of the files.
#ifndef PAGODA_TESTS_MANAGER_DISK_DISK_CACHE_H_
#define PAGODA_TESTS_MANAGER_DISK_DISK_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "manager/disk/disk_carrier.h"
#include "manager/disk/disk_recovery.h"
#include "pools/pool.h"

namespace pagoda {

// A namespace, then the tokens of block after block.
struct DiskPath {
  uint32_t name_space = 0;
  std::vector<std::vector<TokenId>> tokens;

  DiskPath Parent() const;
  NamespaceKey Key() const;
  std::string Name() const;  // Tells any two paths apart.
};
// The bytes of a block with this content, in all pools of a window.
std::vector<std::byte> BytesOf(const DiskPath& path, uint32_t window_index);

// By window and path's name: the block's slot.
using DiskContent = std::map<std::pair<uint32_t, std::string>, uint32_t>;

class DiskCache {
 public:
  static constexpr uint32_t kTokensPerBlock = 16;
  static constexpr uint32_t kMemorySlots = 8;
  // A window of 64 tokens, whose block is half a page; full attention in two pools, of 2.75 pages.
  static CacheLayout Layout();
  static DiskFiles::Options FileOptions(const std::string& directory);
  // The paths that can be cached, the same in every process.
  static const std::vector<DiskPath>& Paths();

  struct Options {
    DiskFiles::Options files;
    DiskCarrier::Options carrier;
    bool may_fail = false;  // If false, an order that fails ends the process.
    // Called when the path is about to be written, and when it has been erased for good: before it
    // can be found again, and after it no longer can. May be empty.
    std::function<void(uint32_t window_index, const std::string&name)> on_write, on_erased;
  };

  // Recovers the content of the files.
  DiskCache(uint64_t seed, Options options);

  const DiskRecovery& recovery() const { return recovery_; }
  DiskContent Recovered() const;
  DiskCarrier& carrier() { return *carrier_; }

  // Gives some random orders.
  void Step();
  // Waits for the orders given.
  void Settle();
  // Waits, and returns whether everything is durable.
  bool WaitUntilIdle();
  // Fetches every block, and forgets those that are not whole. Returns an error if bytes that were
  // reported as right are wrong.
  std::string FetchAll();
  // The number of whole blocks that all fetches found.
  uint64_t num_whole() const { return whole_; }
  const std::set<std::pair<uint32_t, std::string>>& lost() const { return lost_; }

  // The content of a slot, whether or not it is the core's.
  struct Written {
    uint64_t number = 0;  // The number of the write.
    uint64_t parent = 0;  // 0: none.
    std::string name;
    friend bool operator==(const Written&, const Written&) = default;
  };
  using Files = std::vector<std::vector<std::optional<Written>>>;  // By window and slot.
  // The naive model, for runs in which no order fails.
  const Files& files() const { return model_; }
  // What a recovery must find in such files.
  static DiskContent Recoverable(const Files& files);
  // Sets the files' content, for a cache that was recovered from them.
  void SetModel(Files files, uint64_t last_number);
  uint64_t last_number() const { return last_number_; }

 private:
  struct Entry {
    DiskPath path;
    uint32_t slot = 0;
    bool is_busy = false;  // An order of its slot is not settled.
  };
  struct Ordered {
    uint32_t window_index = 0;
    std::string name;  // Empty for an erase.
    uint32_t memory = 0;
    std::vector<std::string> erased;  // By name.
  };
  using Window = std::map<std::string, Entry>;  // By the path's name.

  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  void Restore();
  std::optional<uint32_t> FreeSlot(uint32_t w);
  std::optional<uint32_t> FreeMemory(uint32_t w);
  bool IsBelow(const Entry& entry, const std::string& name) const;
  void Fill(uint32_t w, uint32_t memory, const std::vector<std::byte>& bytes);
  std::vector<std::byte> Held(uint32_t w, uint32_t memory);
  void Backup(uint32_t w);
  void Fetch(uint32_t w, const Entry& entry);
  void Drop(uint32_t w);
  void Erase(uint32_t w);
  void Reset(uint32_t w);
  void Settled(Lane lane, Ticket ticket, const absl::Status& status);
  void Forget(uint32_t w, const std::string& name);

  std::mt19937_64 random_;
  const Options options_;
  std::unique_ptr<PoolSet> pools_;
  DiskRecovery recovery_;
  std::vector<Window> windows_;
  std::vector<std::set<uint32_t>> busy_slots_, busy_memory_;  // By window.
  Files model_;
  uint64_t last_number_ = 0;
  uint64_t backup_ticket_ = 0, fetch_ticket_ = 0, memory_ticket_ = 0;
  std::map<std::pair<Lane, Ticket>, Ordered> orders_;
  uint64_t whole_ = 0;
  std::set<std::pair<uint32_t, std::string>> lost_;
  std::string wrong_;

  absl::Mutex mutex_;
  std::vector<std::tuple<Lane, Ticket, absl::Status>> reports_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DiskCarrier> carrier_;  // Destroyed first.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_DISK_DISK_CACHE_H_
