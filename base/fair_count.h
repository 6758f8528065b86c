// A bounded number of things, shared among parties so that none can take them all.
#ifndef PAGODA_BASE_FAIR_COUNT_H_
#define PAGODA_BASE_FAIR_COUNT_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace pagoda {

// Half of `most` is reserved in equal parts, one for each party. The other half goes to any party,
// first come, first served. So a party gets its part, whatever the others have. If there are more
// parties than the reserved half has places, a part is one place, and the reserved half goes to the
// first places of parties. Then a party that has nothing gets one only while there is room.
// Thread-compatible.
//
// Invariant: total() <= most, apart from Overdraw.
class FairCount {
 public:
  // REQUIRES: parties > 0.
  FairCount(size_t most, size_t parties)
      : part_(std::max<size_t>(1, most / 2 / parties)),
        reserved_(std::min(most / 2, part_ * parties)),
        common_(most - reserved_),
        counts_(parties) {}

  // Takes `n` for the party, all or nothing. False if that exceeds its limit.
  bool Add(size_t party, size_t n = 1) {
    if (n > left(party)) return false;
    Overdraw(party, n);
    return true;
  }
  // Takes `n` for the party even if that exceeds its limit. Until that much is returned, no party
  // can take from the common half, but the other parties keep their parts.
  void Overdraw(size_t party, size_t n) {
    size_t& count = counts_[party];
    in_parts_ += std::min(part_, count + n) - std::min(part_, count);
    count += n;
    total_ += n;
  }
  // REQUIRES: the party has `n`.
  void Remove(size_t party, size_t n = 1) {
    size_t& count = counts_[party];
    PAGODA_CHECK(count >= n, "a party returns only what it has taken");
    in_parts_ -= std::min(part_, count) - std::min(part_, count - n);
    count -= n;
    total_ -= n;
  }

  size_t of(size_t party) const { return counts_[party]; }
  size_t total() const { return total_; }
  // How many more the party can take.
  size_t left(size_t party) const {
    const size_t taken_of_reserved = std::min(reserved_, in_parts_);
    const size_t taken_of_common = total_ - taken_of_reserved;
    return std::min(part_ - std::min(part_, counts_[party]), reserved_ - taken_of_reserved) +
           common_ - std::min(common_, taken_of_common);
  }
  // The most that a party can have.
  size_t most_of_one() const { return std::min(part_, reserved_) + common_; }

 private:
  const size_t part_;      // What is reserved for one party.
  const size_t reserved_;  // All parts, or as many as fit in half.
  const size_t common_;
  std::vector<size_t> counts_;
  size_t in_parts_ = 0;  // The units of total_ that parties have within their parts.
  size_t total_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_FAIR_COUNT_H_
