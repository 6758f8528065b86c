// pagodactl store: the store of a daemon, and the check of a store.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/store/commands.h"
#include "clients/pagodactl/store/exchange_text.h"
#include "clients/pagodactl/store/store_check.h"
#include "clients/pagodactl/store/store_options.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

// --- store stats ---

void AppendTexts(const LabelledTexts& texts, const char* indent, std::string* out) {
  for (const auto& [label, text] : texts) {
    absl::StrAppend(out, out->empty() ? "" : "\n", indent, absl::StrFormat("%-10s", label), " ",
                    text);
  }
}

absl::Status RunStats(const GlobalOptions& globals) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto statuses = admin->Statuses();
  if (!statuses.ok()) return statuses.status();
  if (globals.output == OutputFormat::kJson) return PrintStatuses(*statuses);
  std::string text;
  AppendTexts(OtherMachinesTexts(statuses->front()), "", &text);
  if (text.empty()) text = "the daemon has no store, and exchanges nothing with other daemons";
  for (const v1::GetStatusResponse& status : *statuses) {
    if (!status.has_exchange() || !status.has_cache()) continue;
    absl::StrAppend(&text, "\ncache ", status.cache().name());
    AppendTexts(ExchangeTexts(status), "  ", &text);
  }
  std::cout << text << std::endl;
  return absl::OkStatus();
}

// --- store check ---

void PrintStep(const StoreCheckStep& step, const Terminal& terminal) {
  const bool is_good = step.status.ok();
  std::cout << Paint(terminal, is_good ? Style::kGreen : Style::kRed, is_good ? "OK    " : "FAILED")
            << " " << absl::StrFormat("%-24s", step.name) << " "
            << (is_good ? step.detail : std::string(step.status.message())) << std::endl;
}

Json ResultJson(const StoreCheckResult& result) {
  Json steps = Json::array();
  for (const StoreCheckStep& step : result.steps) {
    steps.push_back({{"step", step.name},
                     {"ok", step.status.ok()},
                     {"detail", step.detail},
                     {"error", std::string(step.status.message())}});
  }
  Json nodes = Json::array();
  for (const StoreCheckNode& node : result.nodes) {
    nodes.push_back(
        {{"address", ToString(node.address)},
         {"role", node.is_replica ? "replica" : "primary"},
         {"slots", node.slots},
         {"ok", node.status.ok()},
         {"round_trip_seconds",
          node.status.ok() ? Json(absl::ToDoubleSeconds(node.round_trip)) : Json(nullptr)}});
  }
  return {{"ok", result.failed_steps() == 0},
          {"steps", steps},
          {"nodes", nodes},
          {"write_bytes_per_second", result.write_bytes_per_second},
          {"read_bytes_per_second", result.read_bytes_per_second}};
}

struct CheckFlags {
  StoreFlags store;
  bool cluster = false;
};

absl::Status RunCheck(const GlobalOptions& globals, const CheckFlags& flags) {
  absl::StatusOr<RedisOptions> redis = StoreOptionsOf(flags.store);
  if (!redis.ok()) return redis.status();
  const bool is_table = globals.output == OutputFormat::kTable;
  const Terminal terminal = DetectTerminal(STDOUT_FILENO);
  const StoreCheckResult result =
      CheckStore({.redis = *std::move(redis),
                  .cluster = flags.cluster ? ClusterCheck::kMustBeCluster : ClusterCheck::kAny,
                  .timeout = globals.timeout()},
                 [&](const StoreCheckStep& step) {
                   if (is_table) PrintStep(step, terminal);
                 });
  if (!is_table) std::cout << ResultJson(result).dump() << std::endl;
  if (result.failed_steps() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(result.failed_steps(), " of ", result.steps.size(), " steps failed"));
}

void AddCheck(CLI::App& store, const GlobalOptions& globals, Action& chosen) {
  CLI::App* check = store.add_subcommand(
      "check", "Tries a store out from this machine: connects, writes, reads and verifies values");
  const auto flags = std::make_shared<CheckFlags>();
  AddStoreFlags(*check, flags->store);
  check->add_flag("--cluster", flags->cluster, "A store that is not a cluster is a failure");
  check->footer(
      "Needs no daemon. Each step says OK, or why it failed. Writes some ten MiB of test values\n"
      "under KEY-PREFIX + \"check:\", which expire by themselves. Run it on the daemon's machine, "
      "as\n"
      "its user, to see what the daemon sees.\n"
      "Examples:\n"
      "  pagodactl store check --config /etc/pagoda/pagodad.yaml\n"
      "  pagodactl store check --server redis-1:6379 --server redis-2:6379 --cluster\n"
      "  pagodactl store check --server cache.example:6380 --username pagoda \\\n"
      "      --password-file /etc/pagoda/store-password --tls-ca /etc/pagoda/ca.pem");
  check->callback([&globals, &chosen, flags] {
    chosen = [&globals, flags] { return RunCheck(globals, *flags); };
  });
}

}  // namespace

void AddStoreCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* store =
      app.add_subcommand("store", "Shows the daemon's store and other daemons; checks a store");
  store->require_subcommand(1);
  store->footer(
      "Examples:\n"
      "  pagodactl store stats\n"
      "  pagodactl store check --config /etc/pagoda/pagodad.yaml");
  CLI::App* stats = store->add_subcommand(
      "stats", "Shows what the daemon exchanges with its store and with other daemons");
  stats->footer(
      "Counts are since the daemon's start; those of a cache, since it was opened.\n"
      "Examples:\n"
      "  pagodactl store stats\n"
      "  pagodactl store stats -o json | jq '.store.gets_total'");
  stats->callback([&] { chosen = [&] { return RunStats(globals); }; });
  AddCheck(*store, globals, chosen);
}

}  // namespace pagoda
