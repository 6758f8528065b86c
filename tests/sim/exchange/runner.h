// Runs seeds in separate processes, and replays a failure.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_RUNNER_H_
#define PAGODA_TESTS_SIM_EXCHANGE_RUNNER_H_

#include <cstdint>
#include <optional>

#include "tests/sim/exchange/coverage.h"

namespace pagoda::exchange_sim {

struct Plan {
  uint64_t first_seed = 0;
  uint64_t seeds = 2'000;
  uint32_t operations = 600;  // The operations of one seed.
  uint32_t workers = 2;
};

struct Outcome {
  uint64_t seeds = 0;  // Seeds that ran to their end.
  Coverage coverage;
  std::optional<uint64_t> failed_seed;  // The lowest that failed.
};

// Runs a plan up to the first failure.
Outcome RunAll(const Plan& plan);
// Runs a seed in this process, and stops it if the run fails. Prints the last `lines` lines of what
// happened.
void RunHere(uint64_t seed, uint32_t operations, size_t lines);
// Runs a seed in this process. Returns the digest of what was reported.
uint64_t DigestOf(uint64_t seed, uint32_t operations);
// Does what RunHere does, in a process of its own.
void Replay(uint64_t seed, uint32_t operations);

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_RUNNER_H_
