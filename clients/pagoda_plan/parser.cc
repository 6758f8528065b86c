#include "clients/pagoda_plan/parser.h"

#include "CLI/CLI.hpp"
#include "clients/command_line/completion/commands.h"
#include "clients/command_line/program.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagoda_plan/replay/commands.h"
#include "clients/pagoda_plan/size/commands.h"
#include "clients/pagoda_plan/trace/commands.h"
#include "clients/pagoda_plan/workload/commands.h"

namespace pagoda {
namespace {

constexpr char kProgramFooter[] = R"(Examples:
  pagoda-plan size --preset qwen3-8b --primary 80GiB
  pagoda-plan replay clients/pagoda_plan/testdata/chat.jsonl --blocks 200 --host-blocks 400
  pagoda-plan replay trace.jsonl --tiers hbm:gpu:1000,dram:host:9000,nvme:disk:40000
  pagoda-plan trace generate --kind agents > agents.jsonl
  pagoda-plan workload --conversations 100 --concurrency 16

"pagoda-plan COMMAND --help" describes a command. Only workload needs a daemon.
Exit codes: 0 success, 1 the operation failed, 2 bad usage, 3 no daemon answers.)";

}  // namespace

void BuildPlanParser(CLI::App& app, GlobalOptions& globals, Action& chosen) {
  app.require_subcommand(1);
  // Global options can also follow the command.
  app.fallthrough();
  AddOutputOption(app, globals);
  app.set_version_flag("--version", "pagoda-plan " PAGODA_VERSION);
  app.option_defaults()->group("The daemon of workload");
  AddConnectionOptions(app, globals);
  app.option_defaults()->group("Options");  // The group of the commands' options.
  AddSizeCommand(app, globals, chosen);
  AddReplayCommand(app, globals, chosen);
  AddTraceCommand(app, globals, chosen);
  AddWorkloadCommand(app, globals, chosen);
  AddCompletionCommand(app, globals, chosen);
  app.footer(
      kProgramFooter);  // Commands take the footer that their parent has when they are added.
}

int RunPagodaPlan(int argc, char** argv) {
  const PrintableOutput output;
  GlobalOptions globals;
  Action chosen;
  CLI::App app(
      "Plans a KV cache: computes its size, replays traces of requests, and loads a daemon.",
      "pagoda-plan");
  BuildPlanParser(app, globals, chosen);
  return RunCommandLine(app, chosen, argc, argv);
}

}  // namespace pagoda
