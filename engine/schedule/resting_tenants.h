// The tenants that a step of the scheduler leaves out.
#ifndef PAGODA_ENGINE_SCHEDULE_RESTING_TENANTS_H_
#define PAGODA_ENGINE_SCHEDULE_RESTING_TENANTS_H_

#include <set>
#include <string>
#include <vector>

#include "engine/schedule/running_samples.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/waiting_queue.h"
#include "manager/api/cache_client.h"

namespace pagoda {

// A step waits for the sessions of all tenants in it. Without this, a tenant that keeps its own
// session busy would keep all others waiting, step by step. Thread-compatible.
class RestingTenants {
 public:
  // Before a step: the client's slow tenants, if others have prepared samples.
  void Find(CacheClient& client, const RunningSamples& running, const WaitingQueue& waiting) {
    const std::vector<std::string> slow = client.SlowTenants();
    names_ = {slow.begin(), slow.end()};
    if (names_.empty()) return;
    bool others = false;
    const auto look = [&](const Sample& sample) {
      others = others || (sample.request->is_prepared && !Has(sample));
    };
    for (const auto& sample : running) look(*sample);
    waiting.ForEach(look);
    if (!others) names_.clear();
  }
  bool empty() const { return names_.empty(); }
  // Whether the sample's tenant is left out.
  bool Has(const Sample& sample) const {
    return !names_.empty() && names_.contains(sample.request->request.tenant);
  }

 private:
  std::set<std::string> names_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_RESTING_TENANTS_H_
