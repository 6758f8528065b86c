// pagodactl replay: replays a trace against the cache's core in this process.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/drive_life.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/ladder.h"
#include "clients/pagodactl/model_options.h"
#include "clients/pagodactl/progress_bar.h"
#include "clients/pagodactl/replay.h"
#include "clients/pagodactl/trace.h"
#include "manager/eviction_policy.h"
#include "nlohmann/json.hpp"
#include "pools/layout.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

struct ReplayCommandOptions {
  std::string file;
  std::string tiers;  // A list of tiers; empty: the short forms below are used.
  uint32_t blocks = 0;
  std::vector<uint32_t> host_blocks;  // One run for each, and one run without a host tier.
  ModelOptions model;
  std::vector<std::string> policies = {std::string(EvictionPolicyNames().front())};
  uint64_t limit = 0;

  // REQUIRES: `tiers` is a valid list.
  std::vector<LadderTier> ladder() const { return *ParseLadder(tiers); }
};

// One replay of the trace: a row of the table.
struct Run {
  std::string policy;
  std::vector<uint32_t> tier_blocks;  // None: unlimited.
  ReplayReport report;

  uint32_t host_blocks() const { return tier_blocks.size() > 1 ? tier_blocks[1] : 0; }
};

// The sizes that the model gives to the trace.
struct TraceSizes {
  uint64_t block_bytes = 0;           // 0: no model.
  std::vector<uint32_t> tier_blocks;  // Of --tiers.
};

// A block of the trace is a block of every layer. Sliding windows count as full attention: the
// trace does not say which tokens are attended to.
absl::StatusOr<CacheLayout> TraceLayout(const ModelOptions& options, uint32_t tokens_per_block) {
  absl::StatusOr<ModelLayers> model = LayersOf(options);
  if (!model.ok()) return model.status();
  for (LayerSpec& layer : model->layers) layer.window = kFullAttention;
  return CacheLayout::Create({.tokens_per_block = tokens_per_block, .layers = model->layers});
}

absl::StatusOr<TraceSizes> SizesOf(const ReplayCommandOptions& options, uint32_t tokens_per_block) {
  TraceSizes sizes;
  if (options.model.given()) {
    const absl::StatusOr<CacheLayout> layout = TraceLayout(options.model, tokens_per_block);
    if (!layout.ok()) return layout.status();
    sizes.block_bytes = layout->windows().front().block_bytes();
    if (options.tiers.empty()) return sizes;
    const absl::StatusOr<SizingPlan> plan =
        PlanSizes(*layout, {.workload = {.max_sequence_tokens = tokens_per_block},
                            .tiers = TierRequests(options.ladder())});
    if (!plan.ok()) return plan.status();
    for (const SizingPlan::TierPlan& tier : plan->windows.front().tiers) {
      sizes.tier_blocks.push_back(tier.blocks);
    }
    return sizes;
  }
  if (options.tiers.empty()) return sizes;
  for (const LadderTier& tier : options.ladder()) {
    sizes.tier_blocks.push_back(std::get<BlockBudget>(tier.budget).blocks.front());
  }
  return sizes;
}

std::vector<Run> RunsOf(const ReplayCommandOptions& options, const TraceSizes& sizes) {
  std::vector<Run> runs;
  for (const std::string& policy : options.policies) {
    if (!options.tiers.empty()) {
      runs.push_back({policy, sizes.tier_blocks, {}});
      continue;
    }
    if (options.blocks == 0) {
      runs.push_back({policy, {}, {}});
      continue;
    }
    runs.push_back({policy, {options.blocks}, {}});
    for (const uint32_t host_blocks : options.host_blocks) {
      if (host_blocks > 0) runs.push_back({policy, {options.blocks, host_blocks}, {}});
    }
  }
  return runs;
}

// The tiers of --tiers, or those of the short forms.
std::vector<LadderTier> LadderOf(const ReplayCommandOptions& options, const Run& run) {
  if (!options.tiers.empty()) return options.ladder();
  std::vector<LadderTier> ladder;
  for (size_t t = 0; t < run.report.tiers.size(); ++t) {
    ladder.push_back({.name = DefaultTierName(static_cast<Tier>(t)), .size = ""});
  }
  return ladder;
}

// --- For people ---

void PrintTrace(const ReplayReport& trace) {
  absl::PrintF("requests  %s, %s skipped for their size\n", FormatCount(trace.requests),
               FormatCount(trace.skipped_requests));
  absl::PrintF("blocks    %s of %d tokens requested\n", FormatCount(trace.blocks_requested),
               trace.tokens_per_block);
}

void PrintTable(const std::vector<Run>& runs, const ReplayCommandOptions& options) {
  const ReplayReport& trace = runs.front().report;
  PrintTrace(trace);
  absl::PrintF("primary   %s blocks%s\n\n", FormatCount(trace.tiers.front().capacity_blocks),
               options.blocks == 0 ? " (unlimited)" : "");
  absl::PrintF("%-8s  %12s  %9s  %9s  %11s  %11s  %11s  %12s\n", "POLICY", "HOST BLOCKS",
               "HIT RATE", "IN HOST", "EVICTED", "OFFLOADED", "ONBOARDED", "OPERATIONS/S");
  for (const Run& run : runs) {
    const ReplayReport& report = run.report;
    absl::PrintF("%-8s  %12s  %9s  %9s  %11s  %11s  %11s  %12s\n", run.policy,
                 FormatCount(run.host_blocks()), FormatShare(report.hit_rate()),
                 FormatShare(report.lower_hit_rate()), FormatCount(report.evictions),
                 FormatCount(report.offloads), FormatCount(report.onboards),
                 FormatCount(static_cast<uint64_t>(report.operations_per_second())));
  }
}

// The average bytes per second that copies write into a tier; 0 if the trace takes no time.
double WriteRate(const ReplayedTier& tier, const ReplayReport& report, uint64_t block_bytes) {
  const double seconds = absl::ToDoubleSeconds(report.trace_time);
  return seconds > 0 ? static_cast<double>(tier.blocks_written * block_bytes) / seconds : 0;
}

void PrintTier(const LadderTier& tier, const ReplayedTier& figures, const ReplayReport& report,
               uint64_t block_bytes) {
  absl::PrintF("  %-12s  %-6s  %11s  %13s  %9s  %11s  %11s  %11s  %14s", tier.name,
               std::string(MediumName(tier.medium)), FormatCount(figures.capacity_blocks),
               FormatCount(figures.hit_tokens), FormatShare(report.hit_rate(figures)),
               FormatCount(figures.blocks_written), FormatCount(figures.blocks_read),
               FormatCount(figures.evictions), FormatCount(figures.free_evictions));
  if (block_bytes > 0) {
    absl::PrintF("  %13s  %13s", FormatBytes(figures.blocks_written * block_bytes),
                 FormatBytes(figures.blocks_read * block_bytes));
  }
  absl::PrintF("\n");
}

void PrintLadder(const std::vector<Run>& runs, const ReplayCommandOptions& options,
                 uint64_t block_bytes) {
  const std::vector<LadderTier> ladder = options.ladder();
  PrintTrace(runs.front().report);
  if (block_bytes > 0) absl::PrintF("a block   %s\n", FormatBytes(block_bytes));
  const LadderTier* disk = FindDisk(ladder);
  if (disk != nullptr) {
    absl::PrintF(
        "disk      %s ran as a tier in memory: blocks move by the same rules, and no budget "
        "limits the writes\n",
        disk->name);
  }
  for (const Run& run : runs) {
    const ReplayReport& report = run.report;
    absl::PrintF("\n%s: %s hit, %s blocks evicted, %s operations per second\n", run.policy,
                 FormatShare(report.hit_rate()), FormatCount(report.evictions),
                 FormatCount(static_cast<uint64_t>(report.operations_per_second())));
    absl::PrintF("  %-12s  %-6s  %11s  %13s  %9s  %11s  %11s  %11s  %14s%s\n", "TIER", "MEDIUM",
                 "BLOCKS", "HIT TOKENS", "HIT RATE", "WRITTEN", "READ", "EVICTED", "FREE EVICTIONS",
                 block_bytes > 0 ? "  BYTES WRITTEN     BYTES READ" : "");
    for (size_t t = 0; t < ladder.size(); ++t) {
      PrintTier(ladder[t], report.tiers[t], report, block_bytes);
    }
    if (disk == nullptr || block_bytes == 0) continue;
    const ReplayedTier& figures = report.tiers[static_cast<size_t>(disk - ladder.data())];
    absl::PrintF("  %s is written at %s/s on average, over the %s of the trace\n", disk->name,
                 FormatDecimalBytes(WriteRate(figures, report, block_bytes)),
                 FormatElapsed(report.trace_time));
  }
}

// --- For programs ---

Json TiersJson(const std::vector<LadderTier>& ladder, const ReplayReport& report,
               uint64_t block_bytes) {
  Json tiers = Json::array();
  for (size_t t = 0; t < ladder.size(); ++t) {
    const ReplayedTier& figures = report.tiers[t];
    Json tier = {{"name", ladder[t].name},
                 {"medium", std::string(MediumName(ladder[t].medium))},
                 {"ran_as", "host"},
                 {"capacity_blocks", figures.capacity_blocks},
                 {"hit_tokens", figures.hit_tokens},
                 {"hit_rate", report.hit_rate(figures)},
                 {"blocks_written", figures.blocks_written},
                 {"blocks_read", figures.blocks_read},
                 {"evictions", figures.evictions},
                 {"free_evictions", figures.free_evictions}};
    if (block_bytes > 0) {
      tier["capacity_bytes"] = figures.capacity_blocks * block_bytes;
      tier["bytes_written"] = figures.blocks_written * block_bytes;
      tier["bytes_read"] = figures.blocks_read * block_bytes;
      tier["bytes_written_per_second"] = WriteRate(figures, report, block_bytes);
    }
    tiers.push_back(tier);
  }
  return tiers;
}

void PrintJson(const std::vector<Run>& runs, const ReplayCommandOptions& options,
               uint64_t block_bytes) {
  Json rows = Json::array();
  for (const Run& run : runs) {
    const ReplayReport& report = run.report;
    Json row = {{"policy", run.policy},
                {"blocks_hit", report.blocks_hit},
                {"hit_rate", report.hit_rate()},
                {"evictions", report.evictions},
                {"offloads", report.offloads},
                {"onboards", report.onboards},
                {"tiers", TiersJson(LadderOf(options, run), report, block_bytes)},
                {"operations", report.operations},
                {"operations_per_second", report.operations_per_second()},
                {"elapsed_seconds", absl::ToDoubleSeconds(report.elapsed)}};
    if (options.tiers.empty()) {
      row["host_blocks"] = run.host_blocks();
      row["host_blocks_hit"] = report.lower_blocks_hit;
      row["host_hit_rate"] = report.lower_hit_rate();
    }
    rows.push_back(row);
  }
  const ReplayReport& trace = runs.front().report;
  Json json = {{"requests", trace.requests},
               {"skipped_requests", trace.skipped_requests},
               {"blocks_requested", trace.blocks_requested},
               {"capacity_blocks", trace.tiers.front().capacity_blocks},
               {"tokens_per_block", trace.tokens_per_block},
               {"trace_seconds", absl::ToDoubleSeconds(trace.trace_time)}};
  if (block_bytes > 0) json["block_bytes"] = block_bytes;
  json["runs"] = rows;
  std::cout << json.dump() << std::endl;
}

// Shows the current run and the progress of all runs.
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
        absl::StrCat(run.policy, ", ", TiersText(run), "  hit rate ",
                     FormatShare(so_far.hit_rate()), "  evicted ", FormatCount(so_far.evictions)),
        now);
  }

 private:
  // "100 + 300 blocks".
  static std::string TiersText(const Run& run) {
    if (run.tier_blocks.empty()) return "unlimited";
    const auto count = [](std::string* out, uint32_t n) { out->append(FormatCount(n)); };
    return absl::StrCat(absl::StrJoin(run.tier_blocks, " + ", count), " blocks");
  }

  ProgressBar bar_;
  uint64_t done_ = 0;
};

absl::Status RunReplay(const GlobalOptions& globals, const ReplayCommandOptions& options) {
  const auto trace = ReadTrace(options.file, {.limit = options.limit});
  if (!trace.ok()) return trace.status();

  const absl::StatusOr<TraceSizes> sizes = SizesOf(options, trace->tokens_per_block);
  if (!sizes.ok()) return sizes.status();

  std::vector<Run> runs = RunsOf(options, *sizes);
  {
    ReplayProgress progress(trace->requests.size() * runs.size());
    for (Run& run : runs) {
      const auto report = ReplayTrace(
          trace->requests,
          {.tier_blocks = run.tier_blocks,
           .policy = run.policy,
           .on_request = [&](const ReplayReport& so_far) { progress.Show(run, so_far); },
           .tokens_per_block = trace->tokens_per_block});
      if (!report.ok()) return report.status();
      run.report = *report;
    }
  }
  if (globals.output == OutputFormat::kJson) {
    PrintJson(runs, options, sizes->block_bytes);
  } else if (options.tiers.empty()) {
    PrintTable(runs, options);
  } else {
    PrintLadder(runs, options, sizes->block_bytes);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

// A host tier receives the blocks that leave the primary one.
void RefuseHostBelowUnlimited(const ReplayCommandOptions& options) {
  if (options.blocks > 0 || options.host_blocks.empty()) return;
  throw CLI::ValidationError("--host-blocks", "no block leaves a primary tier of --blocks 0");
}

// Without a model, the bytes of a block are unknown.
void RefuseBytesWithoutModel(const ReplayCommandOptions& options) {
  if (options.tiers.empty() || options.model.given()) return;
  for (const LadderTier& tier : options.ladder()) {
    if (tier.in_blocks()) continue;
    throw CLI::ValidationError("--tiers", "sizes in bytes need --preset, --model or --layers");
  }
}

void AddTierOptions(CLI::App& command, ReplayCommandOptions& options) {
  CLI::Option_group* tiers = command.add_option_group("tiers", "Exactly one of");
  tiers
      ->add_option("--tiers", options.tiers,
                   "NAME:MEDIUM:SIZE of each tier, nearest first, separated by commas. MEDIUM is "
                   "gpu, host or disk; SIZE is blocks of 512 tokens, or bytes (80GiB) with a model")
      ->check(CheckLadder);
  CLI::Option* const blocks =
      tiers->add_option("--blocks", options.blocks,
                        "Short form: the primary tier's blocks of 512 tokens; 0: unlimited");
  tiers->require_option(1);
  command
      .add_option(
          "--host-blocks", options.host_blocks,
          "Short form: blocks of a host tier below it; several values, separated by commas, "
          "give one row each")
      ->delimiter(',')
      ->needs(blocks);
}

}  // namespace

void AddReplayCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("replay", "Replays a request trace against a cache in this process");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<ReplayCommandOptions>();
  command->add_option("FILE", options->file, "A trace in Mooncake's JSON Lines format")
      ->required()
      ->check(CLI::ExistingFile);
  AddTierOptions(*command, *options);
  AddModelOptions(*command, options->model, ModelNeed::kAtMostOne);
  const auto& policies = EvictionPolicyNames();
  command
      ->add_option("--policy", options->policies,
                   "The eviction policy; separate several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(policies.begin(), policies.end())))
      ->capture_default_str();
  command->add_option("--limit", options->limit, "Replay only this many requests")
      ->check(CLI::PositiveNumber);
  command->footer(
      "This command needs no daemon. A hit is a block of the longest cached prefix, in any tier. "
      "A\n"
      "request as large as the first tier or larger is skipped; its blocks count as missed.\n"
      "With --tiers, each tier has its own figures:\n"
      "  WRITTEN, READ   blocks that copies moved into the tier and out of it\n"
      "  EVICTED         blocks that left the cache from this tier\n"
      "  FREE EVICTIONS  blocks that left the tier without a copy, because a lower tier already\n"
      "                  had their bytes\n"
      "A disk tier runs like a memory tier: blocks move by the same rules, its speed is not in "
      "the\n"
      "figures, and no budget limits its writes. A model gives the blocks their size in bytes; "
      "all\n"
      "its layers count as full attention.\n"
      "Examples:\n"
      "  pagodactl replay clients/pagodactl/testdata/chat.jsonl --blocks 0\n"
      "  pagodactl replay trace.jsonl --blocks 10000 --host-blocks 10000,40000 --policy lru,mq\n"
      "  pagodactl replay trace.jsonl --tiers hbm:gpu:1000,dram:host:9000,nvme:disk:40000\n"
      "  pagodactl replay trace.jsonl --preset qwen3-8b \\\n"
      "      --tiers hbm:gpu:80GiB,dram:host:400GiB,nvme:disk:2TiB -o json");
  command->callback([&globals, &chosen, options] {
    RefuseHostBelowUnlimited(*options);
    RefuseBytesWithoutModel(*options);
    chosen = [&globals, options] { return RunReplay(globals, *options); };
  });
}

}  // namespace pagoda
