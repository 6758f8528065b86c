// The completion script, run by bash.
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/pagodactl/parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// The words that bash offers after these words. The last word is incomplete.
std::vector<std::string> Complete(const std::vector<std::string>& words) {
  const TempDirectory directory;
  const std::string script = directory.File("complete.sh");
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(absl::StrCat("'", word, "'"));
  std::ofstream(script) << "set -eu\n"
                        << "source <(" PAGODACTL " completion bash)\n"
                        << "complete -p pagodactl >/dev/null\n"
                        << "cd " << directory.path() << "\n"
                        << "COMP_WORDS=(pagodactl " << absl::StrJoin(quoted, " ") << ")\n"
                        << "COMP_CWORD=" << words.size() << "\n"
                        << "COMPREPLY=()\n"
                        << "_pagodactl\n"
                        << "printf '%s\\n' \"${COMPREPLY[@]:-}\"\n";
  const std::string out = directory.File("out");
  EXPECT_EQ(std::system(absl::StrCat("bash ", script, " >", out).c_str()), 0)
      << absl::StrJoin(words, " ");
  return Lines(ReadFile(out));
}

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
  // As bash cuts "--output=j".
  EXPECT_THAT(Complete({"status", "--output", "=", "j"}), ElementsAre("json"));
  EXPECT_THAT(Complete({"status", "--output", "="}), UnorderedElementsAre("table", "json"));
  EXPECT_THAT(Complete({"replay", "--policy", "l"}), UnorderedElementsAre("lru", "learned"));
  EXPECT_THAT(Complete({"watch", "--type", "c"}), ElementsAre("created"));
}

TEST(CompletionTest, AnOptionsValueIsNoCommand) {
  EXPECT_THAT(Complete({"--endpoint", "top", "stat"}), ElementsAre("status"));
  EXPECT_THAT(Complete({"pin", "--salt", ""}), IsEmpty()) << "only the user knows";
}

TEST(CompletionTest, FilesCompleteWhereAFileIsWanted) {
  // The folder in which bash runs has the script and its output.
  EXPECT_THAT(Complete({"inspect", "--token-file", "comp"}), ElementsAre("complete.sh"));
  EXPECT_THAT(Complete({"replay", "comp"}), ElementsAre("complete.sh"));
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
