// The subscribers of the events' benchmark.
#ifndef PAGODA_TESTS_BENCH_EVENT_SUBSCRIBERS_H_
#define PAGODA_TESTS_BENCH_EVENT_SUBSCRIBERS_H_

#include <cstdint>
#include <string>

#include "tests/bench/child_process.h"

namespace pagoda::bench {

enum class Stream {
  kEvents,    // EventService.Watch from revision 1.
  kPrebuilt,  // NoopService.Watch.
};

// Events a second, from the first message to the one with which `events` have come.
double WatchRate(const std::string& endpoint, uint32_t events, Stream stream);

// Seconds from the call to the end of the snapshot, which has at least `blocks` blocks.
double SnapshotSeconds(const std::string& endpoint, uint32_t blocks);

struct SubscriberCounts {
  int fast = 0;     // Read all that comes.
  int slow = 0;     // Read a hundredth of it: 20 events a second.
  int stalled = 0;  // Read the first message.
  int alone = 0;    // The same, each with a filter that no other has. At most 15.
};

// Subscribers with a connection each, in a process of their own, until they are destroyed.
class Subscribers {
 public:
  Subscribers(const std::string& endpoint, const SubscriberCounts& counts);

 private:
  ChildProcess process_;
};

// What the child of Subscribers does. Returns the exit status.
int RunSubscribers(const std::string& endpoint, const SubscriberCounts& counts);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_EVENT_SUBSCRIBERS_H_
