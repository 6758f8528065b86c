// The completion script, run by bash.
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "clients/pagodactl/parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/commands.h"

namespace pagoda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(CompletionTest, CommandsComplete) {
  EXPECT_THAT(Complete({"se"}), UnorderedElementsAre("sessions", "sequences"));
  EXPECT_THAT(Complete({"quarantine", ""}), IsSupersetOf({"list", "release", "--endpoint"}));
  EXPECT_THAT(Complete({"caches", ""}), IsSupersetOf({"list", "show", "open", "drop", "--cache"}));
  EXPECT_THAT(Complete({"completion", "b"}), ElementsAre("bash"));
  EXPECT_THAT(Complete({"frob"}), IsEmpty());
}

TEST(CompletionTest, OptionsAreThoseOfTheCommandAndOfAll) {
  EXPECT_THAT(Complete({"bench", "--"}),
              IsSupersetOf({"--seconds", "--batch", "--concurrency", "--endpoint", "--output"}));
  EXPECT_THAT(Complete({"bench", "--"}), Not(Contains("--lease")));
  EXPECT_THAT(Complete({"pin", "--to"}), UnorderedElementsAre("--tokens", "--token-file"));
  EXPECT_THAT(Complete({"quarantine", "release", "3", "--f"}), ElementsAre("--force"));
}

TEST(CompletionTest, ValuesThatAreKnownComplete) {
  EXPECT_THAT(Complete({"status", "-o", ""}), UnorderedElementsAre("table", "json"));
  EXPECT_THAT(Complete({"--output", "j"}), ElementsAre("json"));
  // Bash splits "--output=j" into these words.
  EXPECT_THAT(Complete({"status", "--output", "=", "j"}), ElementsAre("json"));
  EXPECT_THAT(Complete({"status", "--output", "="}), UnorderedElementsAre("table", "json"));
  EXPECT_THAT(Complete({"watch", "--type", "c"}), ElementsAre("created"));
}

TEST(CompletionTest, AnOptionsValueIsNoCommand) {
  EXPECT_THAT(Complete({"--endpoint", "top", "stat"}), ElementsAre("status"));
  EXPECT_THAT(Complete({"pin", "--salt", ""}), IsEmpty()) << "only the user knows";
}

TEST(CompletionTest, FilesCompleteWhereAFileIsWanted) {
  EXPECT_THAT(Complete({"inspect", "--token-file", "comp"}), ElementsAre("complete.sh"));
  EXPECT_THAT(Complete({"status", "comp"}), IsEmpty());
}

// The script is made from the parser, so it has every command and option that --help lists.
TEST(CompletionTest, NothingIsMissing) {
  GlobalOptions globals;
  Action chosen;
  CLI::App app("", "pagodactl");
  BuildParser(app, globals, chosen);
  const std::vector<std::string> commands = Complete({""});
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    EXPECT_THAT(commands, Contains(command->get_name()));
    const std::vector<std::string> words = Complete({command->get_name(), ""});
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        EXPECT_THAT(words, Contains(absl::StrCat("--", name))) << command->get_name();
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
