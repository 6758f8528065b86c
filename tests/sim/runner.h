// Runs seeds in processes of their own, replays what fails and makes it smaller.
#ifndef PAGODA_TESTS_SIM_RUNNER_H_
#define PAGODA_TESTS_SIM_RUNNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/coverage.h"

namespace pagoda::sim {

// One run, or what is left of it: operations [0, operations) but for those to skip.
struct SimRun {
  uint64_t seed = 0;
  uint32_t operations = 10'000;
  struct Range {
    uint32_t begin, end;
  };
  std::vector<Range> skip;  // Ascending, apart.

  bool Skips(uint32_t operation) const;
  uint32_t Size() const;
  // The arguments with which sim_test does this run: "--seed=7 --ops=31 --skip=0-4,9-11".
  std::string Arguments() const;
};
// "0-4,9-11"; nothing where it is not of that form.
std::optional<std::vector<SimRun::Range>> ParseRanges(const std::string& text);

struct Plan {
  uint64_t first_seed = 0;
  uint64_t seeds = 2'000;
  uint32_t operations = 10'000;
  uint32_t workers = 2;
  // Of this many seeds one runs twice, the second time through the slower ShadowTree, and must be
  // the same.
  uint32_t twice_every = 16;
};

struct Outcome {
  uint64_t seeds = 0;       // That ran to their end.
  uint64_t operations = 0;  // Of these.
  Coverage coverage;
  std::optional<SimRun> failure;  // The first run that failed.
};

// Does the runs of a plan, up to the first that fails.
Outcome RunAll(const Plan& plan);
// Does one run in this process, then prints its last `lines` lines of what it did; a failure does
// so, too, and stops the process.
void RunHere(const SimRun& run, size_t lines);
// Does one run in this process. Returns the digest of its events and copies (digest.h).
uint64_t DigestOf(const SimRun& run);
// What is wrong with a run, without the numbers in it: does it in a process of its own that prints
// nothing. Empty where nothing is wrong.
std::string FailureOf(const SimRun& run);
// The same in a process that prints its last operations and what is wrong.
void Replay(const SimRun& run);
// Leaves out operations as long as what is left fails in the same way, for about `seconds`.
SimRun Shrink(const SimRun& run, double seconds);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RUNNER_H_
