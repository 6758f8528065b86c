// A bounded number of things shared out among parties, none of which can take them all.
#ifndef PAGODA_MANAGER_FAIR_COUNT_H_
#define PAGODA_MANAGER_FAIR_COUNT_H_

#include <cstddef>
#include <vector>

#include "pools/check.h"

namespace pagoda {

// Half of `most` is set aside in equal parts, one for each party; the other half is for whoever
// comes first. So a party always gets its part, whatever the others have. Thread-compatible.
//
// Invariant: total() <= most.
class FairCount {
 public:
  // REQUIRES: parties > 0.
  FairCount(size_t most, size_t parties)
      : part_(most / 2 / parties), common_(most - part_ * parties), counts_(parties) {}

  // Takes one for the party; false where it may not have it.
  bool Add(size_t party) {
    size_t& count = counts_[party];
    if (count >= part_) {
      if (taken_of_common_ == common_) return false;
      ++taken_of_common_;
    }
    ++count;
    ++total_;
    return true;
  }
  // REQUIRES: the party has one.
  void Remove(size_t party) {
    size_t& count = counts_[party];
    PAGODA_CHECK(count > 0, "what is given back was taken");
    if (count > part_) --taken_of_common_;
    --count;
    --total_;
  }

  size_t of(size_t party) const { return counts_[party]; }
  size_t total() const { return total_; }

 private:
  const size_t part_;
  const size_t common_;
  std::vector<size_t> counts_;
  size_t taken_of_common_ = 0;
  size_t total_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_FAIR_COUNT_H_
