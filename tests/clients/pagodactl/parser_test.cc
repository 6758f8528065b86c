// What every command of pagodactl has in common: its help, and how a wrong word is refused.
#include "clients/pagodactl/parser.h"

#include <functional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/program.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Calls `visit` with each command and its path, such as "store check".
void VisitCommands(const CLI::App& app, const std::string& path,
                   const std::function<void(const CLI::App&, const std::string&)>& visit) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name().empty()) continue;  // A group of options.
    const std::string name =
        path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name());
    visit(*command, name);
    VisitCommands(*command, name, visit);
  }
}

TEST(CommandsTest, EachCommandHasItsOwnExamples) {
  GlobalOptions globals;
  Action chosen;
  CLI::App app;
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
  EXPECT_GT(commands, 35);
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

TEST(CommandsTest, APlanThatDoesNotFitFails) {
  const Outcome none = RunProgram("plan --preset qwen3-8b --primary 512MiB");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("fits 0 sequences of 8,192 tokens at once"));
  EXPECT_THAT(none.err, AllOf(HasSubstr("primary tier in 512MiB fits 0 of 1 sequence"),
                              HasSubstr("which take 1.1 GiB")));
  const Outcome few = RunProgram("plan --preset qwen3-8b --primary 80GiB --sequences 72");
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_THAT(few.err, HasSubstr("fits 71 of 72 sequences"));
}

}  // namespace
}  // namespace pagoda
