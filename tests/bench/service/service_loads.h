// The work of the service benchmark's clients.
#ifndef PAGODA_TESTS_BENCH_SERVICE_SERVICE_LOADS_H_
#define PAGODA_TESTS_BENCH_SERVICE_SERVICE_LOADS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/bench/service/service_calls.h"

namespace pagoda::bench {

enum class Retry { kOff, kOn };

// Sends messages of 256 operations on a Session stream. Every second operation allocates a block;
// the others free the blocks of the previous message. Not thread-safe.
class SessionLoad {
 public:
  // `retry`: whether each batch has a different retry_id.
  SessionLoad(const std::string& endpoint, Target target, Retry retry = Retry::kOff,
              const Caller& caller = {});

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

// The median microseconds of one unary Execute that allocates one block, with no other call under
// way, over about `seconds`. Uses a new session, and closes it.
double UnaryMedian(Connection& connection, double seconds);

// Calls a second, measured for about `seconds`: unary calls that allocate one block each, always
// with `outstanding_each` of them outstanding on each connection. Uses a new session for each
// connection, and closes it.
double UnaryRate(const std::vector<std::unique_ptr<Connection>>& connections, int outstanding_each,
                 double seconds);

// The p50 and the p99, in microseconds, of `calls` unary Executes of a batch without operations.
// Uses a new session, and closes it.
std::vector<double> EmptyCallPercentiles(Connection& connection, int calls);

// The p50, in microseconds, of `calls` batches without operations on a new session's stream or
// rings.
double EmptyBatchMedian(SessionStream& stream, int calls);

// How the appends of a step are sent: as 256 operations, or as one in packed arrays.
enum class StepForm { kEach, kPacked };

// 256 running sequences. A step is one batch that appends one token to each, and declares the
// previous token computed. Not thread-safe.
class DecodeLoad {
 public:
  DecodeLoad(const std::string& endpoint, Target target, StepForm form = StepForm::kEach,
             const Caller& caller = {})
      : stream_(endpoint, target, caller), form_(form) {}

  // The p50 and the p99, in microseconds, of `steps` steps, with `pause` before each. The sequences
  // are new, with a prompt of 100 tokens. Freeing them afterwards is not measured.
  std::vector<double> Percentiles(int steps, absl::Duration pause = absl::ZeroDuration());

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
  uint32_t tokens_ = 0;  // The tokens of each sequence.
  pagoda::v1::SessionRequest request_;
  pagoda::v1::SessionResponse response_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_SERVICE_LOADS_H_
