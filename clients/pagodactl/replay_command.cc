// pagodactl replay: a trace against the cache's core, in this process.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/progress_bar.h"
#include "clients/pagodactl/replay.h"
#include "clients/pagodactl/trace.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

struct ReplayCommandOptions {
  std::string file;
  uint32_t blocks = 0;
  std::string policy = "lru";
  uint64_t limit = 0;
};

void PrintTable(const ReplayReport& report, const ReplayCommandOptions& options) {
  absl::PrintF("capacity               %s blocks of %d tokens%s, policy %s\n",
               FormatCount(report.capacity_blocks), kTraceBlockTokens,
               options.blocks == 0 ? " (unlimited)" : "", options.policy);
  absl::PrintF("requests               %s, %s skipped for their size\n",
               FormatCount(report.requests), FormatCount(report.skipped_requests));
  absl::PrintF("blocks requested       %s, %s hit\n", FormatCount(report.blocks_requested),
               FormatCount(report.blocks_hit));
  absl::PrintF("hit rate               %s\n", FormatShare(report.hit_rate()));
  absl::PrintF("evictions              %s blocks\n", FormatCount(report.evictions));
  absl::PrintF("operations per second  %s, %s in all\n",
               FormatCount(static_cast<uint64_t>(report.operations_per_second())),
               FormatElapsed(report.elapsed));
  std::fflush(stdout);
}

void PrintJson(const ReplayReport& report, const ReplayCommandOptions& options) {
  const nlohmann::ordered_json json = {{"requests", report.requests},
                                       {"skipped_requests", report.skipped_requests},
                                       {"blocks_requested", report.blocks_requested},
                                       {"blocks_hit", report.blocks_hit},
                                       {"hit_rate", report.hit_rate()},
                                       {"evictions", report.evictions},
                                       {"operations", report.operations},
                                       {"operations_per_second", report.operations_per_second()},
                                       {"elapsed_seconds", absl::ToDoubleSeconds(report.elapsed)},
                                       {"capacity_blocks", report.capacity_blocks},
                                       {"tokens_per_block", kTraceBlockTokens},
                                       {"policy", options.policy}};
  std::cout << json.dump() << std::endl;
}

absl::Status RunReplay(const GlobalOptions& globals, const ReplayCommandOptions& options) {
  const auto requests = ReadTrace(options.file, options.limit);
  if (!requests.ok()) return requests.status();

  ProgressBar bar("requests", requests->size(), DetectTerminal(STDERR_FILENO), std::cerr,
                  absl::Now());
  const auto report = ReplayTrace(
      *requests,
      {.capacity_blocks = options.blocks, .on_request = [&bar](const ReplayReport& so_far) {
         const absl::Time now = absl::Now();
         if (!bar.Due(now)) return;
         bar.Update(so_far.requests,
                    absl::StrCat("hit rate ", FormatShare(so_far.hit_rate()), "  evictions ",
                                 FormatCount(so_far.evictions)),
                    now);
       }});
  bar.Clear();
  if (!report.ok()) return report.status();
  if (globals.output == OutputFormat::kJson) {
    PrintJson(*report, options);
  } else {
    PrintTable(*report, options);
  }
  return absl::OkStatus();
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
                   "Capacity in blocks of 512 tokens; 0 never evicts anything")
      ->required();
  command->add_option("--policy", options->policy, "The eviction policy")
      ->check(CLI::IsMember({"lru"}))
      ->capture_default_str();
  command->add_option("--limit", options->limit, "Only the first requests")
      ->check(CLI::PositiveNumber);
  command->footer(
      "A hit is a block of the longest cached prefix. A request as large as the cache, or larger,\n"
      "is skipped, and its blocks count as missed.\n"
      "Examples:\n"
      "  pagodactl replay clients/pagodactl/testdata/chat.jsonl --blocks 0\n"
      "  pagodactl replay trace.jsonl --blocks 10000 -o json");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunReplay(globals, *options); };
  });
}

}  // namespace pagoda
