#include "clients/pagodactl/parser.h"

#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "clients/command_line/completion/commands.h"
#include "clients/command_line/program.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/events/commands.h"
#include "clients/pagodactl/generate/commands.h"
#include "clients/pagodactl/prefix/commands.h"
#include "clients/pagodactl/store/commands.h"
#include "clients/pagodactl/top/commands.h"

namespace pagoda {
namespace {

constexpr char kFooter[] = R"(Examples:
  pagodactl status
  pagodactl top
  pagodactl caches
  pagodactl watch --cache llama --from-revision 1
  pagodactl generate --random-prompt 64 --seed 7
  pagodactl pin --tokens 1,2,3,4 --lease 3600

"pagodactl COMMAND --help" describes a command.
Exit codes: 0 success, 1 the operation failed, 2 bad usage, 3 no daemon answers.)";

// Commands that pagoda-plan has now.
struct MovedCommand {
  std::string_view name;
  std::string_view now;
};
constexpr MovedCommand kMovedCommands[] = {{"plan", "pagoda-plan size"},
                                           {"replay", "pagoda-plan replay"},
                                           {"trace", "pagoda-plan trace"},
                                           {"workload", "pagoda-plan workload"}};

// The first argument that is neither an option of the program nor the value of one. Empty: none.
std::string_view FirstWord(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.empty() || argument.front() != '-') return argument;
    const CLI::Option* option = app.get_option_no_throw(std::string(argument));
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return "";
}

// The headings of --help, in this order.
void GroupCommands(CLI::App& app) {
  const std::pair<const char*, std::vector<const char*>> groups[] = {
      {"Look",
       {"status", "top", "advise", "caches", "sessions", "sequences", "tenants", "inspect", "pins",
        "watch", "store"}},
      {"Prefixes", {"pin", "unpin", "offload", "prefetch", "fetch", "invalidate", "retain"}},
      {"Clients and the daemon", {"end-session", "quarantine", "drain"}},
      {"Try and measure", {"generate", "chat", "bench"}},
      {"Without a daemon", {"completion"}}};
  for (const auto& [heading, names] : groups) {
    for (const char* name : names) app.get_subcommand(name)->group(heading);
  }
}

}  // namespace

void BuildParser(CLI::App& app, GlobalOptions& globals, Action& chosen) {
  app.require_subcommand(1);
  // Global options can also follow the command.
  app.fallthrough();
  AddConnectionOptions(app, globals);
  AddOutputOption(app, globals);
  app.set_version_flag("--version", "pagodactl " PAGODA_VERSION);
  AddStatusCommand(app, globals, chosen);
  AddTopCommand(app, globals, chosen);
  AddAdviseCommand(app, globals, chosen);
  AddCachesCommand(app, globals, chosen);
  AddListCommands(app, globals, chosen);
  AddInspectCommand(app, globals, chosen);
  AddWatchCommand(app, globals, chosen);
  AddPrefixCommands(app, globals, chosen);
  AddFetchCommand(app, globals, chosen);
  AddOperatorCommands(app, globals, chosen);
  AddStoreCommand(app, globals, chosen);
  AddGenerateCommand(app, globals, chosen);
  AddChatCommand(app, globals, chosen);
  AddBenchCommand(app, globals, chosen);
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
  const std::string_view word = FirstWord(app, argc, argv);
  for (const MovedCommand& moved : kMovedCommands) {
    if (word != moved.name) continue;
    std::cerr << "pagodactl: '" << moved.name << "' has moved to another program: run '"
              << moved.now << "'" << std::endl;
    return kExitBadUsage;
  }
  return RunCommandLine(app, chosen, argc, argv);
}

}  // namespace pagoda
