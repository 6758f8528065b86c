// A short load of raw blocks. It measures single calls and batches. It uses no terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_GENERATE_BENCH_LOAD_H_
#define PAGODA_CLIENTS_PAGODACTL_GENERATE_BENCH_LOAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/command_line/command.h"
#include "clients/pagodactl/generate/latency_histogram.h"

namespace pagoda {

struct BenchOptions {
  double seconds = 5;  // Half of it unary calls, half of it batches.
  uint32_t batch = 256;
  uint32_t concurrency = 1;
};

// The result of one phase. Each thread sends a request and waits for its answer.
struct BenchPhase {
  uint64_t operations = 0;
  absl::Duration elapsed;
  LatencyHistogram latencies;  // Latencies of calls, or of batches.

  double operations_per_second() const {
    const double seconds = absl::ToDoubleSeconds(elapsed);
    return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
  }
};

struct BenchReport {
  BenchPhase unary;   // Execute with one operation.
  BenchPhase stream;  // The Session stream with `batch` operations a message.
};

// Allocates and frees raw blocks, one block per operation, in its own sessions. It closes the
// sessions at the end. Each thread holds at most `batch` blocks. Nothing is evicted for them,
// unless other clients take the free blocks meanwhile. `on_progress` is called on the caller's
// thread with the elapsed time. If it returns false, the run ends early, and the report covers the
// part that ran.
//
// Errors: FAILED_PRECONDITION (the load needs more blocks than are free), those of OpenSession and
// Execute, UNAVAILABLE.
absl::StatusOr<BenchReport> RunBench(const GlobalOptions& globals, const BenchOptions& options,
                                     const std::function<bool(absl::Duration)>& on_progress);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_GENERATE_BENCH_LOAD_H_
