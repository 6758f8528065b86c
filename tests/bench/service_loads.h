// What the clients of the service benchmark do.
#ifndef PAGODA_TESTS_BENCH_SERVICE_LOADS_H_
#define PAGODA_TESTS_BENCH_SERVICE_LOADS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/bench/service_calls.h"

namespace pagoda::bench {

enum class Retry { kOff, kOn };

// 256 operations a message on a Session stream: every other one allocates a block, and those
// between free the blocks of the message before. Not thread-safe.
class SessionLoad {
 public:
  // `retry`: whether each batch has a retry_id of its own. `cache`: see Connection.
  SessionLoad(const std::string& endpoint, Target target, Retry retry = Retry::kOff,
              std::string cache = "");

  // One message.
  void Call();
  // Operations a second, measured for about `seconds`.
  double Rate(double seconds);

 private:
  const Retry retry_;
  SessionStream stream_;
  pagoda::v1::SessionRequest request_;
  pagoda::v1::SessionResponse response_;
};

// Microseconds of one unary Execute that allocates one block, with nothing else under way: the
// median of those made in about `seconds`. A session of its own, which is closed.
double UnaryMedian(Connection& connection, double seconds);

// Unary calls that allocate one block each, so many outstanding on each connection all the time:
// calls a second, measured for about `seconds`. A session for each connection, which is closed.
double UnaryRate(const std::vector<std::unique_ptr<Connection>>& connections, int outstanding_each,
                 double seconds);

// Microseconds of one unary Execute of a batch without operations: the p50 and the p99 of so many
// calls. A session of its own, which is closed.
std::vector<double> EmptyCallPercentiles(Connection& connection, int calls);

// How the appends of a step are said: 256 operations, or one in packed arrays.
enum class StepForm { kEach, kPacked };

// 256 running sequences; a step is one batch that appends one token to each, and declares the one
// before computed. Not thread-safe.
class DecodeLoad {
 public:
  DecodeLoad(const std::string& endpoint, Target target, StepForm form = StepForm::kEach)
      : stream_(endpoint, target), form_(form) {}

  // The p50 and the p99, in microseconds, of `steps` steps. The sequences are new, with a prompt of
  // 100 tokens, and are freed afterwards, outside of the clock.
  std::vector<double> Percentiles(int steps);

 private:
  void AddSequences();
  void FreeSequences();
  void NameTokens(pagoda::v1::Batch& batch);
  double Step();

  SessionStream stream_;
  const StepForm form_;
  std::mt19937 random_{1};
  uint64_t step_ = 0;
  uint64_t first_sequence_ = 1;
  uint32_t tokens_ = 0;  // Of each sequence.
  pagoda::v1::SessionRequest request_;
  pagoda::v1::SessionResponse response_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_LOADS_H_
