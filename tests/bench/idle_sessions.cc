#include "tests/bench/idle_sessions.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

namespace pagoda::bench {

int HoldIdleSessions(const std::string& endpoint, Target target, int count) {
  std::vector<std::unique_ptr<SessionStream>> sessions;
  for (int i = 0; i < count; ++i) {
    sessions.push_back(std::make_unique<SessionStream>(endpoint, target));
  }
  std::cout << "ready" << std::endl;
  WaitUntilStdinCloses();
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench
