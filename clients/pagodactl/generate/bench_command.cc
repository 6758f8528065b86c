// pagodactl bench: measures how fast a daemon answers.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/progress_bar.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/generate/bench_load.h"
#include "clients/pagodactl/generate/commands.h"
#include "manager/api/operation.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

Json PhaseJson(const BenchPhase& phase) {
  return {{"operations", phase.operations},
          {"elapsed_seconds", absl::ToDoubleSeconds(phase.elapsed)},
          {"operations_per_second", phase.operations_per_second()},
          {"latency_p50_seconds", absl::ToDoubleSeconds(phase.latencies.Percentile(0.50))},
          {"latency_p99_seconds", absl::ToDoubleSeconds(phase.latencies.Percentile(0.99))}};
}

void PrintPhase(const std::string& name, const BenchPhase& phase) {
  Print("%-34s  %14s  %10s  %10s\n", name,
        FormatCount(static_cast<uint64_t>(phase.operations_per_second())),
        FormatElapsed(phase.latencies.Percentile(0.50)),
        FormatElapsed(phase.latencies.Percentile(0.99)));
}

void PrintReport(const BenchOptions& options, const BenchReport& report) {
  Print("%-34s  %14s  %10s  %10s\n",
        absl::StrFormat("%d client%s at once", options.concurrency,
                        options.concurrency == 1 ? "" : "s"),
        "OPERATIONS/S", "P50", "P99");
  PrintPhase("Execute, one operation per call", report.unary);
  PrintPhase(absl::StrFormat("Session stream, %s per batch", FormatCount(options.batch)),
             report.stream);
  std::cout.flush();
}

absl::Status RunBenchCommand(const GlobalOptions& globals, const BenchOptions& options) {
  const InterruptScope interrupt([] {});
  ProgressBar bar("milliseconds", static_cast<uint64_t>(options.seconds * 1000),
                  DetectTerminal(STDERR_FILENO), std::cerr, absl::Now());
  const absl::StatusOr<BenchReport> report =
      RunBench(globals, options, [&](absl::Duration elapsed) {
        bar.Update(static_cast<uint64_t>(absl::ToInt64Milliseconds(elapsed)), "", absl::Now());
        return !interrupt.interrupted();
      });
  bar.Clear();
  if (!report.ok()) return report.status();
  if (globals.output == OutputFormat::kJson) {
    std::cout << Json({{"concurrency", options.concurrency},
                       {"batch", options.batch},
                       {"unary", PhaseJson(report->unary)},
                       {"stream", PhaseJson(report->stream)}})
                     .dump()
              << std::endl;
  } else {
    PrintReport(options, *report);
  }
  return interrupt.interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace

void AddBenchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "Measures how fast the daemon answers, with raw blocks");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<BenchOptions>();
  command
      ->add_option("--seconds", options->seconds,
                   "The run's length; half of it runs single calls, half of it batches")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Operations per batch")
      ->check(CLI::Range(uint32_t{1}, static_cast<uint32_t>(kMaxBatchOperations)))
      ->capture_default_str();
  command
      ->add_option("--concurrency", options->concurrency,
                   "Clients at once, each with its own session")
      ->check(CLI::Range(1U, 64U))
      ->capture_default_str();
  command->footer(
      "Each operation allocates or frees a raw block. The sessions are closed at the end. The\n"
      "command refuses to run if it would evict cached content. If the daemon's events.lifecycle\n"
      "is raw or all, its event stream has an event for each operation. To measure sequences, use\n"
      "\"pagoda-plan workload\".\n"
      "Examples:\n"
      "  pagodactl bench\n"
      "  pagodactl bench --seconds 10 --batch 64 --concurrency 4 -o json");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunBenchCommand(globals, *options); };
  });
}

}  // namespace pagoda
