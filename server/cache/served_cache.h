// One served cache, with all its parts, from its opening to its end.
#ifndef PAGODA_SERVER_CACHE_SERVED_CACHE_H_
#define PAGODA_SERVER_CACHE_SERVED_CACHE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "manager/accounts/tenants.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/engine_process.pb.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "pools/transfers.h"
#include "server/cache/disk_tier.h"
#include "server/cache/kept_learning.h"
#include "server/cache/kept_memory.h"
#include "server/cache/status_history.h"
#include "server/config/config.h"
#include "server/directory/cache_parts.h"
#include "server/memory/pool_export.h"
#include "server/memory/writer_processes.h"
#include "server/peers/peer_server.h"
#include "server/store/cache_exchange.h"
#include "server/store/sources.h"
#include "server/supervision/supervisor.h"
#include "server/watch/cache_streams.h"
#include "wire/caches.h"

namespace pagoda::server {

// A hash of the daemon's addresses: part of the names of everything that outlives a daemon, and the
// same for each start at the same addresses.
std::string AddressHash(const Config& config);

// The cache owns its memory, the core with its event log, the copies between its tiers, and the
// table of the processes that can write to it. It knows nothing of gRPC or HTTP: the services get
// its parts.
//
// Invariants:
// 1. The parts are made bottom to top and end in the opposite order: a part outlives its users.
// 2. Until Keep(), a cache that ends removes the memory that it created and leaves the memory that
//    an earlier run left. After Keep(), everything that cache.warm_restart keeps stays.
// Thread-safe, except for Create, Keep and Stop.
class ServedCache {
 public:
  struct Plan {
    // The daemon's configuration; its `cache`, `engine` and `tenants` describe this cache.
    Config config;
    // The layers and the identity of a client's cache. None: `config` has them.
    std::optional<CacheSpec> spec;
    std::optional<CacheIdentity> identity;  // With `spec`.
    uint32_t number = 0;
    Reservation reservation = Reservation::kWhole;  // How its host memory is reserved.
    TenantId tenant = kDefaultTenant;               // The tenant that owns it.
    // Outlive the cache.
    const TenantTable* tenants = nullptr;
    Supervisor* supervisor = nullptr;  // Gets the progress of the start.
    Sources* sources = nullptr;        // Null: the cache exchanges nothing.
    PeerServer* peers = nullptr;       // Null: no other daemon reads the cache.
    absl::Time start_time;
  };

  // Takes the memory, opens the disk, and recovers the blocks in both. Errors: INVALID_ARGUMENT (a
  // name that is taken, a layout that is not served, a damaged writers' table), OUT_OF_MEMORY,
  // INVALID_CHECKPOINT; UNAVAILABLE if cache.primary_memory is cuda and no GPU memory is available;
  // those of DiskTier::Open.
  static absl::StatusOr<std::unique_ptr<ServedCache>> Create(Plan plan);
  ~ServedCache();

  // See invariant 2.
  void Keep();

  // Periodic work: lets priorities and pins expire, and offloads blocks ahead of need. Releases the
  // core's lock between chunks, so that no call waits long for it.
  void Maintain();
  // Ends the exchange with other machines, and the session that it has. Waits for the fetches and
  // publishes under way, which end by their deadlines. A second call does nothing.
  void EndExchange();
  // Calls EndExchange. Ends the copies. With cache.warm_restart or a disk, pending copies first end
  // and their blocks are cached; a disk has until `disk_end` for its last writes. Otherwise copies
  // that have not begun are cancelled. REQUIRES: no call runs. A second call does nothing; the
  // destructor calls Stop.
  void Stop(absl::Time disk_end);

  // The things that a cache leaves for the next daemon: memory, and the files of its tier on disk.
  struct Remains {
    CacheLayout layout;
    std::string instance;
    std::string disk_folder;  // Empty: none.
  };
  Remains remains() const;
  // Removes them. REQUIRES: the cache has ended. Logs errors.
  static void Remove(const Remains& remains);

  // The parts that lists and calls use; valid as long as the cache.
  const CacheParts& parts() const { return parts_; }
  const CacheLayout& layout() const { return *layout_; }
  PoolSet& pools() { return *pools_; }
  SharedManager& manager() { return *manager_; }
  Transfers& transfers() { return *transfers_; }
  WriterProcesses& writers() { return *writers_; }
  DiskTier* disk() { return disk_.get(); }  // Null if there is none.
  // The report of the self-test of the GPU's kernels; null unless the engine would compute on a
  // GPU.
  const v1::GpuSelfTest* gpu_report() const {
    return gpu_report_.has_value() ? &*gpu_report_ : nullptr;
  }

 private:
  explicit ServedCache(Plan plan) : plan_(std::move(plan)), config_(plan_.config) {}

  // The steps of Create, in order.
  absl::Status MakeLayout();
  // Makes the pools and, with cache.warm_restart, recovers the blocks in them.
  absl::StatusOr<SizingPlan> TakeMemory();
  absl::StatusOr<SizingPlan> MakePools(const std::string& instance);
  // Opens the files of the tier on disk, if there is one, and recovers the blocks in them.
  absl::Status OpenDisk(const SizingPlan& sizes);
  absl::Status MakeCore(const SizingPlan& sizes);
  absl::Status StartTransfers();
  absl::Status RememberWriters();
  absl::Status OpenInterfaces();
  void StartExchange();
  std::string PeerName() const;

  // Whether recovered blocks of a namespace are cached again.
  bool Accepts(const NamespaceKey& name_space) const;
  // Gives the recovered blocks in memory to the core. If the core refuses them, the cache begins
  // empty.
  void Restore(BlockManager& core);
  // Runs on a thread of the transfers.
  void OnCopyDone(Lane lane, Ticket ticket, const absl::Status& status);

  const Plan plan_;
  const Config& config_;  // The plan's.

  std::optional<v1::GpuSelfTest> gpu_report_;
  std::optional<CacheLayout> layout_;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<KeptMemory> kept_;        // With cache.warm_restart.
  std::unique_ptr<KeptLearning> learning_;  // With cache.warm_restart.
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<WriterProcesses> writers_;
  std::unique_ptr<PoolExport> pool_export_;  // If the daemon has a map socket.
  std::unique_ptr<CacheStreams> streams_;
  std::unique_ptr<CacheExchange> exchange_;
  std::unique_ptr<StatusHistory> history_;  // If the daemon has HTTP.
  CacheParts parts_;
  bool stopped_ = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_SERVED_CACHE_H_
