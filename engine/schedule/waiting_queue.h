// The samples that wait for admission.
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

// The order: the highest priority first, then the tenant with the least service, then the earliest.
// Thread-compatible.
class WaitingQueue {
 public:
  // `shares` outlives it and knows the tenants of all waiting samples that are not passed over.
  explicit WaitingQueue(const TenantShares* shares) : shares_(*shares) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  void Add(std::unique_ptr<Sample> sample);
  // The next `count` samples without those that are passed over, in the order in which they would
  // be served. Cost: O(count * tenants + samples passed over).
  std::vector<Sample*> Head(size_t count,
                            absl::FunctionRef<bool(const Sample& sample)> is_passed_over) const;
  void ForEach(absl::FunctionRef<void(Sample& sample)> visit) const;
  // Null if the sample does not wait.
  std::unique_ptr<Sample> Remove(const Sample* sample);
  // The samples of one request.
  std::vector<std::unique_ptr<Sample>> RemoveAll(const ActiveRequest& request);

 private:
  // By the request's number and the sample's.
  using Queue = std::map<std::pair<uint64_t, uint32_t>, std::unique_ptr<Sample>>;
  using TenantQueues = std::map<std::string, Queue>;  // None is empty.

  const TenantShares& shares_;
  // By priority, the highest first. None is empty.
  std::map<int32_t, TenantQueues, std::greater<>> queues_;
  size_t size_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_WAITING_QUEUE_H_
