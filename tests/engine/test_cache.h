// A cache in this process for an engine: pools in shared memory and the manager over them.
#ifndef PAGODA_TESTS_ENGINE_TEST_CACHE_H_
#define PAGODA_TESTS_ENGINE_TEST_CACHE_H_

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "events/event_log.h"
#include "manager/accounts/tenants.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

class TestCache {
 public:
  struct Sizes {  // Per window.
    uint32_t primary_blocks = 0;
    uint32_t secondary_blocks = 0;
    uint32_t disk_blocks = 0;  // Needs secondary blocks; see FakeDisk.
  };
  // `before_copy` may be empty: see HostTransfers::Options.
  TestCache(CacheSpec spec, Sizes sizes,
            std::function<absl::Status(const CopyOrder&)> before_copy = nullptr,
            std::vector<TenantOptions> tenants = {});
  ~TestCache();

  // A new session without a tenant.
  std::unique_ptr<CacheClient> OpenClient();

  SharedManager& manager() { return *manager_; }
  PoolSet& pools() { return *pools_; }
  // Waits until no copy is left.
  void WaitForCopies() { transfers_->WaitUntilIdle(); }
  // Sets every byte of the primary pools such that reading it gives NaN.
  void PoisonPrimary();
  // The counts of the primary tier of the smallest window.
  TierOccupancy occupancy() const;
  // Whether every block of every window is free or cached, and there is no sequence. Stops the
  // process if the core is not sound.
  bool NothingHeld() const;

 private:
  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{.max_events = 1 << 16}};
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<HostTransfers> transfers_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_TEST_CACHE_H_
