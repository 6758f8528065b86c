// Runs seeds in separate processes, replays failures and shrinks them.
#ifndef PAGODA_TESTS_SIM_RUNNER_H_
#define PAGODA_TESTS_SIM_RUNNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/words/coverage.h"

namespace pagoda::sim {

// A run or a part of one: operations [0, operations) except those to skip.
struct SimRun {
  uint64_t seed = 0;
  uint32_t operations = 10'000;
  struct Range {
    uint32_t begin, end;
  };
  std::vector<Range> skip;  // Ascending, not overlapping.

  bool Skips(uint32_t operation) const;
  uint32_t Size() const;
  // The arguments with which sim_test repeats this run: "--seed=7 --ops=31 --skip=0-4,9-11".
  std::string Arguments() const;
};
// Parses "0-4,9-11". Nothing if the text has another form.
std::optional<std::vector<SimRun::Range>> ParseRanges(const std::string& text);

struct Plan {
  uint64_t first_seed = 0;
  uint64_t seeds = 2'000;
  uint32_t operations = 10'000;
  uint32_t workers = 2;
  // One of this many seeds runs twice, the second time through the slower ShadowTree. Both runs
  // must be the same.
  uint32_t twice_every = 16;
};

struct Outcome {
  uint64_t seeds = 0;       // Seeds that ran to their end.
  uint64_t operations = 0;  // The operations of these seeds.
  Coverage coverage;
  std::optional<SimRun> failure;  // The first run that failed.
};

// Runs a plan up to the first failure.
Outcome RunAll(const Plan& plan);
// Runs one run in this process, then prints the last `lines` lines of its trace. A failure also
// prints them, and stops the process.
void RunHere(const SimRun& run, size_t lines);
// Runs one run in this process. Returns the digest of its events and copies (words/digest.h).
uint64_t DigestOf(const SimRun& run);
// The error of a run, without the numbers in it. Runs in a separate process that prints nothing.
// Empty if there is no error.
std::string FailureOf(const SimRun& run);
// Runs it in a process that prints its last operations and the error.
void Replay(const SimRun& run);
// Leaves out operations while the rest fails in the same way, for about `seconds`.
SimRun Shrink(const SimRun& run, double seconds);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RUNNER_H_
