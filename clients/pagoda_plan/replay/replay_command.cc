// pagoda-plan replay: replays a trace against the cache's core in this process.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/progress_bar.h"
#include "clients/pagoda_plan/replay/block_counts.h"
#include "clients/pagoda_plan/replay/commands.h"
#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/replay/replay_opt.h"
#include "clients/pagoda_plan/replay/replay_text.h"
#include "clients/pagoda_plan/size/ladder.h"
#include "clients/pagoda_plan/size/model_options.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "manager/policy/eviction_policy.h"
#include "nlohmann/json.hpp"
#include "pools/layout.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

struct ReplayCommandOptions {
  std::string file;
  TraceReadOptions read;
  std::string tiers;                  // A list of tiers; empty: the short forms below are used.
  std::string blocks;                 // A list of capacities.
  std::vector<uint32_t> host_blocks;  // One run for each, and one run without a host tier.
  ModelOptions model;
  std::vector<std::string> policies = {std::string(EvictionPolicyNames().front())};
  bool one_by_one = false;
  ServiceModel service;
  std::string svg;  // A file; empty: no picture.

  // REQUIRES: `tiers` is a valid list. Empty without one.
  std::vector<LadderTier> ladder() const {
    return tiers.empty() ? std::vector<LadderTier>() : *ParseLadder(tiers);
  }
  // REQUIRES: `blocks` is a valid list.
  std::vector<uint32_t> capacities() const { return *ParseBlockCounts(blocks); }
  std::optional<ServiceModel> schedule() const {
    return one_by_one ? std::nullopt : std::optional(service);
  }
};

// The sizes that the model gives to the trace.
struct TraceSizes {
  uint64_t block_bytes = 0;           // 0: no model.
  std::vector<uint32_t> tier_blocks;  // The blocks of each tier of --tiers.
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

std::vector<ReplayRun> RunsOf(const ReplayCommandOptions& options, const TraceSizes& sizes) {
  std::vector<ReplayRun> runs;
  for (const std::string& policy : options.policies) {
    if (!options.tiers.empty()) {
      runs.push_back({policy, sizes.tier_blocks, {}});
      continue;
    }
    for (const uint32_t blocks : options.capacities()) {
      if (blocks == 0) {
        runs.push_back({policy, {}, {}});
        continue;
      }
      runs.push_back({policy, {blocks}, {}});
      for (const uint32_t host_blocks : options.host_blocks) {
        if (host_blocks > 0) runs.push_back({policy, {blocks, host_blocks}, {}});
      }
    }
  }
  return runs;
}

// Shows the current run and the progress of all runs.
class ReplayProgress {
 public:
  explicit ReplayProgress(uint64_t total)
      : bar_("requests", total, DetectTerminal(STDERR_FILENO), std::cerr, absl::Now()) {}
  ~ReplayProgress() { bar_.Clear(); }

  void Show(const ReplayRun& run, const ReplayReport& so_far) {
    ++done_;
    const absl::Time now = absl::Now();
    if (!bar_.Due(now)) return;
    bar_.Update(
        done_,
        absl::StrCat(run.policy, ", ", run.TiersText(), "  hit rate ",
                     FormatShare(so_far.hit_rate()), "  evicted ", FormatCount(so_far.evictions)),
        now);
  }

 private:
  ProgressBar bar_;
  uint64_t done_ = 0;
};

absl::Status RunAll(const Trace& trace, ReplayResults& results) {
  ReplayProgress progress(trace.requests.size() * results.runs.size());
  for (ReplayRun& run : results.runs) {
    const bool is_opt = run.policy == kOptPolicy;
    const ReplayOptions options = {
        .tier_blocks = run.tier_blocks,
        .policy = is_opt ? "" : run.policy,
        .on_request = [&](const ReplayReport& so_far) { progress.Show(run, so_far); },
        .tokens_per_block = trace.tokens_per_block,
        .service = results.service,
        .last_tier = FindDisk(results.ladder) == nullptr ? LastTier::kMemory : LastTier::kDisk};
    const auto report =
        is_opt ? ReplayOptimal(trace.requests, options) : ReplayTrace(trace.requests, options);
    if (!report.ok()) return report.status();
    run.report = *report;
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot write ", path));
}

// A trace of other blocks than the reader took it for gives figures that mean nothing.
void WarnOfLengths(const Trace& trace, const std::string& file) {
  if (trace.odd_lengths * 10 <= trace.requests.size()) return;
  std::cerr << absl::StrFormat(
      "pagoda-plan: %s:%d: input_length is not as long as hash_ids of %d tokens, as in %s of "
      "%s; --tokens-per-block names the tokens of an id\n",
      file, trace.first_odd_line, trace.tokens_per_block, FormatCount(trace.odd_lengths),
      FormatCounted(trace.requests.size(), "request"));
}

absl::Status RunReplay(const GlobalOptions& globals, const ReplayCommandOptions& options) {
  const auto trace = ReadTrace(options.file, options.read);
  if (!trace.ok()) return trace.status();
  WarnOfLengths(*trace, options.file);

  const absl::StatusOr<TraceSizes> sizes = SizesOf(options, trace->tokens_per_block);
  if (!sizes.ok()) return sizes.status();
  ReplayResults results{.format = trace->format,
                        .service = options.schedule(),
                        .ladder = options.ladder(),
                        .block_bytes = sizes->block_bytes,
                        .runs = RunsOf(options, *sizes)};
  if (const absl::Status status = RunAll(*trace, results); !status.ok()) return status;
  if (!options.svg.empty()) {
    if (const absl::Status status = WriteFile(options.svg, ReplaySvg(results)); !status.ok()) {
      return status;
    }
  }
  if (globals.output == OutputFormat::kJson) {
    std::cout << ReplayJson(results).dump() << std::endl;
  } else {
    std::cout << ReplayText(results) << std::flush;
  }
  return absl::OkStatus();
}

// A host tier receives the blocks that leave the primary one.
void RefuseHostBelowUnlimited(const ReplayCommandOptions& options) {
  if (options.blocks.empty() || options.host_blocks.empty()) return;
  for (const uint32_t blocks : options.capacities()) {
    if (blocks > 0) continue;
    throw CLI::ValidationError("--host-blocks", "no block leaves a primary tier of --blocks 0");
  }
}

// Without a model, the bytes of a block are unknown.
void RefuseBytesWithoutModel(const ReplayCommandOptions& options) {
  if (options.tiers.empty() || options.model.given()) return;
  for (const LadderTier& tier : options.ladder()) {
    if (tier.in_blocks()) continue;
    throw CLI::ValidationError("--tiers", "sizes in bytes need --preset, --model or --layers");
  }
}

// Clairvoyance knows the order of the requests, but not when they end.
void RefuseOptElsewhere(const ReplayCommandOptions& options) {
  if (std::find(options.policies.begin(), options.policies.end(), kOptPolicy) ==
      options.policies.end()) {
    return;
  }
  if (!options.one_by_one || !options.tiers.empty()) {
    throw CLI::ValidationError("--policy", "opt needs --blocks and --one-by-one");
  }
}

void AddTraceOptions(CLI::App& command, ReplayCommandOptions& options) {
  command
      .add_option("FILE", options.file, "A trace in Mooncake's or Qwen-Bailian's JSON Lines format")
      ->required()
      ->check(CLI::ExistingFile);
  const std::map<std::string, TraceFormat> formats = {{"mooncake", TraceFormat::kMooncake},
                                                      {"bailian", TraceFormat::kBailian}};
  command
      .add_option("--format", options.read.format,
                  "The trace's format; without it, the first request decides")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("mooncake|bailian");
  command
      .add_option("--tokens-per-block", options.read.tokens_per_block,
                  "Tokens of each hash id; without it, 512 for mooncake and 16 for bailian")
      ->check(CLI::Range(kMinTraceBlockTokens, kMaxTraceBlockTokens));
  command.add_option("--limit", options.read.limit, "Replay only this many requests")
      ->check(AboveZero());
}

void AddTierOptions(CLI::App& command, ReplayCommandOptions& options) {
  CLI::Option_group* tiers = command.add_option_group("tiers", "Exactly one of");
  tiers
      ->add_option("--tiers", options.tiers,
                   "NAME:MEDIUM:SIZE of each tier, nearest first, separated by commas. MEDIUM is "
                   "gpu, host or disk; SIZE is blocks of the trace, or bytes (80GiB) with a model")
      ->check(CheckLadder);
  CLI::Option* const blocks =
      tiers
          ->add_option("--blocks", options.blocks,
                       "Short form: the primary tier's blocks, separated by commas, or a range "
                       "(1000:100000:x2); 0: unlimited")
          ->check(CheckBlockCounts);
  tiers->require_option(1);
  command
      .add_option(
          "--host-blocks", options.host_blocks,
          "Short form: blocks of a host tier below it; several values, separated by commas, "
          "give one row each")
      ->delimiter(',')
      ->needs(blocks);
  command
      .add_option("--svg", options.svg,
                  "Writes a picture of the hit rates by capacity to this FILE")
      ->type_name("FILE")
      ->needs(blocks);
}

void AddScheduleOptions(CLI::App& command, ReplayCommandOptions& options) {
  std::vector<std::string> policies(EvictionPolicyNames().begin(), EvictionPolicyNames().end());
  policies.emplace_back(kOptPolicy);
  command
      .add_option("--policy", options.policies,
                  "The eviction policy; separate several with commas. opt is no policy but the "
                  "bound of them all: it knows the future")
      ->delimiter(',')
      ->check(CLI::IsMember(policies))
      ->capture_default_str();
  CLI::Option* const one_by_one =
      command.add_flag("--one-by-one", options.one_by_one,
                       "Requests do not overlap: each ends before the next one. Replies are "
                       "ignored");
  command
      .add_option("--prefill-tokens-per-second", options.service.prefill_tokens_per_second,
                  "How fast a request computes the tokens of its prompt that are not cached")
      ->check(AboveZero())
      ->excludes(one_by_one)
      ->capture_default_str();
  command
      .add_option("--decode-tokens-per-second", options.service.decode_tokens_per_second,
                  "How fast a request generates its reply")
      ->check(AboveZero())
      ->excludes(one_by_one)
      ->capture_default_str();
}

constexpr char kFooter[] =
    R"(This command needs no daemon. A hit is a block of the longest cached prefix, in any tier. A request
that does not fit the first tier is skipped; its blocks count as missed.
Requests overlap: a request holds its blocks from its arrival until its reply ends, and its reply
takes blocks too, which the next turn hits. A request without room waits until others end:
  RUNNING         the most requests that ran at once
  WAITED          requests that waited, and LONGEST WAIT how long
With --tiers, each tier has its own figures:
  WRITTEN, READ   blocks that copies moved into the tier and out of it
  EVICTED         blocks that left the cache from this tier
  FREE EVICTIONS  blocks that left the tier without a copy, because a lower tier already had their
                  bytes
A prompt is fetched from a disk before its request starts, and the blocks that the request leaves
are written to it when the request ends. The hits of a disk are the matched tokens that were
fetched. Its speed is not in the figures, and no budget limits its writes.
A model gives the blocks their size in bytes; all its layers count as full attention.
Examples:
  pagoda-plan replay clients/pagoda_plan/testdata/chat.jsonl --blocks 0
  pagoda-plan replay trace.jsonl --blocks 1000:100000:x2 --policy lru,learned --svg hit_rates.svg
  pagoda-plan replay trace.jsonl --one-by-one --blocks 1000,10000 --policy lru,opt
  pagoda-plan replay trace.jsonl --blocks 10000 --host-blocks 10000,40000 --policy lru,learned
  pagoda-plan replay trace.jsonl --tiers hbm:gpu:1000,dram:host:9000,nvme:disk:40000
  pagoda-plan replay trace.jsonl --preset qwen3-8b \
      --tiers hbm:gpu:80GiB,dram:host:400GiB,nvme:disk:2TiB -o json)";

}  // namespace

void AddReplayCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("replay", "Replays a request trace against a cache in this process");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<ReplayCommandOptions>();
  AddTraceOptions(*command, *options);
  AddTierOptions(*command, *options);
  AddModelOptions(*command, options->model, ModelNeed::kAtMostOne);
  AddScheduleOptions(*command, *options);
  command->footer(kFooter);
  command->callback([&globals, &chosen, options] {
    RefuseHostBelowUnlimited(*options);
    RefuseBytesWithoutModel(*options);
    RefuseOptElsewhere(*options);
    chosen = [&globals, options] { return RunReplay(globals, *options); };
  });
}

}  // namespace pagoda
