// What the parts of a run share.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_
#define PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_

#include "tests/sim/exchange/config.h"
#include "tests/sim/exchange/content.h"
#include "tests/sim/exchange/coverage.h"
#include "tests/sim/exchange/timeline.h"
#include "tests/sim/trace.h"

namespace pagoda::exchange_sim {

struct Surroundings {
  SimConfig config;
  Library library{&config};
  Timeline timeline;
  Coverage coverage;
  sim::Trace* trace = nullptr;  // Outlives the run.
  bool faults = true;           // False: copies succeed, and the store is faithful.
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_SURROUNDINGS_H_
