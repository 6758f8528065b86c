// The daemon that the events' benchmark watches, in a process of its own.
#ifndef PAGODA_TESTS_BENCH_EVENT_SERVER_H_
#define PAGODA_TESTS_BENCH_EVENT_SERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/child_process.h"

namespace pagoda::bench {

// Runs until it is destroyed. Beside its own services it has NoopService, whose Watch sends
// messages that were built before.
class EventServer {
 public:
  enum class Fill {
    kLog,          // `number` events of raw blocks in the log, created and removed by turns.
    kCache,        // `number` cached blocks of 16 tokens; then as kAllocations, 1,000 a second.
    kAllocations,  // `number` times a second it takes a raw block and frees it, and tells how long.
    kPrompts,  // `number` prompts a second of 8,192 tokens come, are cached, and push others out.
  };
  EventServer(Fill fill, uint32_t number);

  pid_t pid() const { return process_.pid(); }
  const std::string& endpoint() const { return endpoint_; }
  // kCache: the longest that the core's lock was held in a walk over all blocks, in milliseconds.
  double longest_piece_ms() const { return longest_piece_ms_; }
  // The next second's allocations, each in microseconds; of kPrompts the prompts.
  std::vector<double> ReadWindow();

 private:
  ChildProcess process_;
  const std::string endpoint_;
  double longest_piece_ms_ = 0;
};

// What the child of an EventServer does. Returns the exit status.
int RunEventServer(const std::string& fill, uint32_t number);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_EVENT_SERVER_H_
