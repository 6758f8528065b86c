// The daemon that the service benchmark calls, in a separate process.
#ifndef PAGODA_TESTS_BENCH_BENCH_SERVER_H_
#define PAGODA_TESTS_BENCH_BENCH_SERVER_H_

#include <string>

#include "tests/bench/child_process.h"

namespace pagoda::bench {

// The main function of a BenchServer's child (`sparse`: see below). Runs a daemon with NoopService
// beside its own services, prints its addresses, and ends when its standard input closes. Returns
// the exit status.
int RunBenchServer(bool sparse = false);

// Runs until it is destroyed.
class BenchServer {
 public:
  BenchServer() : BenchServer("--serve") {}
  // `role`: "--serve", or "--serve-sparse". With "--serve-sparse", caches that clients open take
  // memory only when it is touched.
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
