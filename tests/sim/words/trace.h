// The last actions of a run, as text, for the report of a failure.
#ifndef PAGODA_TESTS_SIM_WORDS_TRACE_H_
#define PAGODA_TESTS_SIM_WORDS_TRACE_H_

#include <deque>
#include <string>

namespace pagoda::sim {

// Off unless a failure is replayed, because making the text takes longer than the run itself.
class Trace {
 public:
  explicit Trace(size_t lines) : lines_(lines) {}

  bool on() const { return lines_ > 0; }
  void Add(std::string line) {
    if (!on()) return;
    last_.push_back(std::move(line));
    if (last_.size() > lines_) last_.pop_front();
  }
  const std::deque<std::string>& last() const { return last_; }

 private:
  const size_t lines_;
  std::deque<std::string> last_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_TRACE_H_
