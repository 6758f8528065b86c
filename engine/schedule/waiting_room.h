// Samples that have no place in the cache.
#ifndef PAGODA_ENGINE_SCHEDULE_WAITING_ROOM_H_
#define PAGODA_ENGINE_SCHEDULE_WAITING_ROOM_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/schedule/sample.h"
#include "engine/schedule/tenant_shares.h"

namespace pagoda {

// The next one is of the highest priority; among those, of the tenant with the least service; among
// those, the earliest. Thread-compatible.
class WaitingRoom {
 public:
  // `shares` outlives it and knows the tenants of those who wait.
  explicit WaitingRoom(const TenantShares* shares) : shares_(*shares) {}

  bool empty() const { return samples_.empty(); }
  size_t size() const { return samples_.size(); }
  void Add(std::unique_ptr<Sample> sample) { samples_.push_back(std::move(sample)); }
  // The next `count` in their order, as if each were served when its turn comes. Cost: O(count *
  // size()).
  std::vector<Sample*> Head(size_t count) const;
  const std::vector<std::unique_ptr<Sample>>& samples() const { return samples_; }
  // Null where it does not wait.
  std::unique_ptr<Sample> Remove(const Sample* sample);
  // Those of one request, or of all where it is null.
  std::vector<std::unique_ptr<Sample>> RemoveAll(const ActiveRequest* request);

 private:
  const TenantShares& shares_;
  std::vector<std::unique_ptr<Sample>> samples_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_WAITING_ROOM_H_
