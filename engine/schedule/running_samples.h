// The samples that run: what they take together, and which of them stand out.
#ifndef PAGODA_ENGINE_SCHEDULE_RUNNING_SAMPLES_H_
#define PAGODA_ENGINE_SCHEDULE_RUNNING_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/schedule/sample.h"
#include "pools/order.h"

namespace pagoda {

// Owns samples in the order in which they were added, or last sorted. None is null. Every method is
// linear in their number, or O(n log n) where it sorts. Thread-compatible.
class RunningSamples {
 public:
  using List = std::vector<std::unique_ptr<Sample>>;
  using const_iterator = List::const_iterator;
  using Filter = absl::FunctionRef<bool(const Sample& sample)>;

  bool empty() const { return samples_.empty(); }
  size_t size() const { return samples_.size(); }
  const_iterator begin() const { return samples_.begin(); }
  const_iterator end() const { return samples_.end(); }
  const std::unique_ptr<Sample>& back() const { return samples_.back(); }

  void Add(std::unique_ptr<Sample> sample);
  // end() if it does not run. `sample` is only compared, so it may have been destroyed.
  const_iterator Find(const Sample* sample) const;
  // REQUIRES: `at` is not end().
  std::unique_ptr<Sample> Remove(const_iterator at);
  // The sample that is served first comes first.
  void SortByRank();

  // The samples of one request.
  std::vector<Sample*> Of(const ActiveRequest& request) const;
  // The sample that is served last; of those for which `counts` is true. Null if there is none.
  Sample* Lowest() const;
  Sample* LowestOf(Filter counts) const;
  // The sequences that run or may soon, of the samples for which `counts` is true: a beam search
  // counts with its whole width.
  uint64_t Slots() const;
  uint64_t SlotsOf(Filter counts) const;
  // The tokens that they would compute in the next step without a limit, at least one each.
  uint64_t TokensOfNextStep() const;

  // The searches of which a sequence waits for copies after `completed`. The others of the search
  // wait with it, so that all beams go through the model in one pass.
  std::set<const ActiveRequest*> SearchesThatCopy(Ticket completed) const;
  // The first ticket after `completed` that an open sequence waits for; Ticket() if none waits.
  Ticket FirstCopy(Ticket completed) const;

 private:
  List samples_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_RUNNING_SAMPLES_H_
