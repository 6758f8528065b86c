// What every command of pagodactl has in common: its help, and how a wrong word is refused.
#include "clients/pagodactl/parser.h"

#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/commands.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

TEST(CommandsTest, EachCommandHasItsOwnExamples) {
  GlobalOptions globals;
  Action chosen;
  CLI::App app("", "pagodactl");
  BuildParser(app, globals, chosen);
  int commands = 0;
  VisitCommands(app, "", [&](const CLI::App& command, const std::string& path) {
    ++commands;
    EXPECT_EQ(RunProgram(absl::StrCat(path, " --help")).exit_code, 0) << path;
    if (command.get_footer().empty()) return;  // "caches list" is "caches".
    const auto [before, examples] =
        std::pair<std::string, std::string>(absl::StrSplit(command.get_footer(), "Examples:\n"));
    EXPECT_THAT(examples, HasSubstr(absl::StrCat("pagodactl ", path))) << path;
  });
  EXPECT_GT(commands, 30);
  EXPECT_THAT(app.get_footer(), HasSubstr("pagodactl status"));
}

TEST(CommandsTest, AnUnknownCommandIsNamedWithTheNearest) {
  const auto said = [](const std::string& arguments) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    return outcome.err;
  };
  EXPECT_EQ(said("statu"), "pagodactl: there is no command 'statu'; did you mean 'status'?\n");
  EXPECT_EQ(said("--cache a fetsh --tokens 1"),
            "pagodactl: there is no command 'fetsh'; did you mean 'fetch'?\n");
  EXPECT_EQ(said("store chek"),
            "pagodactl: there is no command 'store chek'; did you mean 'store check'?\n");
  EXPECT_EQ(said("caches shwo llama"),
            "pagodactl: there is no command 'caches shwo'; did you mean 'caches show'?\n");
  EXPECT_EQ(
      said("frobnicate"),
      "pagodactl: there is no command 'frobnicate'; \"pagodactl --help\" lists the commands\n");
  EXPECT_EQ(
      said("quarantine frob"),
      "pagodactl: there is no command 'quarantine frob'; \"pagodactl quarantine --help\" lists "
      "the commands\n");
  EXPECT_THAT(said("status more"), HasSubstr("not expected: more"));
  EXPECT_THAT(said(""), HasSubstr("subcommand is required"));
}

TEST(CommandsTest, AnErrorOfANumberIsShort) {
  for (const char* arguments : {"--timeout 0 status", "--timeout x status", "watch --count 0",
                                "generate --prompt-tokens 1 --temperature -1"}) {
    const std::string error = RunProgram(arguments).err;
    EXPECT_THAT(error, HasSubstr("is not a number")) << arguments;
    EXPECT_LT(error.size(), 150u) << error;
  }
}

TEST(CommandsTest, ACommandThatMovedNamesItsProgram) {
  const auto said = [](const std::string& arguments) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    return outcome.err;
  };
  constexpr char kReplay[] =
      "pagodactl: 'replay' has moved to another program: run 'pagoda-plan replay'\n";
  EXPECT_EQ(said("replay"), kReplay);
  EXPECT_EQ(said("replay trace.jsonl --blocks 100 --policy lru"), kReplay);
  EXPECT_EQ(said("replay --help"), kReplay);
  EXPECT_EQ(said("-o json --timeout=3 replay"), kReplay);
  EXPECT_THAT(said("plan --preset qwen3-8b"), HasSubstr("run 'pagoda-plan size'"));
  EXPECT_THAT(said("trace generate --kind agents"), HasSubstr("run 'pagoda-plan trace'"));
  EXPECT_THAT(said("--endpoint x workload"), HasSubstr("run 'pagoda-plan workload'"));
  // The value of an option, and an argument of a command.
  EXPECT_THAT(said("--cache replay"), HasSubstr("subcommand is required"));
  EXPECT_THAT(said("status replay"), HasSubstr("not expected: replay"));
}

}  // namespace
}  // namespace pagoda
