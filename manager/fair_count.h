// A bounded number of things, shared among parties so that none can take them all.
#ifndef PAGODA_MANAGER_FAIR_COUNT_H_
#define PAGODA_MANAGER_FAIR_COUNT_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace pagoda {

// Half of `most` is reserved in equal parts, one for each party. The other half goes to any party,
// first come, first served. So a party always gets its part, whatever the others have.
// Thread-compatible.
//
// Invariant: total() <= most, apart from Overdraw.
class FairCount {
 public:
  // REQUIRES: parties > 0.
  FairCount(size_t most, size_t parties)
      : part_(most / 2 / parties), common_(most - part_ * parties), counts_(parties) {}

  // Takes `n` for the party, all or nothing. False if that exceeds its limit.
  bool Add(size_t party, size_t n = 1) {
    if (n > left(party)) return false;
    size_t& count = counts_[party];
    taken_of_common_ += BeyondPart(count + n) - BeyondPart(count);
    count += n;
    total_ += n;
    return true;
  }
  // Takes `n` for the party even if that exceeds its limit. Until that much is returned, no party
  // can take from the common half, but the other parties keep their parts.
  void Overdraw(size_t party, size_t n) {
    size_t& count = counts_[party];
    taken_of_common_ += BeyondPart(count + n) - BeyondPart(count);
    count += n;
    total_ += n;
  }
  // REQUIRES: the party has `n`.
  void Remove(size_t party, size_t n = 1) {
    size_t& count = counts_[party];
    PAGODA_CHECK(count >= n, "a party returns only what it has taken");
    taken_of_common_ -= BeyondPart(count) - BeyondPart(count - n);
    count -= n;
    total_ -= n;
  }

  size_t of(size_t party) const { return counts_[party]; }
  size_t total() const { return total_; }
  // How many more the party can take.
  size_t left(size_t party) const {
    return part_ - std::min(part_, counts_[party]) + common_ - std::min(common_, taken_of_common_);
  }
  // The most that a party can have.
  size_t most_of_one() const { return part_ + common_; }

 private:
  size_t BeyondPart(size_t count) const { return count - std::min(part_, count); }

  const size_t part_;
  const size_t common_;
  std::vector<size_t> counts_;
  size_t taken_of_common_ = 0;
  size_t total_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_FAIR_COUNT_H_
