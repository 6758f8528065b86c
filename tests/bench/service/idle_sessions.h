// Sessions that do nothing, held by a separate process.
#ifndef PAGODA_TESTS_BENCH_SERVICE_IDLE_SESSIONS_H_
#define PAGODA_TESTS_BENCH_SERVICE_IDLE_SESSIONS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/service/child_process.h"
#include "tests/bench/service/service_calls.h"

namespace pagoda::bench {

// The main function of IdleSessions' child. Opens `count` streams, each with its own connection and
// session. Each session has run a batch of 256 operations and holds no blocks, so that other
// sessions have as many blocks as without it. Then prints that it is ready, and closes the streams
// when its standard input closes. Returns the exit status.
int HoldIdleSessions(const std::string& endpoint, Target target, int count);

// Open from the constructor to the destructor.
class IdleSessions {
 public:
  IdleSessions(const std::string& endpoint, Target target, int count)
      : process_({"--hold", absl::StrCat(count), "--endpoint", endpoint,
                  target == Target::kCache ? "--cache" : "--noop"}) {
    process_.ReadLine();
  }
  pid_t pid() const { return process_.pid(); }

 private:
  ChildProcess process_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_IDLE_SESSIONS_H_
