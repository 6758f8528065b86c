// The daemon that the events' benchmark watches, in a separate process.
#ifndef PAGODA_TESTS_BENCH_EVENTS_EVENT_SERVER_H_
#define PAGODA_TESTS_BENCH_EVENTS_EVENT_SERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/service/child_process.h"

namespace pagoda::bench {

// Runs until it is destroyed. Beside its own services it has NoopService, whose Watch sends
// messages that were built in advance.
class EventServer {
 public:
  enum class Fill {
    kLog,  // `number` events of raw blocks in the log, created and removed in turn.
    // `number` cached blocks of 16 tokens; then the same as kAllocations, 1,000 a second.
    kCache,
    kAllocations,  // `number` times a second it takes and frees a raw block, and reports the time.
    kPrompts,      // Each second caches `number` prompts of 8,192 tokens, which push others out.
  };
  EventServer(Fill fill, uint32_t number);

  pid_t pid() const { return process_.pid(); }
  const std::string& endpoint() const { return endpoint_; }
  // kCache: the longest time that a walk over all blocks held the core's lock, in milliseconds.
  double longest_piece_ms() const { return longest_piece_ms_; }
  // The microseconds of each allocation of the next second; for kPrompts, of each prompt.
  std::vector<double> ReadWindow();

 private:
  ChildProcess process_;
  const std::string endpoint_;
  double longest_piece_ms_ = 0;
};

// The main function of an EventServer's child. Returns the exit status.
int RunEventServer(const std::string& fill, uint32_t number);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_EVENTS_EVENT_SERVER_H_
