#include "clients/command_line/program.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"

namespace pagoda {
namespace {

// How many letters of `a` must be added, left out or changed to make `b` of it.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);  // From the first letters of `a` to each start of `b`.
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// What is wrong, if a word stands where a command is expected and is none; else empty. `app` has
// been parsed. CLI11 says only that there is no command, or that the word was not expected.
std::string UnknownCommand(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  if (words.empty() || words.front().empty() || words.front().front() == '-') return "";
  const std::string& word = words.front();
  std::string path;  // The commands before the word.
  const CLI::App* parent = &app;
  while (!parent->get_subcommands().empty()) {
    parent = parent->get_subcommands().front();
    absl::StrAppend(&path, parent->get_name(), " ");
  }
  std::string nearest;
  size_t least = 1 + word.size() / 3;  // More letters make another word.
  bool has_commands = false;
  for (const CLI::App* command : parent->get_subcommands(nullptr)) {
    if (command->get_name().empty()) continue;  // A group of options.
    has_commands = true;
    const size_t distance = EditDistance(word, command->get_name());
    if (distance > least || (distance == least && !nearest.empty())) continue;
    least = distance;
    nearest = command->get_name();
  }
  if (!has_commands) return "";
  return absl::StrCat(
      "there is no command '", path, word, "'; ",
      nearest.empty() ? absl::StrCat("\"", app.get_name(), " ", path, "--help\" lists the commands")
                      : absl::StrCat("did you mean '", path, nearest, "'?"));
}

}  // namespace

void AddConnectionOptions(CLI::App& app, GlobalOptions& globals) {
  app.add_option("--endpoint", globals.endpoint, "The daemon: host:port or unix:/path")
      ->envname("PAGODA_ENDPOINT")
      ->capture_default_str();
  app.add_option("--cache", globals.cache,
                 "The name of the daemon's cache; not needed if the daemon has only one")
      ->type_name("NAME");
  app.add_option("--timeout", globals.timeout_seconds,
                 "Seconds to wait for the connection, and for each answer")
      ->check(AboveZero())
      ->capture_default_str();
  AddCredentialOptions(app, globals.credentials);
}

void AddOutputOption(CLI::App& app, GlobalOptions& globals) {
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  app.add_option("-o,--output", globals.output, "table for people, json for programs")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("table|json [table]");
}

int RunCommandLine(CLI::App& app, const Action& chosen, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version also end up here, with code 0.
    const std::string unknown = error.get_exit_code() == 0 ? "" : UnknownCommand(app);
    if (!unknown.empty()) {
      std::cerr << app.get_name() << ": " << unknown << std::endl;
      return kExitBadUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitBadUsage;
  }
  const absl::Status status = chosen();
  const int exit_code = ReportOutcome(app.get_name(), "--endpoint", status);
  if (absl::IsUnauthenticated(status)) {
    std::cerr << "Identify yourself with --auth-token-file or PAGODA_TOKEN_FILE, or with "
                 "--certificate and --key."
              << std::endl;
  }
  if (ReasonOf(status) == Reason::kCacheNotNamed) {
    std::cerr << "Name a cache with --cache NAME; \"pagodactl caches\" lists them." << std::endl;
  }
  return exit_code;
}

}  // namespace pagoda
