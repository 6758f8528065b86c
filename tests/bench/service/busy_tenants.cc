#include "tests/bench/service/busy_tenants.h"

#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "tests/bench/service/bench_server.h"
#include "tests/bench/service/service_loads.h"

namespace pagoda::bench {
namespace {

// A batch takes less than a millisecond.
constexpr absl::Duration kUntilAnswered = absl::Milliseconds(20);

}  // namespace

int RunBusyTenants(const std::string& endpoint, Target target) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> sessions;
  absl::BlockingCounter open(kBusyTokens.size());
  for (const char* const token : kBusyTokens) {
    sessions.emplace_back([&, token] {
      SessionLoad load(endpoint, target, Retry::kOff, {.token = token});
      open.DecrementCount();
      while (!stop) load.Call();
    });
  }
  open.Wait();
  std::cout << "ready" << std::endl;
  WaitUntilStdinCloses();
  stop = true;
  for (std::thread& session : sessions) session.join();
  return EXIT_SUCCESS;
}

void BusyTenants::GoOn() { kill(pid(), SIGCONT); }

void BusyTenants::Stop() {
  kill(pid(), SIGSTOP);
  absl::SleepFor(kUntilAnswered);
}

}  // namespace pagoda::bench
