// pagoda-plan size: the size of a model's KV cache, and what fits into a given memory. It needs
// neither a daemon nor a GPU.
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagoda_plan/size/commands.h"
#include "clients/pagoda_plan/size/drive_options.h"
#include "clients/pagoda_plan/size/ladder.h"
#include "clients/pagoda_plan/size/model_layers.h"
#include "clients/pagoda_plan/size/model_options.h"
#include "nlohmann/json.hpp"
#include "pools/layout.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

struct PlanOptions {
  ModelOptions model;
  uint32_t tokens_per_block = 32;
  std::string tiers;    // A list of tiers; empty: the short forms below are used.
  std::string primary;  // The sizes are as given; empty: none.
  std::string secondary;
  uint32_t sequence_tokens = 8192;
  uint32_t chunk_tokens = 512;
  uint32_t sequences = 1;
  DriveOptions drive;
};

struct Plan {
  ModelLayers model;
  CacheLayout layout;
  uint64_t workload_bytes = 0;
  std::vector<LadderTier> ladder;  // A tier without a size was not named.
  SizingPlan sizes;
};

// The tiers of either form. If no first tier is named, it is as large as the workload needs and has
// no size text.
std::vector<LadderTier> LadderOf(const PlanOptions& options, uint64_t workload_bytes) {
  if (!options.tiers.empty()) return *ParseLadder(options.tiers);
  const std::string primary = DefaultTierName(kPrimaryTier);
  std::vector<LadderTier> ladder;
  if (options.primary.empty()) {
    ladder.push_back({.name = primary, .size = "", .budget = ByteBudget{workload_bytes}});
  } else {
    ladder.push_back(TierOfSize(primary, Medium::kHost, options.primary));
  }
  if (!options.secondary.empty()) {
    ladder.push_back(TierOfSize(DefaultTierName(Tier(1)), Medium::kHost, options.secondary));
  }
  return ladder;
}

// The drive of a tier on disk.
DrivePlan DriveOf(const Plan& plan, const PlanOptions& options, size_t tier) {
  return PlanDrive(options.drive, static_cast<double>(plan.sizes.bytes(Tier(tier))));
}

absl::Status CheckDrives(const Plan& plan, const PlanOptions& options) {
  for (size_t t = 0; t < plan.ladder.size(); ++t) {
    if (plan.ladder[t].medium != Medium::kDisk) continue;
    const Drive drive = DriveOf(plan, options, t).drive;
    const auto bytes = static_cast<double>(plan.sizes.bytes(Tier(t)));
    if (bytes <= drive.capacity_bytes) continue;
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("the ", plan.ladder[t].name, " tier needs ", FormatDecimalBytes(bytes),
                     ", more than its drive of ", FormatDecimalBytes(drive.capacity_bytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const PlanOptions& options) {
  absl::StatusOr<ModelLayers> model = LayersOf(options.model);
  if (!model.ok()) return model.status();
  absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.tokens_per_block = options.tokens_per_block, .layers = model->layers});
  if (!layout.ok()) return layout.status();

  const Workload workload{.max_sequence_tokens = options.sequence_tokens,
                          .concurrent_sequences = options.sequences,
                          .chunk_tokens = options.chunk_tokens};
  const absl::StatusOr<uint64_t> workload_bytes = BytesForWorkload(*layout, workload);
  if (!workload_bytes.ok()) return workload_bytes.status();
  std::vector<LadderTier> ladder = LadderOf(options, *workload_bytes);
  absl::StatusOr<SizingPlan> sizes =
      PlanSizes(*layout, {.workload = workload, .tiers = TierRequests(ladder)});
  if (!sizes.ok()) return sizes.status();
  Plan plan{.model = *std::move(model),
            .layout = *std::move(layout),
            .workload_bytes = *workload_bytes,
            .ladder = std::move(ladder),
            .sizes = *std::move(sizes)};
  if (absl::Status status = CheckDrives(plan, options); !status.ok()) return status;
  return plan;
}

// "bfloat16", or several if layers differ.
std::string DTypesOf(const ModelLayers& model) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    const std::string name(DTypeName(layer.dtype));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// The bytes of a block in all windows that are scales of fp8. They are in the other figures too.
uint64_t ScaleBytes(const CacheLayout& layout) {
  uint64_t bytes = 0;
  for (const WindowLayout& window : layout.windows()) {
    for (const PoolLayout& pool : window.pools) {
      if (pool.content == PoolContent::kScales) bytes += pool.slot_stride_bytes();
    }
  }
  return bytes;
}

// The daemon's configuration for these tiers. It has one dtype for all layers.
std::string ConfigText(const Plan& plan, const PlanOptions& options) {
  std::string text = absl::StrCat("cache:\n  tokens_per_block: ", options.tokens_per_block, "\n");
  const std::vector<LayerSpec>& layers = plan.model.layers;
  const bool same = std::all_of(layers.begin(), layers.end(), [&layers](const LayerSpec& layer) {
    return layer.dtype == layers.front().dtype;
  });
  if (same) absl::StrAppend(&text, "  kv_dtype: ", DTypesOf(plan.model), "\n");
  if (plan.sizes.windows.size() > 1) {
    absl::StrAppend(&text, "  workload: {sequence_tokens: ", options.sequence_tokens,
                    ", chunk_tokens: ", options.chunk_tokens, "}\n");
  }
  absl::StrAppend(&text, "  tiers:\n");
  for (const LadderTier& tier : plan.ladder) {
    absl::StrAppend(&text, "    - {name: ", tier.name,
                    ", medium: ", std::string(MediumName(tier.medium)), ", size: ", tier.size,
                    "}\n");
  }
  return text;
}

// --- For people ---

void PrintDrive(const DrivePlan& plan, const PlanOptions& options) {
  const Drive& drive = plan.drive;
  Print("  one write of the drive per day (%s%s) is %s/s\n",
        FormatDecimalBytes(drive.capacity_bytes),
        options.drive.size.empty() ? ", as large as the tier" : "",
        FormatDecimalBytes(OneWritePerDay(drive.capacity_bytes)));
  if (plan.budget > 0) {
    Print("  a budget of %s/s is %s per day, %.2f writes of the drive\n",
          FormatDecimalBytes(plan.budget), FormatDecimalBytes(plan.budget * kSecondsPerDay),
          plan.writes_per_day());
  }
  if (drive.endurance_bytes > 0) {
    Print("  the drive endures %s of writes\n", FormatDecimalBytes(drive.endurance_bytes));
  }
  const std::optional<double> years = plan.life_years();
  if (years.has_value()) {
    Print("  it lasts %s if the budget is always used up\n", FormatYears(*years));
  }
}

// Tiers on disk have no spare slots.
void PrintSpareSlots(const SizingPlan::TierPlan& share) {
  const uint32_t spare = share.slots - share.blocks;
  if (spare == 1) {
    Print("  each window has one spare slot, for swaps\n");
  } else if (spare > 1) {
    Print("  each window has %d spare slots, for running copies\n", spare);
  }
}

void PrintTier(const Plan& plan, const PlanOptions& options, size_t index) {
  const Tier tier(index);
  const LadderTier& named = plan.ladder[index];
  const uint32_t tokens_per_block = plan.layout.spec().tokens_per_block;
  const bool is_disk = named.medium == Medium::kDisk;
  const std::string medium = absl::StrCat(", ", std::string(MediumName(named.medium)), ",");
  Print("\n%s tier%s in %s\n", named.name, options.tiers.empty() ? "" : medium, named.SizeText());
  Print("  %-7s  %11s  %14s  %10s  %8s\n", "WINDOW", "BLOCKS", "TOKENS",
        is_disk ? "DISK" : "MEMORY", "SHARE");
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    const SizingPlan::TierPlan& share = window.tier(tier);
    Print("  %-7s  %11s  %14s  %10s  %8s\n", WindowName(window.window), FormatCount(share.blocks),
          FormatCount(uint64_t{share.blocks} * tokens_per_block), FormatBytes(share.bytes),
          FormatShare(Share(share.bytes, plan.sizes.bytes(tier))));
  }
  if (tier == kPrimaryTier) {
    Print("  fits %s of %s at once\n",
          FormatCounted(plan.sizes.max_concurrent_sequences(), "sequence"),
          FormatCounted(options.sequence_tokens, "token"));
  } else {
    PrintSpareSlots(plan.sizes.windows.front().tier(tier));
  }
  if (is_disk) PrintDrive(DriveOf(plan, options, index), options);
}

void PrintTable(const Plan& plan, const PlanOptions& options) {
  Print("model      %s, %s\n", plan.model.name, DTypesOf(plan.model));
  Print("layers     %s\n", DescribeLayers(plan.model.layers));
  Print("a token    %s in all layers\n", FormatBytes(BytesPerToken(plan.layout)));
  Print("a block    %s\n", FormatCounted(options.tokens_per_block, "token"));
  if (const uint64_t scales = ScaleBytes(plan.layout); scales > 0) {
    Print("scales     %s of a block: a float32 per layer and head, for K and for V\n",
          FormatBytes(scales));
  }
  Print("sequences  %s of %s at once take %s of primary memory\n\n", FormatCount(options.sequences),
        FormatCounted(options.sequence_tokens, "token"), FormatBytes(plan.workload_bytes));
  Print("  %-7s  %11s  %14s  %20s\n", "WINDOW", "A TOKEN", "A BLOCK", "BLOCKS A SEQUENCE");
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    Print("  %-7s  %11s  %14s  %20s\n", WindowName(window.window),
          FormatBytes(window.bytes_per_token), FormatBytes(window.bytes_per_block),
          FormatCount(window.blocks_per_sequence));
  }
  for (size_t t = 0; t < plan.ladder.size(); ++t) {
    if (!plan.ladder[t].size.empty()) PrintTier(plan, options, t);
  }
  if (!options.tiers.empty()) {
    Print("\nfor the daemon's configuration\n%s", ConfigText(plan, options));
  }
  std::cout.flush();
}

// --- For programs ---

Json DriveJson(const DrivePlan& plan) {
  Json json = {{"capacity_bytes", plan.drive.capacity_bytes},
               {"one_write_per_day_bytes_per_second", OneWritePerDay(plan.drive.capacity_bytes)}};
  if (plan.drive.endurance_bytes > 0) json["endurance_bytes"] = plan.drive.endurance_bytes;
  if (plan.budget > 0) {
    json["write_budget_bytes_per_second"] = plan.budget;
    json["writes_per_day"] = plan.writes_per_day();
  }
  const std::optional<double> years = plan.life_years();
  if (years.has_value()) json["life_years"] = *years;
  return json;
}

Json TierJson(const Plan& plan, Tier tier) {
  Json blocks = Json::object();
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    blocks[WindowName(window.window)] = window.tier(tier).blocks;
  }
  Json json = {{"bytes", plan.sizes.bytes(tier)}, {"blocks", blocks}};
  if (tier == kPrimaryTier) {
    json["max_concurrent_sequences"] = plan.sizes.max_concurrent_sequences();
  }
  return json;
}

// The tiers as a list, with the names and media of --tiers.
Json LadderJson(const Plan& plan, const PlanOptions& options) {
  Json tiers = Json::array();
  for (size_t t = 0; t < plan.ladder.size(); ++t) {
    const LadderTier& named = plan.ladder[t];
    Json tier = {{"name", named.name}, {"medium", std::string(MediumName(named.medium))}};
    tier.update(TierJson(plan, Tier(t)));
    if (named.medium == Medium::kDisk) tier["drive"] = DriveJson(DriveOf(plan, options, t));
    tiers.push_back(tier);
  }
  return tiers;
}

void PrintJson(const Plan& plan, const PlanOptions& options) {
  Json windows = Json::array();
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    windows.push_back({{"window", WindowName(window.window)},
                       {"bytes_per_token", window.bytes_per_token},
                       {"bytes_per_block", window.bytes_per_block},
                       {"blocks_per_sequence", window.blocks_per_sequence}});
  }
  Json json = {{"model", plan.model.name},
               {"layers", plan.model.layers.size()},
               {"tokens_per_block", options.tokens_per_block},
               {"bytes_per_token", BytesPerToken(plan.layout)},
               {"scale_bytes_per_block", ScaleBytes(plan.layout)},
               {"sequence_tokens", options.sequence_tokens},
               {"sequences", options.sequences},
               {"sequences_bytes", plan.workload_bytes},
               {"windows", windows}};
  if (!options.primary.empty()) json["primary"] = TierJson(plan, kPrimaryTier);
  if (!options.secondary.empty()) json["secondary"] = TierJson(plan, Tier(1));
  if (!options.tiers.empty()) {
    json["tiers"] = LadderJson(plan, options);
    json["config"] = ConfigText(plan, options);
  }
  std::cout << json.dump() << std::endl;
}

// The first tier holds the workload's sequences. The plan is printed anyway.
absl::Status CheckFits(const Plan& plan, const PlanOptions& options) {
  const uint64_t fitting = plan.sizes.max_concurrent_sequences();
  if (fitting >= options.sequences) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the ", plan.ladder.front().name, " tier in ", plan.ladder.front().SizeText(), " fits ",
      FormatCount(fitting), " of ", FormatCounted(options.sequences, "sequence"), " of ",
      FormatCounted(options.sequence_tokens, "token"), ", which take ",
      FormatBytes(plan.workload_bytes)));
}

absl::Status RunPlan(const GlobalOptions& globals, const PlanOptions& options) {
  const absl::StatusOr<Plan> plan = MakePlan(options);
  if (!plan.ok()) return plan.status();
  if (globals.output == OutputFormat::kJson) {
    PrintJson(*plan, options);
  } else {
    PrintTable(*plan, options);
  }
  return CheckFits(*plan, options);
}

// --- Options ---

std::string CheckBytes(const std::string& text) {
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  if (bytes.has_value() && *bytes > 0) return "";
  return absl::StrCat("\"", text, "\" is not a number of ", kByteSizeForms);
}

void AddSizeOptions(CLI::App& command, PlanOptions& options) {
  const CLI::Range tokens(1U, std::numeric_limits<uint32_t>::max());
  command
      .add_option("--tokens-per-block", options.tokens_per_block,
                  "Tokens per block, a power of two")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  CLI::Option* const tiers =
      command
          .add_option(
              "--tiers", options.tiers,
              "NAME:MEDIUM:SIZE of each tier, nearest first, separated by commas. MEDIUM is "
              "gpu, host or disk; SIZE is bytes (80GiB) or blocks of each window (1000)")
          ->check(CheckLadder);
  command
      .add_option("--primary", options.primary,
                  "Short form: the memory of the primary tier, such as 80GiB")
      ->check(CheckBytes)
      ->excludes(tiers);
  command
      .add_option("--secondary", options.secondary,
                  "Short form: the memory of the secondary tier, such as 200GiB")
      ->check(CheckBytes)
      ->excludes(tiers);
  command
      .add_option("--sequence-tokens", options.sequence_tokens,
                  "Tokens of a sequence, prompt and output together")
      ->check(tokens)
      ->capture_default_str();
  command
      .add_option("--chunk-tokens", options.chunk_tokens,
                  "Prompt tokens that are computed in one step; matters for sliding windows")
      ->check(tokens)
      ->capture_default_str();
  command.add_option("--sequences", options.sequences, "Sequences that run at once")
      ->check(CLI::Range(1U, 1U << 24))
      ->capture_default_str();
}

// The options of a drive describe the drive of the disk tier.
void RefuseDriveWithoutDisk(const PlanOptions& options) {
  if (!options.drive.given()) return;
  if (!options.tiers.empty() && FindDisk(*ParseLadder(options.tiers)) != nullptr) return;
  throw CLI::ValidationError("--tiers", "--write-budget and --drive-... need a disk tier");
}

}  // namespace

void AddSizeCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "size", "Computes the size of a model's KV cache and what fits into a memory");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<PlanOptions>();
  AddModelOptions(*command, options->model, ModelNeed::kOne);
  AddSizeOptions(*command, *options);
  AddDriveOptions(*command, options->drive);
  command->footer(
      "This command needs no daemon. It divides a tier between the model's attention windows like\n"
      "the daemon: in the first tier, each window holds the same number of running sequences; the\n"
      "lower tiers are divided by the tokens that can still be attended to. With --tiers, the\n"
      "tiers are also printed as the daemon's configuration. For a disk tier, the command prints\n"
      "how long the drive lasts: its TBW, or DWPD x size x years, divided by the write budget. A\n"
      "drive's TB is 10^12 bytes. The command fails if the first tier is too small for "
      "--sequences.\n"
      "Examples:\n"
      "  pagoda-plan size --preset qwen3-8b --primary 80GiB\n"
      "  pagoda-plan size --model tests/golden/qwen3_tiny --sequences 64 -o json\n"
      "  pagoda-plan size --layers 52x16x128@1024,10x16x128 --primary 40GiB --secondary 200GiB\n"
      "  pagoda-plan size --preset qwen3-8b --tiers hbm:gpu:80GiB,dram:host:400GiB,nvme:disk:3TiB "
      "\\\n"
      "      --write-budget 44MB/s --drive-size 3.84TB --drive-tbw 7PB");
  command->callback([&globals, &chosen, options] {
    RefuseDriveWithoutDisk(*options);
    chosen = [&globals, options] { return RunPlan(globals, *options); };
  });
}

}  // namespace pagoda
