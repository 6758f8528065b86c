// Jobs of several parties that wait for one thread.
#ifndef PAGODA_SERVER_CACHE_JOB_TURNS_H_
#define PAGODA_SERVER_CACHE_JOB_TURNS_H_

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "base/fair_count.h"

namespace pagoda::server {

// A bounded queue that is shared out among parties (FairCount) and serves them in turn.
// Thread-compatible.
template <class Job>
class JobTurns {
 public:
  JobTurns(size_t most, size_t parties) : waiting_(most, parties) {}

  // False: the party has its share.
  bool Add(size_t party, Job& job) {
    if (!waiting_.Add(party)) return false;
    jobs_[party].push_back(std::move(job));
    return true;
  }
  bool empty() const { return jobs_.empty(); }
  size_t of(size_t party) const { return waiting_.of(party); }
  // The oldest job of the next party. REQUIRES: not empty.
  Job Take() {
    auto next = jobs_.upper_bound(last_);
    if (next == jobs_.end()) next = jobs_.begin();
    last_ = next->first;
    Job job = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) jobs_.erase(next);
    waiting_.Remove(last_);
    return job;
  }

 private:
  FairCount waiting_;                       // The number of jobs_.
  std::map<size_t, std::deque<Job>> jobs_;  // By party; no queue is empty.
  size_t last_ = 0;                         // The party of the last job.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_JOB_TURNS_H_
