// A short load of raw blocks: what a daemon answers to one client after another question, and to
// batches. Knows no terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_BENCH_LOAD_H_
#define PAGODA_CLIENTS_PAGODACTL_BENCH_LOAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/latency_histogram.h"

namespace pagoda {

struct BenchOptions {
  double seconds = 5;  // Half of it unary calls, half of it batches.
  uint32_t batch = 256;
  uint32_t concurrency = 1;
};

// Threads that each ask and wait for the answer.
struct BenchPhase {
  uint64_t operations = 0;
  absl::Duration elapsed;
  LatencyHistogram latencies;  // Of calls, or of batches.

  double operations_per_second() const {
    const double seconds = absl::ToDoubleSeconds(elapsed);
    return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
  }
};

struct BenchReport {
  BenchPhase unary;   // Execute with one operation.
  BenchPhase stream;  // The Session stream with `batch` operations a message.
};

// Takes and gives back raw blocks, one an operation, in sessions of its own, which it closes; each
// thread has at most `batch` at a time. Nothing is evicted for them unless others take the free
// blocks meanwhile. `on_progress` is called with the time passed, on the caller's thread, and ends
// the run early by returning false: then the report is of what was done.
//
// Errors: FAILED_PRECONDITION (fewer free blocks than the load takes), those of OpenSession and
// Execute, UNAVAILABLE.
absl::StatusOr<BenchReport> RunBench(const GlobalOptions& globals, const BenchOptions& options,
                                     const std::function<bool(absl::Duration)>& on_progress);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_BENCH_LOAD_H_
