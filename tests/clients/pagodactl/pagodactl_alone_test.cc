// Runs the program without a daemon, and checks exit codes and the standard output.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/program.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PagodactlTest, HelpAndVersionSucceed) {
  const Outcome help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("status"), HasSubstr("watch"),
                              HasSubstr("generate"), HasSubstr("PAGODA_ENDPOINT")));
  const Outcome version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("pagodactl "));
}

constexpr const char* kBadUsage[] = {"",
                                     "frobnicate",
                                     "status --frobnicate",
                                     "status -o xml",
                                     "--timeout 0 status",
                                     "--timeout -3 status",
                                     "watch --count 0",
                                     "watch --from-revision x",
                                     "watch --from-revision 1 --snapshot",
                                     "watch --type moved",
                                     "watch --window wide",
                                     "watch --chunk-tokens 256",
                                     "watch --hashes --chunk-tokens 0",
                                     "generate",
                                     "generate --prompt-tokens 1,x",
                                     "generate --prompt-tokens 1 --random-prompt 2",
                                     "generate --prompt-tokens 1 --max-new-tokens 0",
                                     "pin",
                                     "pin --tokens 1,x",
                                     "pin --tokens 1 --token-file -",
                                     "pin --tokens 1 --lease 0",
                                     "pin --all",
                                     "unpin",
                                     "unpin x",
                                     "pins 3",
                                     "offload",
                                     "prefetch --all",
                                     "invalidate --tokens 1 --all",
                                     "retain --tokens 1",
                                     "retain --tokens 1 --priority 101",
                                     "retain --tokens 1 --priority 3 --duration -1",
                                     "top --interval 0",
                                     "top --interval 1 --interval 2",
                                     "sessions --limit 0",
                                     "sequences --session x",
                                     "inspect",
                                     "inspect --all",
                                     "end-session",
                                     "end-session x",
                                     "quarantine frob",
                                     "quarantine release",
                                     "quarantine --force",
                                     "drain 3",
                                     "bench --seconds 0",
                                     "bench --batch 0",
                                     "bench --batch 4097",
                                     "bench --concurrency 0",
                                     "completion",
                                     "completion fish"};

TEST(PagodactlTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments : kBadUsage) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(PagodactlTest, NoDaemonExitsWithThreeAndAHint) {
  for (const char* arguments : {"status",
                                "watch",
                                "generate --prompt-tokens 1",
                                "status -o json",
                                "pins",
                                "pin --tokens 1",
                                "unpin 1",
                                "offload --tokens 1",
                                "prefetch --tokens 1",
                                "invalidate --all",
                                "retain --tokens 1 --priority 3",
                                "top",
                                "top --once -o json",
                                "caches",
                                "caches show a",
                                "caches drop a",
                                "caches open a --model m --layers 1x1x8",
                                "sessions",
                                "sequences",
                                "tenants",
                                "inspect --tokens 1",
                                "end-session 1",
                                "quarantine",
                                "quarantine release 1",
                                "drain --wait",
                                "bench"}) {
    const Outcome outcome =
        RunProgram(absl::StrCat(arguments, " --endpoint unix:/nonexistent/pagoda.sock"));
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("unix:/nonexistent/pagoda.sock"), HasSubstr("deploy/run.sh")));
  }
}

}  // namespace
}  // namespace pagoda
