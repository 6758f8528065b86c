#include "tests/bench/idle_sessions.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "tests/bench/service_loads.h"

namespace pagoda::bench {

int HoldIdleSessions(const std::string& endpoint, Target target, int count) {
  std::vector<std::unique_ptr<SessionLoad>> sessions;
  for (int i = 0; i < count; ++i) {
    sessions.push_back(std::make_unique<SessionLoad>(endpoint, target));
    sessions.back()->Call();
  }
  std::cout << "ready" << std::endl;
  WaitUntilStdinCloses();
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench
