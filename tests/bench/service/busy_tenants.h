// Tenants that send long batches without pause, in a separate process.
#ifndef PAGODA_TESTS_BENCH_SERVICE_BUSY_TENANTS_H_
#define PAGODA_TESTS_BENCH_SERVICE_BUSY_TENANTS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/service/child_process.h"
#include "tests/bench/service/service_calls.h"

namespace pagoda::bench {

// The main function of the child: a session of each of kBusyTokens, with one batch of 256
// operations under way, until its standard input closes. Returns the exit status.
int RunBusyTenants(const std::string& endpoint, Target target);

// The tenants are stopped until GoOn. Not thread-safe.
class BusyTenants {
 public:
  // Loads the server with this endpoint, which has the role kTenants.
  BusyTenants(const std::string& endpoint, Target target)
      : process_({"--busy", absl::StrCat(static_cast<int>(target)), "--endpoint", endpoint}) {
    process_.ReadLine();
    Stop();
  }
  ~BusyTenants() { GoOn(); }  // A stopped process cannot end.
  BusyTenants(const BusyTenants&) = delete;
  BusyTenants& operator=(const BusyTenants&) = delete;

  pid_t pid() const { return process_.pid(); }
  void GoOn();
  // Returns when the server is done with the batches that were under way.
  void Stop();

 private:
  ChildProcess process_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_BUSY_TENANTS_H_
