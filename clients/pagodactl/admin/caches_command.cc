// pagodactl caches: lists the daemon's caches and the free memory for more; shows, opens and drops
// a cache.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/options/cache_spec.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/cpp/open_cache.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/command/engine_text.h"
#include "pools/types.h"
#include "wire/cache_info.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Stub = AdminClient::Stub;

// --- Texts of a row ---

std::string ModelText(const v1::CacheRow& row) {
  if (row.has_identity()) return row.identity().model();
  return OrDash(row.cache().model_fingerprint());
}

uint64_t LayersOf(const v1::CacheRow& row) {
  uint64_t layers = 0;
  for (const v1::LayerGroup& group : row.layers()) layers += group.count();
  return layers;
}

// "full,1024".
std::string WindowsText(const v1::CacheInfo& cache) {
  std::vector<std::string> names;
  for (const v1::WindowInfo& window : cache.windows()) {
    names.push_back(WindowName(WindowFromProto(window.window_size())));
  }
  return OrDash(absl::StrJoin(names, ","));
}

// "32x8x128:bfloat16 2x8x128:bfloat16@1024".
std::string LayersText(const v1::CacheRow& row) {
  return OrDash(absl::StrJoin(row.layers(), " ", [](std::string* out, const v1::LayerGroup& group) {
    out->append(LayerGroupText(group));
  }));
}

std::string UnusedText(const v1::CacheRow& row) {
  return row.has_unused() ? FormatElapsed(DurationFromProto(row.unused())) : "-";
}

std::string EndsInText(const v1::CacheRow& row) {
  return row.has_ends_in() ? FormatElapsed(DurationFromProto(row.ends_in())) : "-";
}

std::string UsedText(const v1::CacheTierRow& tier) {
  return FormatShare(Share(tier.used_blocks(), tier.capacity_blocks()));
}

// An engine that is not up has no addresses.
bool IsEngineUp(const v1::CacheRow& row) {
  return !EngineAddressesText(row.engine_addresses()).empty();
}

// "the daemon's, gRPC at 127.0.0.1:7074".
std::string EngineText(const v1::CacheRow& row) {
  if (!row.has_engine()) return "none in the daemon";
  return absl::StrCat("the daemon's, ",
                      IsEngineUp(row) ? EngineAddressesText(row.engine_addresses()) : "not up");
}

// --- For people ---

void PrintBudgets(const v1::ListCachesResponse& list) {
  if (list.budgets().empty()) {
    Print("clients cannot open caches: the daemon has no memory for them\n");
    return;
  }
  Print("memory for clients' caches:\n");
  for (const v1::BudgetRow& budget : list.budgets()) {
    Print("  %-6s %s, %s free\n", MediumText(budget.medium()), FormatBytes(budget.bytes()),
          FormatBytes(budget.free_bytes()));
  }
}

void PrintList(const v1::ListCachesResponse& list) {
  Print("%-20s  %-28s  %6s  %-12s  %12s  %8s  %-10s  %-10s  %-12s  %-10s  %10s  %8s\n", "CACHE",
        "MODEL", "LAYERS", "WINDOWS", "TOKENS/BLOCK", "SESSIONS", "UNUSED", "ENDS IN", "TENANT",
        "TIER", "SIZE", "USED");
  for (const v1::CacheRow& row : list.caches()) {
    // The cache's own columns are printed only before its first tier.
    std::string left = absl::StrFormat(
        "%-20s  %-28s  %6d  %-12s  %12d  %8s  %-10s  %-10s  %-12s", row.cache().name(),
        ModelText(row), LayersOf(row), WindowsText(row.cache()), row.cache().tokens_per_block(),
        FormatCount(row.sessions()), UnusedText(row), EndsInText(row), OrDash(row.tenant()));
    for (const v1::CacheTierRow& tier : row.tiers()) {
      Print("%s  %-10s  %10s  %8s\n", left, tier.name(), FormatBytes(tier.bytes()), UsedText(tier));
      left.assign(left.size(), ' ');
    }
    if (row.tiers().empty()) Print("%s\n", left);
  }
  Print("%s\n", FormatCounted(static_cast<uint64_t>(list.caches_size()), "cache"));
  PrintBudgets(list);
  std::cout.flush();
}

void PrintLife(const v1::CacheRow& row) {
  const absl::Duration age =
      std::max(absl::ZeroDuration(), absl::Now() - TimeFromProto(row.opened()));
  Print("opened       %s ago, epoch %016x\n", FormatElapsed(age), row.epoch());
  Print("clients      %s\n", FormatCounted(row.sessions(), "session"));
  if (row.has_ends_in()) {
    Print("unused       for %s; dropped in %s unless a client comes\n", UnusedText(row),
          EndsInText(row));
  }
}

void PrintRow(const v1::CacheRow& row) {
  Print("cache        %s, %s\n", row.cache().name(),
        row.has_identity() ? "opened by a client" : "from the daemon's configuration");
  if (row.has_identity()) {
    const v1::CacheIdentity& identity = row.identity();
    Print("model        %s, revision %s\n", identity.model(), OrDash(identity.revision()));
    Print("stored as    dtype %s, layout %s, packing %s\n", OrDash(identity.dtype()),
          OrDash(identity.layout()), OrDash(identity.kernel_packing()));
  } else {
    Print("model        %s\n", OrDash(row.cache().model_fingerprint()));
  }
  Print("layers       %s\n", LayersText(row));
  Print("block        %s; windows: %s\n", FormatCounted(row.cache().tokens_per_block(), "token"),
        WindowsText(row.cache()));
  Print("tenant       %s\n", OrDash(row.tenant()));
  PrintLife(row);
  Print("engine       %s\n", EngineText(row));
  for (const v1::CacheTierRow& tier : row.tiers()) {
    Print("tier         %s on %s: %s, %s of %s used (%s)\n", tier.name(), MediumText(tier.medium()),
          FormatBytes(tier.bytes()), FormatCount(tier.used_blocks()),
          FormatCounted(tier.capacity_blocks(), "block"), UsedText(tier));
  }
  std::cout.flush();
}

// --- The commands ---

absl::StatusOr<v1::ListCachesResponse> FetchCaches(const GlobalOptions& globals,
                                                   const std::string& name) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::ListCachesRequest request;
  request.set_name(name);
  return admin->Call(&Stub::ListCaches, request);
}

absl::Status RunList(const GlobalOptions& globals) {
  const auto list = FetchCaches(globals, globals.cache);
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*list);
  PrintList(*list);
  return absl::OkStatus();
}

absl::Status RunShow(const GlobalOptions& globals, const std::string& name) {
  const auto list = FetchCaches(globals, name);
  if (!list.ok()) return list.status();
  if (list->caches().empty()) {
    return MakeError(Reason::kUnknownCache, absl::StrCat("there is no cache '", name, "'"));
  }
  if (globals.output == OutputFormat::kJson) return PrintJson(list->caches(0));
  PrintRow(list->caches(0));
  return absl::OkStatus();
}

struct DropOptions {
  std::string name;
  bool force = false;
};

absl::Status RunDrop(const GlobalOptions& globals, const DropOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::DropCacheRequest request;
  request.set_name(options.name);
  request.set_force(options.force);
  const auto dropped = admin->Call(&Stub::DropCache, request);
  if (ReasonOf(dropped.status()) == Reason::kCacheInUse) {
    return MakeError(Reason::kCacheInUse,
                     absl::StrCat(std::string(dropped.status().message()),
                                  "\nEnd its clients first, or end their sessions with --force."));
  }
  if (!dropped.ok()) return dropped.status();
  const uint64_t ended = dropped->ended_sessions();
  return PrintResult(
      globals,
      absl::StrCat("the cache ", options.name, " is dropped",
                   ended == 0 ? std::string()
                              : absl::StrCat("; ", FormatCounted(ended, "session"), " ended")),
      *dropped);
}

struct OpenOptions {
  std::string name;
  v1::CacheIdentity identity;
  uint32_t tokens_per_block = 16;
  std::vector<std::string> layers;
  std::string gpu;
  std::string host;
  std::string disk;
  std::string policy;
  std::string tenant;
};

// Errors: INVALID_ARGUMENT.
absl::StatusOr<v1::OpenCacheRequest> RequestOf(const OpenOptions& options) {
  v1::OpenCacheRequest request;
  request.set_name(options.name);
  *request.mutable_identity() = options.identity;
  request.set_tokens_per_block(options.tokens_per_block);
  for (const std::string& text : options.layers) {
    const absl::StatusOr<v1::LayerGroup> group = ParseLayerGroup(text);
    if (!group.ok()) return group.status();
    *request.add_layers() = *group;
  }
  const std::pair<v1::Medium, const std::string*> sizes[] = {{v1::MEDIUM_GPU, &options.gpu},
                                                             {v1::MEDIUM_HOST, &options.host},
                                                             {v1::MEDIUM_DISK, &options.disk}};
  for (const auto& [medium, text] : sizes) {
    if (text->empty()) continue;
    const absl::StatusOr<v1::TierSize> size = ParseTierSize(*text, medium);
    if (!size.ok()) return size.status();
    *request.add_tiers() = *size;
  }
  request.set_eviction_policy(options.policy);
  request.set_tenant(options.tenant);
  return request;
}

// "full: host 1,024 blocks, disk 4,096 blocks".
std::string WindowText(const CacheInfo& cache, const CacheInfo::Window& window) {
  std::vector<std::string> tiers;
  for (size_t i = 0; i < window.blocks.size(); ++i) {
    tiers.push_back(
        absl::StrCat(cache.TierName(Tier(i)), " ", FormatCounted(window.blocks[i], "block")));
  }
  return absl::StrCat(WindowName(window.window), ": ", absl::StrJoin(tiers, ", "));
}

absl::Status RunOpen(const GlobalOptions& globals, const OpenOptions& options) {
  const absl::StatusOr<v1::OpenCacheRequest> request = RequestOf(options);
  if (!request.ok()) return request.status();
  absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  const absl::StatusOr<OpenedCache> opened = OpenCache({.endpoint = globals.endpoint,
                                                        .timeout = globals.timeout(),
                                                        .credentials = *std::move(credentials)},
                                                       *request);
  if (!opened.ok()) return opened.status();
  std::string text = absl::StrCat("the cache ", opened->info.name,
                                  opened->created ? " is open" : " exists already");
  for (const CacheInfo::Window& window : opened->info.windows) {
    absl::StrAppend(&text, "\n  window ", WindowText(opened->info, window));
  }
  v1::OpenCacheResponse response;
  CacheInfoToProto(opened->info, response.mutable_cache());
  response.set_created(opened->created);
  response.set_epoch(opened->epoch.value());
  return PrintResult(globals, text, response);
}

void AddShow(CLI::App& caches, const GlobalOptions& globals, Action& chosen) {
  CLI::App* show = caches.add_subcommand("show", "Shows all details of one cache");
  const auto name = std::make_shared<std::string>();
  show->add_option("NAME", *name, "The cache")->required();
  show->footer("Examples:\n  pagodactl caches show llama\n  pagodactl caches show llama -o json");
  show->callback(
      [&globals, &chosen, name] { chosen = [&globals, name] { return RunShow(globals, *name); }; });
}

void AddDrop(CLI::App& caches, const GlobalOptions& globals, Action& chosen) {
  CLI::App* drop =
      caches.add_subcommand("drop", "Drops a cache that a client opened and frees its memory");
  const auto options = std::make_shared<DropOptions>();
  drop->add_option("NAME", options->name, "The cache")->required();
  drop->add_flag("--force", options->force, "End the cache's sessions, if it has any");
  drop->footer(
      "The cache's content is lost. A cache from the daemon's configuration cannot be dropped.\n"
      "Examples:\n  pagodactl caches drop llama\n  pagodactl caches drop llama --force");
  drop->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunDrop(globals, *options); };
  });
}

void AddIdentity(CLI::App& open, v1::CacheIdentity& identity) {
  open.add_option("--model", *identity.mutable_model(), "The model of the KV: org/name")
      ->required();
  open.add_option("--revision", *identity.mutable_revision(),
                  "The revision of the model's weights");
  open.add_option("--dtype", *identity.mutable_dtype(), "How the engine stores KV");
  open.add_option("--layout", *identity.mutable_layout(), "How the engine arranges a page");
  open.add_option("--packing", *identity.mutable_kernel_packing(),
                  "How the engine's kernels pack a page");
}

void AddSizes(CLI::App& open, OpenOptions& options) {
  const auto check = [](const std::string& text) {
    const auto size = ParseTierSize(text, v1::MEDIUM_HOST);
    return size.ok() ? std::string() : std::string(size.status().message());
  };
  const CLI::Validator size(check, "SIZE");
  open.add_option("--gpu", options.gpu,
                  "GPU memory, such as 8GiB, or 50% of the memory that is free for caches")
      ->check(size);
  open.add_option("--host", options.host,
                  "Host memory; if no size is given at all, half of the free host memory")
      ->check(size);
  open.add_option("--disk", options.disk, "Space on the daemon's disk")->check(size);
}

void AddOpen(CLI::App& caches, const GlobalOptions& globals, Action& chosen) {
  CLI::App* open =
      caches.add_subcommand("open", "Opens a cache with your own layout, or finds an equal one");
  const auto options = std::make_shared<OpenOptions>();
  open->add_option("NAME", options->name, "1 to 64 letters, digits, '-', '_' or '.'")->required();
  AddIdentity(*open, options->identity);
  open->add_option("--tokens-per-block", options->tokens_per_block, "A power of two, 1 to 1,024")
      ->check(AboveZero())
      ->capture_default_str();
  const auto check = [](const std::string& text) {
    const auto group = ParseLayerGroup(text);
    return group.ok() ? std::string() : std::string(group.status().message());
  };
  open->add_option("--layers", options->layers,
                   "Groups of equal layers, in the model's order; the form is described below")
      ->required()
      ->delimiter(',')
      ->check(CLI::Validator(check, "SPEC"));
  AddSizes(*open, *options);
  open->add_option("--policy", options->policy, "The eviction policy; default: the daemon's");
  open->add_option("--tenant", options->tenant,
                   "The tenant that owns the cache, if an operator opens it");
  open->footer(
      "A group of layers has one of these forms:\n"
      "  COUNTxHEADSxDIM:DTYPE  K and V\n"
      "  COUNTxKDIM:DTYPE       K only\n"
      "  COUNTxopaque:BYTES     this many bytes per block\n"
      "@WINDOW at the end gives the layers an attention window of this many tokens. The default\n"
      "DTYPE is bfloat16. If a cache of this name with the same identity and layers exists, it is\n"
      "used and keeps the sizes that it was opened with.\n"
      "Examples:\n"
      "  pagodactl caches open llama --model org/llama --layers 32x8x128:bfloat16 --host 8GiB\n"
      "  pagodactl caches open gemma --model org/gemma --tokens-per-block 32 --host 50% \\\n"
      "      --layers 26x4x256:bfloat16@1024 8x4x256:bfloat16\n"
      "  pagodactl caches open mla --model org/mla --dtype bfloat16 --layers 61xK576:bfloat16\n"
      "  pagodactl caches open pages --model org/own --layout mine-1 --layers 24xopaque:65536 \\\n"
      "      --host 4GiB --disk 100GiB");
  open->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunOpen(globals, *options); };
  });
}

}  // namespace

void AddCachesCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* caches = app.add_subcommand(
      "caches", "Lists the daemon's caches and free memory; shows, opens or drops a cache");
  caches->require_subcommand(0, 1);
  CLI::App* list = caches->add_subcommand("list", "Lists the caches; also the default");
  list->callback([&] { chosen = [&] { return RunList(globals); }; });
  AddShow(*caches, globals, chosen);
  AddOpen(*caches, globals, chosen);
  AddDrop(*caches, globals, chosen);
  caches->footer(
      "USED is the share of a tier's blocks that are not free. A cache that a client opened is\n"
      "dropped when it has had no session for the daemon's memory.linger.\n"
      "Examples:\n"
      "  pagodactl caches\n"
      "  pagodactl caches -o json | jq '.caches[].cache.name'\n"
      "  pagodactl caches show llama\n"
      "  pagodactl caches open llama --model org/llama --layers 32x8x128:bfloat16 --host 8GiB\n"
      "  pagodactl caches drop llama");
  caches->callback([&globals, &chosen, caches] {
    if (!caches->get_subcommands().empty()) return;
    chosen = [&globals] { return RunList(globals); };
  });
}

}  // namespace pagoda
