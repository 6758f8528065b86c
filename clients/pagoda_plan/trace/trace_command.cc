// pagoda-plan trace: makes traces for replay.
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/pagoda_plan/trace/commands.h"
#include "clients/pagoda_plan/trace/workload_trace.h"

namespace pagoda {
namespace {

struct TraceGenerateOptions {
  std::string file;  // Empty: standard output.
  WorkloadOptions workload;
};

absl::Status RunTraceGenerate(const TraceGenerateOptions& options) {
  const Trace trace = GenerateWorkload(options.workload);
  if (options.file.empty()) {
    WriteTrace(trace, std::cout);
    std::cout.flush();
    if (std::cout) return absl::OkStatus();
    return MakeError(Reason::kInvalidArgument, "cannot write to standard output");
  }
  std::ofstream file(options.file);
  WriteTrace(trace, file);
  file.close();
  if (file) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot write ", options.file));
}

constexpr char kGenerateFooter[] =
    R"(The trace has Mooncake's format: a JSON object for each request, on a line. This command needs no
daemon. The same options give the same trace. Kinds:
  agents   long loops of tool calls behind shared system prompts and tool descriptions, with attempts
           that branch off, people who answer, and quiet nights
  chat     conversations behind shared system prompts, some with a document, with people who think
           and come back
  shift    chat in the first half of the requests, agents in the second
The page clients/pagoda_plan/commands.md names the distributions and their sources.
Examples:
  pagoda-plan trace generate --kind agents > agents.jsonl
  pagoda-plan trace generate --kind shift --requests 20000 --hours 8 --seed 7 shift.jsonl
  pagoda-plan replay agents.jsonl --blocks 1000:30000:x2 --policy lru,learned)";

}  // namespace

void AddTraceCommand(CLI::App& app, const GlobalOptions&, Action& chosen) {
  CLI::App* trace = app.add_subcommand("trace", "Makes request traces for replay");
  trace->require_subcommand(1);
  trace->footer("Examples:\n  pagoda-plan trace generate --kind agents > agents.jsonl");
  CLI::App* generate = trace->add_subcommand("generate", "Generates the trace of a workload");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<TraceGenerateOptions>();
  WorkloadOptions& workload = options->workload;
  generate->add_option("FILE", options->file, "Where the trace goes; without it, standard output");
  const std::map<std::string, WorkloadKind> kinds = {{"agents", WorkloadKind::kAgents},
                                                     {"chat", WorkloadKind::kChat},
                                                     {"shift", WorkloadKind::kShift}};
  generate->add_option("--kind", workload.kind, "What the requests are like")
      ->transform(CLI::CheckedTransformer(kinds))
      ->option_text("agents|chat|shift [agents]");
  generate->add_option("--requests", workload.requests, "The number of requests")
      ->check(CLI::Range(size_t{1}, size_t{10'000'000}))
      ->capture_default_str();
  generate->add_option("--hours", workload.hours, "The time over which sessions begin")
      ->check(CLI::Range(0.001, 10'000.0))
      ->capture_default_str();
  generate->add_option("--seed", workload.seed, "The seed of everything")->capture_default_str();
  generate->add_option("--tokens-per-block", workload.tokens_per_block, "Tokens of each hash id")
      ->check(CLI::IsMember({2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}))
      ->capture_default_str();
  generate->footer(kGenerateFooter);
  generate->callback(
      [&chosen, options] { chosen = [options] { return RunTraceGenerate(*options); }; });
}

}  // namespace pagoda
