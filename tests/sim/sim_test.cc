// The deterministic simulation: many small worlds, each decided by its seed. README.md says what it
// checks and how a failure is replayed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tests/sim/operations.h"
#include "tests/sim/runner.h"
#include "tests/sim/world.h"

namespace pagoda::sim {
namespace {

// A build with sanitizers or without optimisation takes more than ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr uint64_t kSeeds = 60;
#else
constexpr uint64_t kSeeds = 200;  // deploy/test.sh --long runs 2,000.
#endif

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

Plan PlanFromEnvironment() {
  return {.first_seed = FromEnvironment("PAGODA_SIM_FIRST_SEED", 0),
          .seeds = FromEnvironment("PAGODA_SIM_SEEDS", kSeeds),
          .operations = static_cast<uint32_t>(FromEnvironment("PAGODA_SIM_OPS", 10'000)),
          .workers = static_cast<uint32_t>(FromEnvironment("PAGODA_SIM_WORKERS", 2))};
}

void PrintCoverage(const Outcome& outcome) {
  std::printf("%llu seeds, %llu operations; met:\n", static_cast<unsigned long long>(outcome.seeds),
              static_cast<unsigned long long>(outcome.operations));
  for (size_t i = 0; i < kMetNames.size(); ++i) {
    std::printf("  %-17s %12llu\n", std::string(kMetNames[i]).c_str(),
                static_cast<unsigned long long>(outcome.coverage.counts[i]));
  }
}

TEST(SimTest, EveryRunHolds) {
  const Plan plan = PlanFromEnvironment();
  const Outcome outcome = RunAll(plan);
  if (outcome.failure.has_value()) {
    Replay(*outcome.failure);
    const SimRun smaller = Shrink(
        *outcome.failure, static_cast<double>(FromEnvironment("PAGODA_SIM_SHRINK_SECONDS", 30)));
    FAIL() << "seed " << outcome.failure->seed << " fails in operation "
           << outcome.failure->operations - 1 << ". To replay it:\n  sim_test "
           << outcome.failure->Arguments() << "\nor " << smaller.Size()
           << " operations of it:\n  sim_test " << smaller.Arguments();
  }
  PrintCoverage(outcome);
  if (outcome.operations < 1'000'000) return;
  // The runs must have met every case, and often. A policy seldom keeps its victim, because most
  // blocks that come from the tier above are worth more.
  for (size_t i = 0; i < kMetNames.size(); ++i) {
    const uint64_t rarity = static_cast<Met>(i) == Met::kKeptOut ? 2'000'000 : 100'000;
    EXPECT_GT(outcome.coverage.counts[i], outcome.operations / rarity) << kMetNames[i];
  }
}

// By order: a number for all its fields.
std::vector<uint64_t> DigestsOf(const std::vector<Order>& orders) {
  std::vector<uint64_t> digests;
  for (const Order& order : orders) {
    Digest digest;
    digest.Add(order);
    digests.push_back(digest.value());
  }
  return digests;
}

TEST(SimTest, TheSameSeedGivesTheSameEventsAndCopies) {
  Trace trace(0);
  size_t events = 0, orders = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    World first(seed, &trace), second(seed, &trace);
    for (World* world : {&first, &second}) {
      world->KeepEvents();
      for (uint32_t i = 0; i < 1'000; ++i) world->Step(i);
      world->Finish();
    }
    EXPECT_EQ(first.events(), second.events()) << "seed " << seed;
    EXPECT_EQ(DigestsOf(first.orders()), DigestsOf(second.orders())) << "seed " << seed;
    events += first.events().size();
    orders += first.orders().size();
  }
  EXPECT_GT(events, 1'000u);
  EXPECT_GT(orders, 100u);
}

// A line for each seed. Two builds that print the same lines behave the same: give --ops to both.
void PrintDigests(uint64_t seeds, uint32_t operations) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const uint64_t digest = DigestOf({.seed = seed, .operations = operations, .skip = {}});
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(digest));
  }
}

// --seed=N [--ops=M] [--skip=A-B,C-D] [--shrink] [--trace=LINES]: does one run, and prints its last
// operations if it fails. --digests=N [--ops=M]: prints the digests of seeds 0 to N - 1. Returns
// nothing if the arguments ask for neither.
std::optional<int> RunOne(int argc, char** argv) {
  SimRun run;
  bool asked = false, shrink = false;
  uint64_t digests = 0;
  size_t lines = 60;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool good = true;
    if (absl::ConsumePrefix(&argument, "--seed=")) {
      good = absl::SimpleAtoi(argument, &run.seed);
      asked = true;
    } else if (absl::ConsumePrefix(&argument, "--digests=")) {
      good = absl::SimpleAtoi(argument, &digests) && digests > 0;
    } else if (absl::ConsumePrefix(&argument, "--ops=")) {
      good = absl::SimpleAtoi(argument, &run.operations);
    } else if (absl::ConsumePrefix(&argument, "--skip=")) {
      const std::optional<std::vector<SimRun::Range>> skip = ParseRanges(std::string(argument));
      good = skip.has_value();
      if (good) run.skip = *skip;
    } else if (absl::ConsumePrefix(&argument, "--trace=")) {
      good = absl::SimpleAtoi(argument, &lines);
    } else if (argument == "--shrink") {
      shrink = true;
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr,
                   "usage: %s [--seed=N [--ops=M] [--skip=A-B,...] [--shrink] [--trace=LINES]]\n"
                   "       %s --digests=N [--ops=M]\n",
                   argv[0], argv[0]);
      return 2;
    }
  }
  if (digests > 0) {
    PrintDigests(digests, run.operations);
    return 0;
  }
  if (!asked) return std::nullopt;
  if (shrink) {
    if (FailureOf(run).empty()) return 0;
    run = Shrink(run, 300);
    std::printf("%u operations: sim_test %s\n", run.Size(), run.Arguments().c_str());
    std::fflush(stdout);
  }
  RunHere(run, lines);
  std::printf("seed %llu: %u operations hold\n", static_cast<unsigned long long>(run.seed),
              run.Size());
  return 0;
}

}  // namespace
}  // namespace pagoda::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::optional<int> status = pagoda::sim::RunOne(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
