// pagodactl plan: what a model's KV cache takes, and what fits in a memory. No daemon, no GPU.
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/model_layers.h"
#include "nlohmann/json.hpp"
#include "pools/error.h"
#include "pools/layout.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

struct PlanOptions {
  std::string model_dir;
  std::string preset;
  std::string layers;
  std::string dtype;  // Empty: the checkpoint's.
  uint32_t tokens_per_block = 32;
  std::string primary;  // Sizes as they were given; empty: none.
  std::string secondary;
  uint32_t sequence_tokens = 8192;
  uint32_t chunk_tokens = 512;
  uint32_t sequences = 1;
};

struct Plan {
  ModelLayers model;
  CacheLayout layout;
  uint64_t workload_bytes = 0;
  SizingPlan sizes;
};

const std::map<std::string, DType>& DTypes() {
  static const auto* const types = new std::map<std::string, DType>{
      {"float32", DType::kFloat32}, {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16}};
  return *types;
}

absl::StatusOr<ModelLayers> ModelOf(const PlanOptions& options) {
  if (!options.model_dir.empty()) return ReadModelLayers(options.model_dir);
  if (!options.preset.empty()) return PresetModelLayers(options.preset);
  return ParseModelLayers(options.layers);
}

absl::StatusOr<Plan> MakePlan(const PlanOptions& options) {
  absl::StatusOr<ModelLayers> model = ModelOf(options);
  if (!model.ok()) return model.status();
  if (!options.dtype.empty()) {
    for (LayerSpec& layer : model->layers) layer.dtype = DTypes().at(options.dtype);
  }
  absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.tokens_per_block = options.tokens_per_block, .layers = model->layers});
  if (!layout.ok()) return layout.status();

  const Workload workload{.max_sequence_tokens = options.sequence_tokens,
                          .concurrent_sequences = options.sequences,
                          .chunk_tokens = options.chunk_tokens};
  const absl::StatusOr<uint64_t> workload_bytes = BytesForWorkload(*layout, workload);
  if (!workload_bytes.ok()) return workload_bytes.status();
  const uint64_t primary_bytes = ParseBytes(options.primary).value_or(0);
  // Without a memory the plan is for the one that the workload needs.
  absl::StatusOr<SizingPlan> sizes = PlanSizes(
      *layout, {.workload = workload,
                .primary = ByteBudget{primary_bytes > 0 ? primary_bytes : *workload_bytes},
                .secondary = ByteBudget{ParseBytes(options.secondary).value_or(0)}});
  if (!sizes.ok()) return sizes.status();
  return Plan{.model = *std::move(model),
              .layout = *std::move(layout),
              .workload_bytes = *workload_bytes,
              .sizes = *std::move(sizes)};
}

// "bfloat16", or several where layers differ.
std::string DTypesOf(const ModelLayers& model) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    const std::string name(DTypeName(layer.dtype));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// --- For people ---

void PrintTier(const Plan& plan, Tier tier, const std::string& given) {
  const uint32_t tokens_per_block = plan.layout.spec().tokens_per_block;
  absl::PrintF("\n%s tier in %s\n", std::string(TierName(tier)), given);
  absl::PrintF("  %-7s  %11s  %14s  %10s  %8s\n", "WINDOW", "BLOCKS", "TOKENS", "MEMORY", "SHARE");
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    const SizingPlan::TierPlan& share = window.tier(tier);
    absl::PrintF("  %-7s  %11s  %14s  %10s  %8s\n", WindowName(window.window),
                 FormatCount(share.blocks), FormatCount(uint64_t{share.blocks} * tokens_per_block),
                 FormatBytes(share.bytes), FormatShare(Share(share.bytes, plan.sizes.bytes(tier))));
  }
}

void PrintTable(const Plan& plan, const PlanOptions& options) {
  absl::PrintF("model      %s, %s\n", plan.model.name, DTypesOf(plan.model));
  absl::PrintF("layers     %s\n", DescribeLayers(plan.model.layers));
  absl::PrintF("a token    %s in all layers\n", FormatBytes(BytesPerToken(plan.layout)));
  absl::PrintF("a block    %d tokens\n", options.tokens_per_block);
  absl::PrintF("sequences  %s of %s tokens at once take %s of primary memory\n\n",
               FormatCount(options.sequences), FormatCount(options.sequence_tokens),
               FormatBytes(plan.workload_bytes));
  absl::PrintF("  %-7s  %11s  %14s  %20s\n", "WINDOW", "A TOKEN", "A BLOCK", "BLOCKS A SEQUENCE");
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    absl::PrintF("  %-7s  %11s  %14s  %20s\n", WindowName(window.window),
                 FormatBytes(window.bytes_per_token), FormatBytes(window.bytes_per_block),
                 FormatCount(window.blocks_per_sequence));
  }
  if (!options.primary.empty()) {
    PrintTier(plan, Tier::kPrimary, options.primary);
    absl::PrintF("  room for %s sequences of %s tokens at once\n",
                 FormatCount(plan.sizes.max_concurrent_sequences()),
                 FormatCount(options.sequence_tokens));
  }
  if (!options.secondary.empty()) {
    PrintTier(plan, Tier::kSecondary, options.secondary);
    absl::PrintF("  the memory of each window has one slot more: the spare of a swap\n");
  }
  std::fflush(stdout);
}

// --- For programs ---

Json TierJson(const Plan& plan, Tier tier) {
  Json blocks = Json::object();
  for (const SizingPlan::WindowPlan& window : plan.sizes.windows) {
    blocks[WindowName(window.window)] = window.tier(tier).blocks;
  }
  return {{"bytes", plan.sizes.bytes(tier)}, {"blocks", blocks}};
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
               {"sequence_tokens", options.sequence_tokens},
               {"sequences", options.sequences},
               {"sequences_bytes", plan.workload_bytes},
               {"windows", windows}};
  if (!options.primary.empty()) {
    json["primary"] = TierJson(plan, Tier::kPrimary);
    json["primary"]["max_concurrent_sequences"] = plan.sizes.max_concurrent_sequences();
  }
  if (!options.secondary.empty()) json["secondary"] = TierJson(plan, Tier::kSecondary);
  std::cout << json.dump() << std::endl;
}

absl::Status RunPlan(const GlobalOptions& globals, const PlanOptions& options) {
  const absl::StatusOr<Plan> plan = MakePlan(options);
  if (!plan.ok()) return plan.status();
  if (globals.output == OutputFormat::kJson) {
    PrintJson(*plan, options);
  } else {
    PrintTable(*plan, options);
  }
  return absl::OkStatus();
}

// --- Options ---

std::string CheckLayers(const std::string& text) {
  return std::string(ParseModelLayers(text).status().message());
}

std::string CheckBytes(const std::string& text) {
  const std::optional<uint64_t> bytes = ParseBytes(text);
  if (bytes.has_value() && *bytes > 0) return "";
  return absl::StrCat("\"", text, "\" is no size such as 80GiB, 512MiB, 64KiB or 100B");
}

void AddModelOptions(CLI::App& command, PlanOptions& options) {
  CLI::Option_group* model = command.add_option_group("model", "Exactly one of");
  model->add_option("--model", options.model_dir, "A Hugging Face folder; its config.json is read")
      ->check(CLI::ExistingDirectory);
  model->add_option("--preset", options.preset, "A well-known model")
      ->check(CLI::IsMember(PresetNames()));
  model
      ->add_option("--layers", options.layers,
                   "LAYERSxKV_HEADSxHEAD_DIM, with @WINDOW and k (K only) after it; several with "
                   "commas")
      ->check(CheckLayers);
  model->require_option(1);
}

void AddSizeOptions(CLI::App& command, PlanOptions& options) {
  const CLI::Range tokens(1U, std::numeric_limits<uint32_t>::max());
  command.add_option("--dtype", options.dtype, "Of the cache; else as the checkpoint says")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  command.add_option("--tokens-per-block", options.tokens_per_block, "A power of two")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  command.add_option("--primary", options.primary, "Memory of the primary tier: 80GiB")
      ->check(CheckBytes);
  command.add_option("--secondary", options.secondary, "Memory of the secondary tier: 200GiB")
      ->check(CheckBytes);
  command
      .add_option("--sequence-tokens", options.sequence_tokens,
                  "A sequence's tokens, prompt and output")
      ->check(tokens)
      ->capture_default_str();
  command
      .add_option("--chunk-tokens", options.chunk_tokens,
                  "Prompt tokens that are computed at once; for sliding windows")
      ->check(tokens)
      ->capture_default_str();
  command.add_option("--sequences", options.sequences, "Sequences that run at once")
      ->check(CLI::Range(1U, 1U << 24))
      ->capture_default_str();
}

}  // namespace

void AddPlanCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "plan", "Shows what a model's KV cache takes, and what fits in a memory; without a daemon");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<PlanOptions>();
  AddModelOptions(*command, *options);
  AddSizeOptions(*command, *options);
  command->footer(
      "A memory is divided between the model's attention windows as the daemon does it: the\n"
      "primary tier so that each window holds as many running sequences as any other, the\n"
      "secondary tier by the tokens that can still be attended to.\n"
      "Examples:\n"
      "  pagodactl plan --preset qwen3-8b --primary 80GiB\n"
      "  pagodactl plan --model tests/golden/qwen3_tiny --sequences 64 -o json\n"
      "  pagodactl plan --layers 52x16x128@1024,10x16x128 --primary 40GiB --secondary 200GiB");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunPlan(globals, *options); };
  });
}

}  // namespace pagoda
