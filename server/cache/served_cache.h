// One served cache, from its opening to its end.
#ifndef PAGODA_SERVER_CACHE_SERVED_CACHE_H_
#define PAGODA_SERVER_CACHE_SERVED_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "engine/model/gpu_report.h"
#include "engine/text/model_text.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "manager/tenants.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "pools/transfers.h"
#include "server/cache/cache_parts.h"
#include "server/cache/disk_tier.h"
#include "server/cache/kept_memory.h"
#include "server/config/config.h"
#include "server/http/status_history.h"
#include "server/memory/pool_export.h"
#include "server/memory/writer_processes.h"
#include "server/supervisor.h"
#include "server/watch/cache_streams.h"
#include "wire/caches.h"

namespace pagoda::server {

// Part of the names of what outlives a daemon; the same for each start at the same addresses.
std::string AddressHash(const Config& config);

// Its memory, its core with the log of its events, the copies between its tiers, the processes that
// can write to it, and the engine that runs over it, if any. It knows nothing of gRPC or HTTP:
// services are given its parts.
//
// Invariants:
// 1. The parts are made bottom to top and end in the opposite order: a part outlives those that
//    use it.
// 2. Until Keep() a cache that goes takes away what it made, and leaves what an earlier run had
//    left. From there on what cache.warm_restart keeps stays.
// Thread-safe, but for Create, LoadEngine, Keep and Stop.
class ServedCache {
 public:
  struct Plan {
    // The daemon's; `cache`, `engine` and `tenants` are of this cache.
    Config config;
    // Its layers and identity, where a client brought them. None: `config` says them.
    std::optional<CacheSpec> spec;
    std::optional<CacheIdentity> identity;  // With `spec`.
    uint32_t number = 0;
    Reservation reservation = Reservation::kWhole;  // Of its memory on the host.
    TenantId tenant = kDefaultTenant;               // Whose it is.
    // Outlive the cache.
    const TenantTable* tenants = nullptr;
    Supervisor* supervisor = nullptr;  // Hears how far the start is.
    absl::Time start_time;
  };

  // Takes the memory and opens the disk, with what is found there. Errors: INVALID_ARGUMENT (a name
  // that is taken, a layout that is not served, a writers' table that is damaged), OUT_OF_MEMORY,
  // INVALID_CHECKPOINT; UNAVAILABLE where cache.primary_memory is cuda and there is no GPU memory
  // to be had; those of DiskTier::Open.
  static absl::StatusOr<std::unique_ptr<ServedCache>> Create(Plan plan);
  ~ServedCache();

  // The bundled engine, where engine.model_dir names a model. Errors: Engine::Create's.
  absl::Status LoadEngine();
  // See invariant 2.
  void Keep();

  // What time brings: priorities and pins that run out, blocks that move down ahead of need. In
  // pieces, so that nobody waits long for the core's lock.
  void Maintain();
  // Ends the copies. With cache.warm_restart or a disk what is on its way is cached first, and a
  // disk has until `disk_end` for its last writes; otherwise copies that have not begun end as
  // cancelled. No call runs any more. A second call does nothing; the destructor calls it.
  void Stop(absl::Time disk_end);

  // What a cache leaves behind for the next daemon: memory, and the files of its disk.
  struct Remains {
    CacheLayout layout;
    std::string instance;
    std::string disk_folder;  // Empty: none.
  };
  Remains remains() const;
  // Takes them away, where the cache has ended. Errors are told to the log.
  static void Remove(const Remains& remains);

  // Lists and calls see it by these; they live as long as the cache.
  const CacheParts& parts() const { return parts_; }
  const CacheLayout& layout() const { return *layout_; }
  PoolSet& pools() { return *pools_; }
  SharedManager& manager() { return *manager_; }
  Transfers& transfers() { return *transfers_; }
  WriterProcesses& writers() { return *writers_; }
  DiskTier* disk() { return disk_.get(); }  // Null: there is none; likewise the next two.
  Engine* engine() { return engine_.get(); }
  // Of the self-test of the GPU's kernels; null unless the engine would compute on a GPU.
  const GpuSelfTestReport* gpu_report() const {
    return gpu_report_.has_value() ? &*gpu_report_ : nullptr;
  }
  ModelText* text() { return text_.get(); }

 private:
  explicit ServedCache(Plan plan) : plan_(std::move(plan)), config_(plan_.config) {}

  // The steps of Create, in order.
  absl::Status MakeLayout();
  // The pools, and with cache.warm_restart what is found in them.
  absl::StatusOr<SizingPlan> TakeMemory();
  absl::StatusOr<SizingPlan> MakePools(const std::string& instance);
  // The files of the tier on disk, if there is one, and what is found in them.
  absl::Status OpenDisk(const SizingPlan& sizes);
  absl::Status MakeCore(const SizingPlan& sizes);
  absl::Status StartTransfers();
  absl::Status RememberWriters();
  absl::Status OpenInterfaces();

  // Whether blocks of a namespace that an earlier run had are taken back.
  bool Accepts(const NamespaceKey& name_space) const;
  // Gives the core what was found in memory, or nothing where the core refuses it.
  void Restore(BlockManager& core);
  // On a thread of the transfers.
  void OnCopyDone(Ticket ticket, const absl::Status& status);

  const Plan plan_;
  const Config& config_;  // The plan's.

  std::optional<GpuSelfTestReport> gpu_report_;
  std::optional<CacheLayout> layout_;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<KeptMemory> kept_;  // With cache.warm_restart.
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<WriterProcesses> writers_;
  std::unique_ptr<PoolExport> pool_export_;  // Where the daemon has a map socket.
  std::unique_ptr<CacheStreams> streams_;
  std::unique_ptr<StatusHistory> history_;  // Where the daemon has HTTP.
  CacheParts parts_;
  std::unique_ptr<ModelText> text_;  // With engine_, whose requests use it.
  std::unique_ptr<Engine> engine_;
  bool stopped_ = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_SERVED_CACHE_H_
