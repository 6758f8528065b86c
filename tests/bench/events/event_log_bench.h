// The cost of an event for its writer: it is recorded and appended to the log, in this process.
#ifndef PAGODA_TESTS_BENCH_EVENTS_EVENT_LOG_BENCH_H_
#define PAGODA_TESTS_BENCH_EVENTS_EVENT_LOG_BENCH_H_

namespace pagoda::bench {

// Prints log_append_removed and log_append_stored: nanoseconds per event, in batches of 256, to a
// full log, so that each event pushes an old one out.
void PrintLogAppend();

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_EVENTS_EVENT_LOG_BENCH_H_
