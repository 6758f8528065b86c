#include "clients/pagodactl/parser.h"

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
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/number_check.h"
#include "clients/pagodactl/completion/commands.h"
#include "clients/pagodactl/events/commands.h"
#include "clients/pagodactl/generate/commands.h"
#include "clients/pagodactl/plan/commands.h"
#include "clients/pagodactl/prefix/commands.h"
#include "clients/pagodactl/replay/commands.h"
#include "clients/pagodactl/router/commands.h"
#include "clients/pagodactl/store/commands.h"
#include "clients/pagodactl/terminal/printable_output.h"
#include "clients/pagodactl/top/commands.h"
#include "clients/pagodactl/trace/commands.h"

namespace pagoda {
namespace {

constexpr char kFooter[] = R"(Examples:
  pagodactl status
  pagodactl top
  pagodactl caches
  pagodactl watch --cache llama --from-revision 1
  pagodactl generate --random-prompt 64 --seed 7
  pagodactl workload --conversations 100 --concurrency 16
  pagodactl pin --tokens 1,2,3,4 --lease 3600
  pagodactl replay clients/pagodactl/testdata/chat.jsonl --blocks 200 --host-blocks 400
  pagodactl replay trace.jsonl --tiers hbm:gpu:1000,dram:host:9000,nvme:disk:40000
  pagodactl plan --preset qwen3-8b --primary 80GiB

"pagodactl COMMAND --help" describes a command.
Exit codes: 0 success, 1 the operation failed, 2 bad usage, 3 no daemon answers.)";

void AddGlobalOptions(CLI::App& app, GlobalOptions& globals) {
  app.add_option("--endpoint", globals.endpoint, "The daemon: host:port or unix:/path")
      ->envname("PAGODA_ENDPOINT")
      ->capture_default_str();
  app.add_option("--cache", globals.cache,
                 "The name of the daemon's cache; not needed if the daemon has only one")
      ->type_name("NAME");
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  app.add_option("-o,--output", globals.output, "table for people, json for programs")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("table|json [table]");
  app.add_option("--timeout", globals.timeout_seconds,
                 "Seconds to wait for the connection, and for each answer")
      ->check(AboveZero())
      ->capture_default_str();
  AddCredentialOptions(app, globals.credentials);
  app.set_version_flag("--version", "pagodactl " PAGODA_VERSION);
}

// The headings of --help, in this order.
void GroupCommands(CLI::App& app) {
  const std::pair<const char*, std::vector<const char*>> groups[] = {
      {"Look",
       {"status", "top", "advise", "caches", "sessions", "sequences", "tenants", "inspect", "route",
        "pins", "watch", "store"}},
      {"Prefixes", {"pin", "unpin", "offload", "prefetch", "fetch", "invalidate", "retain"}},
      {"Clients and the daemon", {"end-session", "quarantine", "drain"}},
      {"Try and measure", {"generate", "chat", "workload", "bench"}},
      {"Without a daemon", {"replay", "trace", "plan", "completion"}}};
  for (const auto& [heading, names] : groups) {
    for (const char* name : names) app.get_subcommand(name)->group(heading);
  }
}

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
  std::string path;  // Of the commands before the word.
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
  return absl::StrCat("there is no command '", path, word, "'; ",
                      nearest.empty()
                          ? absl::StrCat("\"pagodactl ", path, "--help\" lists the commands")
                          : absl::StrCat("did you mean '", path, nearest, "'?"));
}

}  // namespace

void BuildParser(CLI::App& app, GlobalOptions& globals, Action& chosen) {
  app.require_subcommand(1);
  // Global options can also follow the command.
  app.fallthrough();
  AddGlobalOptions(app, globals);
  AddStatusCommand(app, globals, chosen);
  AddTopCommand(app, globals, chosen);
  AddAdviseCommand(app, globals, chosen);
  AddCachesCommand(app, globals, chosen);
  AddListCommands(app, globals, chosen);
  AddInspectCommand(app, globals, chosen);
  AddRouteCommand(app, globals, chosen);
  AddWatchCommand(app, globals, chosen);
  AddPrefixCommands(app, globals, chosen);
  AddFetchCommand(app, globals, chosen);
  AddOperatorCommands(app, globals, chosen);
  AddStoreCommand(app, globals, chosen);
  AddGenerateCommand(app, globals, chosen);
  AddChatCommand(app, globals, chosen);
  AddWorkloadCommand(app, globals, chosen);
  AddBenchCommand(app, globals, chosen);
  AddReplayCommand(app, globals, chosen);
  AddTraceCommand(app, globals, chosen);
  AddPlanCommand(app, globals, chosen);
  AddCompletionCommand(app, globals, chosen);
  GroupCommands(app);
  app.footer(kFooter);  // Commands take the footer that their parent has when they are added.
}

int RunPagodactl(int argc, char** argv) {
  const PrintableOutput output;
  GlobalOptions globals;
  Action chosen;
  CLI::App app("Shows and operates the KV caches of a Pagoda daemon.", "pagodactl");
  BuildParser(app, globals, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version also end up here, with code 0.
    const std::string unknown = error.get_exit_code() == 0 ? "" : UnknownCommand(app);
    if (!unknown.empty()) {
      std::cerr << "pagodactl: " << unknown << std::endl;
      return kExitBadUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitBadUsage;
  }
  const absl::Status status = chosen();
  const int exit_code = ReportOutcome("pagodactl", "--endpoint", status);
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
