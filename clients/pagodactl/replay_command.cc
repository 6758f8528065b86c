// pagodactl replay: a trace against the cache's core, in this process.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/progress_bar.h"
#include "clients/pagodactl/replay.h"
#include "clients/pagodactl/trace.h"
#include "manager/eviction_policy.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

struct ReplayCommandOptions {
  std::string file;
  uint32_t blocks = 0;
  std::vector<uint32_t> host_blocks;  // Each beside none at all.
  std::vector<std::string> policies = {std::string(EvictionPolicyNames().front())};
  uint64_t limit = 0;
};

// One replay of the trace: a row of the table.
struct Run {
  std::string policy;
  uint32_t host_blocks = 0;
  ReplayReport report;
};

std::vector<Run> RunsOf(const ReplayCommandOptions& options) {
  std::vector<Run> runs;
  for (const std::string& policy : options.policies) {
    runs.push_back({policy, 0, {}});
    for (const uint32_t host_blocks : options.host_blocks) {
      if (host_blocks > 0) runs.push_back({policy, host_blocks, {}});
    }
  }
  return runs;
}

void PrintTable(const std::vector<Run>& runs, const ReplayCommandOptions& options) {
  const ReplayReport& trace = runs.front().report;
  absl::PrintF("requests  %s, %s skipped for their size\n", FormatCount(trace.requests),
               FormatCount(trace.skipped_requests));
  absl::PrintF("blocks    %s of %d tokens requested\n", FormatCount(trace.blocks_requested),
               kTraceBlockTokens);
  absl::PrintF("primary   %s blocks%s\n\n", FormatCount(trace.capacity_blocks),
               options.blocks == 0 ? " (unlimited)" : "");
  absl::PrintF("%-8s  %12s  %9s  %9s  %11s  %11s  %11s  %12s\n", "POLICY", "HOST BLOCKS",
               "HIT RATE", "IN HOST", "EVICTED", "OFFLOADED", "ONBOARDED", "OPERATIONS/S");
  for (const Run& run : runs) {
    const ReplayReport& report = run.report;
    absl::PrintF("%-8s  %12s  %9s  %9s  %11s  %11s  %11s  %12s\n", run.policy,
                 FormatCount(run.host_blocks), FormatShare(report.hit_rate()),
                 FormatShare(report.host_hit_rate()), FormatCount(report.evictions),
                 FormatCount(report.offloads), FormatCount(report.onboards),
                 FormatCount(static_cast<uint64_t>(report.operations_per_second())));
  }
  std::fflush(stdout);
}

void PrintJson(const std::vector<Run>& runs) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Run& run : runs) {
    const ReplayReport& report = run.report;
    rows.push_back({{"policy", run.policy},
                    {"host_blocks", run.host_blocks},
                    {"blocks_hit", report.blocks_hit},
                    {"hit_rate", report.hit_rate()},
                    {"host_blocks_hit", report.host_blocks_hit},
                    {"host_hit_rate", report.host_hit_rate()},
                    {"evictions", report.evictions},
                    {"offloads", report.offloads},
                    {"onboards", report.onboards},
                    {"operations", report.operations},
                    {"operations_per_second", report.operations_per_second()},
                    {"elapsed_seconds", absl::ToDoubleSeconds(report.elapsed)}});
  }
  const ReplayReport& trace = runs.front().report;
  const nlohmann::ordered_json json = {{"requests", trace.requests},
                                       {"skipped_requests", trace.skipped_requests},
                                       {"blocks_requested", trace.blocks_requested},
                                       {"capacity_blocks", trace.capacity_blocks},
                                       {"tokens_per_block", kTraceBlockTokens},
                                       {"runs", rows}};
  std::cout << json.dump() << std::endl;
}

// Shows the run that is going on, and how far all of them are.
class ReplayProgress {
 public:
  explicit ReplayProgress(uint64_t total)
      : bar_("requests", total, DetectTerminal(STDERR_FILENO), std::cerr, absl::Now()) {}
  ~ReplayProgress() { bar_.Clear(); }

  void Show(const Run& run, const ReplayReport& so_far) {
    ++done_;
    const absl::Time now = absl::Now();
    if (!bar_.Due(now)) return;
    bar_.Update(
        done_,
        absl::StrCat(run.policy, ", host ", FormatCount(run.host_blocks), "  hit rate ",
                     FormatShare(so_far.hit_rate()), "  evicted ", FormatCount(so_far.evictions)),
        now);
  }

 private:
  ProgressBar bar_;
  uint64_t done_ = 0;
};

absl::Status RunReplay(const GlobalOptions& globals, const ReplayCommandOptions& options) {
  const auto requests = ReadTrace(options.file, options.limit);
  if (!requests.ok()) return requests.status();

  std::vector<Run> runs = RunsOf(options);
  {
    ReplayProgress progress(requests->size() * runs.size());
    for (Run& run : runs) {
      const auto report = ReplayTrace(*requests, {.capacity_blocks = options.blocks,
                                                  .host_blocks = run.host_blocks,
                                                  .policy = run.policy,
                                                  .on_request = [&](const ReplayReport& so_far) {
                                                    progress.Show(run, so_far);
                                                  }});
      if (!report.ok()) return report.status();
      run.report = *report;
    }
  }
  if (globals.output == OutputFormat::kJson) {
    PrintJson(runs);
  } else {
    PrintTable(runs, options);
  }
  return absl::OkStatus();
}

// A host tier takes what leaves the primary one.
void RefuseHostBelowUnlimited(const ReplayCommandOptions& options) {
  if (options.blocks > 0 || options.host_blocks.empty()) return;
  throw CLI::ValidationError("--host-blocks", "nothing leaves a primary tier of --blocks 0");
}

}  // namespace

void AddReplayCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "replay", "Replays a request trace against a cache in this process, without a daemon");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<ReplayCommandOptions>();
  command->add_option("FILE", options->file, "A trace in Mooncake's JSON Lines format")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option("--blocks", options->blocks,
                   "The primary tier's blocks of 512 tokens; 0 never evicts anything")
      ->required();
  command
      ->add_option("--host-blocks", options->host_blocks,
                   "Blocks of a host tier below it; several with commas, each in a row of its own")
      ->delimiter(',');
  const auto& policies = EvictionPolicyNames();
  command->add_option("--policy", options->policies, "The eviction policy; several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(policies.begin(), policies.end())))
      ->capture_default_str();
  command->add_option("--limit", options->limit, "Only the first requests")
      ->check(CLI::PositiveNumber);
  command->footer(
      "A hit is a block of the longest cached prefix, in whichever tier. A request as large as "
      "the\n"
      "primary tier, or larger, is skipped, and its blocks count as missed.\n"
      "Examples:\n"
      "  pagodactl replay clients/pagodactl/testdata/chat.jsonl --blocks 0\n"
      "  pagodactl replay trace.jsonl --blocks 10000 --host-blocks 10000,40000 --policy lru,mq\n"
      "  pagodactl replay trace.jsonl --blocks 10000 -o json");
  command->callback([&globals, &chosen, options] {
    RefuseHostBelowUnlimited(*options);
    chosen = [&globals, options] { return RunReplay(globals, *options); };
  });
}

}  // namespace pagoda
