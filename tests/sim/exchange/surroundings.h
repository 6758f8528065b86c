// What the parts of a run share.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_
#define PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "tests/sim/exchange/config.h"
#include "tests/sim/exchange/content.h"
#include "tests/sim/exchange/coverage.h"
#include "tests/sim/exchange/timeline.h"
#include "tests/sim/words/random.h"
#include "tests/sim/words/trace.h"

namespace pagoda::exchange_sim {

struct Surroundings {
  SimConfig config;
  Library library{&config};
  Timeline timeline;
  Coverage coverage;
  sim::Trace* trace = nullptr;  // Outlives the run.
  bool faults = true;           // False: copies succeed, and the store is faithful.
  uint64_t digest = 0;          // The digest of what has been reported.

  void Note(uint64_t what) {
    digest = sim::Mix(digest ^
                      sim::Mix(what + static_cast<uint64_t>(absl::ToUnixMicros(timeline.now()))));
  }
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_
