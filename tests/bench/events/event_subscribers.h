// The subscribers of the events' benchmark.
#ifndef PAGODA_TESTS_BENCH_EVENTS_EVENT_SUBSCRIBERS_H_
#define PAGODA_TESTS_BENCH_EVENTS_EVENT_SUBSCRIBERS_H_

#include <cstdint>
#include <string>

#include "tests/bench/service/child_process.h"

namespace pagoda::bench {

enum class Stream {
  kEvents,    // EventService.Watch from revision 1.
  kPrebuilt,  // NoopService.Watch.
};

// Events a second, from the first message to the one that completes `events` events.
double WatchRate(const std::string& endpoint, uint32_t events, Stream stream);

// Seconds from the call to the end of the snapshot, which has at least `blocks` blocks.
double SnapshotSeconds(const std::string& endpoint, uint32_t blocks);

struct SubscriberCounts {
  int fast = 0;     // These read every message.
  int slow = 0;     // These read 20 events a second, a hundredth of them.
  int stalled = 0;  // These read only the first message.
  int alone = 0;    // Like `stalled`, each with a different filter. At most 15.
};

// How long events take to the subscribers that read every message: from the operation to the
// reader, in microseconds.
struct Latency {
  double p50 = 0;
  double p99 = 0;
};

// Subscribers with a connection each, in a separate process, until they are destroyed.
class Subscribers {
 public:
  Subscribers(const std::string& endpoint, const SubscriberCounts& counts);
  pid_t pid() const { return process_.pid(); }
  // Ends the subscriptions. The oldest event of each message counts.
  Latency End();

 private:
  ChildProcess process_;
};

// The main function of Subscribers' child. Returns the exit status.
int RunSubscribers(const std::string& endpoint, const SubscriberCounts& counts);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_EVENTS_EVENT_SUBSCRIBERS_H_
