// A cache in this process for an engine to run on: pools in shared memory and the manager over
// them.
#ifndef PAGODA_TESTS_ENGINE_TEST_CACHE_H_
#define PAGODA_TESTS_ENGINE_TEST_CACHE_H_

#include <memory>

#include "engine/engine.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"

namespace pagoda {

class TestCache {
 public:
  TestCache(CacheSpec spec, uint32_t num_blocks);

  // A session of its own.
  std::unique_ptr<CacheClient> OpenClient();

  SharedManager& manager() { return *manager_; }
  PoolSet& pools() { return *pools_; }
  TierOccupancy occupancy() const;

 private:
  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{.max_events = 1 << 16}};
  std::unique_ptr<SharedManager> manager_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_TEST_CACHE_H_
