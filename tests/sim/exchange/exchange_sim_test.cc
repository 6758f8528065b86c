// The deterministic simulation of the exchange: many small worlds, each decided by its seed.
// README.md says what it checks and how a failure is run again.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/sim/exchange/runner.h"

namespace pagoda::exchange_sim {
namespace {

// A build with sanitizers or without optimisation takes more than ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr uint64_t kSeeds = 100;
#else
constexpr uint64_t kSeeds = 2'000;
#endif

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

Plan PlanFromEnvironment() {
  return {.first_seed = FromEnvironment("PAGODA_EXCHANGE_SIM_FIRST_SEED", 0),
          .seeds = FromEnvironment("PAGODA_EXCHANGE_SIM_SEEDS", kSeeds),
          .operations =
              static_cast<uint32_t>(FromEnvironment("PAGODA_EXCHANGE_SIM_OPS", Plan().operations)),
          .workers = static_cast<uint32_t>(FromEnvironment("PAGODA_SIM_WORKERS", 2))};
}

TEST(ExchangeSimTest, EveryRunHolds) {
  const Plan plan = PlanFromEnvironment();
  const Outcome outcome = RunAll(plan);
  if (outcome.failed_seed.has_value()) {
    Replay(*outcome.failed_seed, plan.operations);
    FAIL() << "seed " << *outcome.failed_seed << " fails. To run it again:\n  exchange_sim_test "
           << "--seed=" << *outcome.failed_seed << " --ops=" << plan.operations;
  }
  std::string met = absl::StrCat(outcome.seeds, " seeds of ", plan.operations, " operations; met:");
  for (size_t i = 0; i < kMetNames.size(); ++i) {
    absl::StrAppend(&met, i % 4 == 0 ? "\n " : ", ", std::string(kMetNames[i]), " ",
                    outcome.coverage.counts[i]);
  }
  std::printf("%s\n", met.c_str());
  if (outcome.seeds < 1'000) return;
  // The runs must have met every case, and often.
  for (size_t i = 0; i < kMetNames.size(); ++i) {
    EXPECT_GT(outcome.coverage.counts[i], outcome.seeds / 50) << kMetNames[i];
  }
}

TEST(ExchangeSimTest, TheSameSeedGivesTheSameReports) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const uint64_t digest = DigestOf(seed, 300);
    EXPECT_EQ(DigestOf(seed, 300), digest) << "seed " << seed;
    digests.insert(digest);
  }
  EXPECT_EQ(digests.size(), 16u);
}

// --seed=N [--ops=M] [--trace=LINES]: does one run. Returns nothing if the arguments do not ask for
// that.
std::optional<int> RunOne(int argc, char** argv) {
  std::optional<uint64_t> seed;
  uint32_t operations = Plan().operations, lines = 80;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool good = false;
    if (absl::ConsumePrefix(&argument, "--seed=")) {
      good = absl::SimpleAtoi(argument, &seed.emplace());
    } else if (absl::ConsumePrefix(&argument, "--ops=")) {
      good = absl::SimpleAtoi(argument, &operations);
    } else if (absl::ConsumePrefix(&argument, "--trace=")) {
      good = absl::SimpleAtoi(argument, &lines);
    }
    if (!good) {
      std::fprintf(stderr, "usage: %s [--seed=N [--ops=M] [--trace=LINES]]\n", argv[0]);
      return 2;
    }
  }
  if (!seed.has_value()) return std::nullopt;
  RunHere(*seed, operations, lines);
  std::printf("seed %llu: %u operations hold\n", static_cast<unsigned long long>(*seed),
              operations);
  return 0;
}

}  // namespace
}  // namespace pagoda::exchange_sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::optional<int> status = pagoda::exchange_sim::RunOne(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
