// Samples that have no place in the cache.
#ifndef PAGODA_ENGINE_SCHEDULE_WAITING_QUEUE_H_
#define PAGODA_ENGINE_SCHEDULE_WAITING_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/tenant_shares.h"

namespace pagoda {

// The next one is of the highest priority; among those, of the tenant with the least service; among
// those, the earliest. Thread-compatible.
class WaitingQueue {
 public:
  // `shares` outlives it and knows the tenants of those who wait.
  explicit WaitingQueue(const TenantShares* shares) : shares_(*shares) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  void Add(std::unique_ptr<Sample> sample);
  // The next `count` of those that are not passed over, in their order, as if each were served when
  // its turn comes. Cost: O(count * tenants), and who is passed over.
  std::vector<Sample*> Head(size_t count,
                            absl::FunctionRef<bool(const Sample& sample)> is_passed_over) const;
  void ForEach(absl::FunctionRef<void(Sample& sample)> visit) const;
  // Null where it does not wait.
  std::unique_ptr<Sample> Remove(const Sample* sample);
  // Those of one request.
  std::vector<std::unique_ptr<Sample>> RemoveAll(const ActiveRequest& request);

 private:
  // By the request's number and the sample's.
  using Queue = std::map<std::pair<uint64_t, uint32_t>, std::unique_ptr<Sample>>;
  using TenantQueues = std::map<std::string, Queue>;  // None is empty.

  const TenantShares& shares_;
  std::map<int32_t, TenantQueues, std::greater<>> queues_;  // By priority; likewise.
  size_t size_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_WAITING_QUEUE_H_
