// Sessions that do nothing, held by a process of their own.
#ifndef PAGODA_TESTS_BENCH_IDLE_SESSIONS_H_
#define PAGODA_TESTS_BENCH_IDLE_SESSIONS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/child_process.h"
#include "tests/bench/service_calls.h"

namespace pagoda::bench {

// What the child of IdleSessions does: opens `count` streams, each on a connection and with a
// session of its own that has run a batch of 256 operations and holds no blocks, so that the others
// have as many as without it; says so, and closes them when its standard input closes.
// Returns the exit status.
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

#endif  // PAGODA_TESTS_BENCH_IDLE_SESSIONS_H_
