// The daemon that the service benchmark asks, in a process of its own.
#ifndef PAGODA_TESTS_BENCH_BENCH_SERVER_H_
#define PAGODA_TESTS_BENCH_BENCH_SERVER_H_

#include <string>

#include "tests/bench/child_process.h"

namespace pagoda::bench {

// What the child of a BenchServer does (`sparse`: see below): runs a daemon with NoopService beside
// its own services, says where it listens, and ends when its standard input closes. Returns the
// exit status.
int RunBenchServer(bool sparse = false);

// Runs until it is destroyed.
class BenchServer {
 public:
  BenchServer() : BenchServer("--serve") {}
  // `role`: "--serve", or "--serve-sparse" for a daemon whose clients' caches take memory when it
  // is touched.
  explicit BenchServer(const std::string& role)
      : process_({role}), unix_(process_.ReadLine()), tcp_(process_.ReadLine()) {}

  pid_t pid() const { return process_.pid(); }
  const std::string& unix_endpoint() const { return unix_; }
  const std::string& tcp_endpoint() const { return tcp_; }

 private:
  ChildProcess process_;
  const std::string unix_;
  const std::string tcp_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_BENCH_SERVER_H_
