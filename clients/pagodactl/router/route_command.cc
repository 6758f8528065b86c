// pagodactl route: which of several daemons have the longest prefix of a prompt.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagodactl/prefix/prefix_options.h"
#include "clients/pagodactl/router/commands.h"
#include "clients/router/prefix_router.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

struct RouteOptions {
  PrefixOptions prefix;
  std::vector<std::string> nodes;
  uint32_t chunk_tokens = 0;
  double recompute_tokens_per_second = RouteCosts{}.recompute_tokens_per_second;
  std::string host, disk, peer;  // Bytes a second, as sizes.
};

// The node of "[NAME=]ENDPOINT[,PEER]". Without a name, the endpoint is the name.
RouterNode ParseNode(const std::string& text) {
  RouterNode node;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(',', 1));
  node.peer_address = parts.second;
  const std::vector<std::string> named = absl::StrSplit(parts.first, absl::MaxSplits('=', 1));
  node.name = named.front();
  node.endpoint = named.back();
  return node;
}

std::string CheckNode(const std::string& text) {
  const RouterNode node = ParseNode(text);
  return node.name.empty() || node.endpoint.empty()
             ? absl::StrCat("\"", text, "\" is not [NAME=]ENDPOINT[,PEER]")
             : "";
}

std::string CheckByteRate(const std::string& text) {
  if (ParseByteSizeWithUnit(text).value_or(0) > 0) return "";
  return absl::StrCat("\"", text, "\" is not a number of ", kByteSizeForms);
}

RouteCosts CostsOf(const RouteOptions& options) {
  RouteCosts costs = {.recompute_tokens_per_second = options.recompute_tokens_per_second};
  const auto set = [](const std::string& text, double* rate) {
    const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
    if (bytes.has_value()) *rate = static_cast<double>(*bytes);
  };
  set(options.host, &costs.host_bytes_per_second);
  set(options.disk, &costs.disk_bytes_per_second);
  set(options.peer, &costs.peer_bytes_per_second);
  return costs;
}

// One line of the answer: a node, and what it has of the prompt.
struct RouteRow {
  PrefixRouter::NodeRow node;
  PrefixRouter::Candidate candidate;  // Set only for a node that is alive.
};

// The nodes that have a part of the prompt, best first; then those that have none; then those that
// are not alive.
std::vector<RouteRow> RouteRows(const PrefixRouter::Route& route,
                                const std::vector<PrefixRouter::NodeRow>& nodes) {
  std::vector<RouteRow> rows;
  for (const PrefixRouter::Candidate& candidate : route.nodes) {
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const auto& other) {
      return other.node->name == candidate.node->name;
    });
    if (node != nodes.end()) rows.push_back({*node, candidate});
  }
  const size_t found = rows.size();
  for (const bool alive : {true, false}) {
    for (const PrefixRouter::NodeRow& node : nodes) {
      const bool is_found =
          std::any_of(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(found),
                      [&](const RouteRow& row) { return row.node.node->name == node.node->name; });
      if (!is_found && node.alive() == alive) rows.push_back({node, route.other});
    }
  }
  return rows;
}

std::string CandidateTier(const PrefixRouter::Candidate& candidate, const ServedCache& cache) {
  const size_t tier = candidate.tier.value();
  if (candidate.tokens == 0) return "-";
  return tier < cache.tiers.size() ? cache.tiers[tier].name : DefaultTierName(candidate.tier);
}

std::string NodeStateText(const NodeFigures& figures) {
  std::string text(NodeStateName(figures.state));
  const bool shows_error = figures.state == NodeState::kRefused ||
                           figures.state == NodeState::kConnecting ||
                           figures.state == NodeState::kBroken;
  if (shows_error && !figures.error.ok()) {
    absl::StrAppend(&text, ": ", std::string(figures.error.message()));
  }
  return text;
}

void PrintRoute(const std::vector<RouteRow>& rows, const ServedCache& cache) {
  size_t width = 4;
  for (const RouteRow& row : rows) width = std::max(width, row.node.node->name.size());
  const auto line = [&](const std::string& name, const std::string& alive,
                        const std::string& tokens, const std::string& tier, const std::string& cost,
                        const std::string& fetch, const std::string& state) {
    Print("%-*s  %-5s  %8s  %-10s  %9s  %-20s  %s\n", static_cast<int>(width), name, alive, tokens,
          tier, cost, fetch, state);
  };
  line("NODE", "ALIVE", "TOKENS", "TIER", "COST", "FETCHES", "STATE");
  for (const RouteRow& row : rows) {
    const PrefixRouter::Candidate& candidate = row.candidate;
    const std::string state = NodeStateText(row.node.figures);
    if (!row.node.alive()) {
      line(row.node.node->name, "no", "-", "-", "-", "-", state);
      continue;
    }
    line(row.node.node->name, "yes", FormatCount(candidate.tokens), CandidateTier(candidate, cache),
         FormatElapsed(candidate.cost),
         candidate.fetch_from == nullptr ? "-"
                                         : absl::StrCat(FormatCount(candidate.fetch_tokens),
                                                        " from ", candidate.fetch_from->name),
         state);
  }
  std::cout.flush();
}

Json RouteRowJson(const RouteRow& row, const ServedCache& cache) {
  const NodeFigures& figures = row.node.figures;
  Json json = {{"name", row.node.node->name},
               {"endpoint", row.node.node->endpoint},
               {"peer_address", row.node.node->peer_address},
               {"alive", row.node.alive()},
               {"state", std::string(NodeStateName(figures.state))},
               {"epoch", absl::StrFormat("%016x", figures.epoch)},
               {"revision", figures.revision},
               {"records", row.node.records},
               {"error", nullptr},
               {"matched_tokens", nullptr},
               {"tier", nullptr},
               {"cost_seconds", nullptr},
               {"fetch_tokens", nullptr},
               {"fetch_from", nullptr}};
  if (!figures.error.ok()) json["error"] = std::string(figures.error.message());
  if (!row.node.alive()) return json;
  const PrefixRouter::Candidate& candidate = row.candidate;
  json["matched_tokens"] = candidate.tokens;
  if (candidate.tokens > 0) json["tier"] = CandidateTier(candidate, cache);
  json["cost_seconds"] = absl::ToDoubleSeconds(candidate.cost);
  json["fetch_tokens"] = candidate.fetch_tokens;
  if (candidate.fetch_from != nullptr) json["fetch_from"] = candidate.fetch_from->name;
  return json;
}

absl::Status RunRoute(const GlobalOptions& globals, const RouteOptions& options) {
  const absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  const absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  absl::StatusOr<std::unique_ptr<PrefixRouter>> router =
      PrefixRouter::Create({.cache = globals.cache,
                            .chunk_tokens = options.chunk_tokens,
                            .lease = globals.timeout(),
                            .costs = CostsOf(options)});
  if (!router.ok()) return router.status();
  std::vector<std::string> nodes = options.nodes;
  if (nodes.empty()) nodes.push_back(globals.endpoint);
  for (const std::string& text : nodes) {
    RouterNode node = ParseNode(text);
    node.credentials = *credentials;
    if (absl::Status added = (*router)->AddNode(std::move(node)); !added.ok()) return added;
  }
  (*router)->AwaitNodes(globals.timeout());

  const std::optional<ServedCache> cache = (*router)->cache();
  const std::vector<PrefixRouter::NodeRow> all = (*router)->Nodes();
  const bool is_any_alive =
      std::any_of(all.begin(), all.end(), [](const auto& node) { return node.alive(); });
  if (!cache.has_value() || !is_any_alive) {
    std::vector<std::string> endpoints;
    for (const PrefixRouter::NodeRow& node : all) {
      // The daemon has answered, and its answer was a refusal.
      if (node.figures.state == NodeState::kRefused) return node.figures.error;
      endpoints.push_back(node.node->endpoint);
    }
    return absl::UnavailableError(
        absl::StrCat("no daemon answers at ", absl::StrJoin(endpoints, " or ")));
  }
  const RoutedPrompt prompt = {.name_space = prefix->name_space,
                               .tokens = prefix->tokens,
                               .extra_token_ids = prefix->extra_token_ids,
                               .multimodal_items = prefix->multimodal_items,
                               .keys = prefix->keys};
  const std::vector<RouteRow> rows = RouteRows((*router)->Find(prompt, nodes.size()), all);
  if (globals.output == OutputFormat::kTable) {
    PrintRoute(rows, *cache);
    return absl::OkStatus();
  }
  Json list = Json::array();
  for (const RouteRow& row : rows) list.push_back(RouteRowJson(row, *cache));
  const Json json = {{"cache", cache->name},
                     {"prompt_tokens", prefix->size(cache->tokens_per_block)},
                     {"nodes", list}};
  std::cout << json.dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace

void AddRouteCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("route", "Shows which of several daemons have a prompt's longest prefix");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<RouteOptions>();
  AddPrefixOptions(*command, options->prefix, Tokens::kNeeded);
  command
      ->add_option("--node", options->nodes,
                   "A daemon: its name in the answer, its endpoint, and the address at which other "
                   "daemons fetch from it. Repeat the option for each; default: --endpoint")
      ->type_name("[NAME=]ENDPOINT[,PEER]")
      ->check(CheckNode);
  command
      ->add_option("--chunk-tokens", options->chunk_tokens,
                   "Find prefixes in steps of this many tokens, as a router does; default: in "
                   "whole blocks")
      ->check(AboveZero());
  command
      ->add_option("--recompute", options->recompute_tokens_per_second,
                   "Tokens that a node computes in a second")
      ->check(AboveZero())
      ->capture_default_str();
  const std::pair<const char*, std::string*> rates[] = {{"--host-rate", &options->host},
                                                        {"--disk-rate", &options->disk},
                                                        {"--peer-rate", &options->peer}};
  const char* const texts[] = {
      "Bytes that a node brings from a tier in host memory in a second; default: 20 GB",
      "The same from disk; default: 2 GB",
      "Bytes that a node fetches from another one in a second; default: 1 GB"};
  for (size_t i = 0; i < std::size(rates); ++i) {
    command->add_option(rates[i].first, *rates[i].second, texts[i])
        ->type_name("SIZE")
        ->check(CheckByteRate);
  }
  command->footer(
      "COST estimates the time until the whole prompt is ready on the node: blocks of farther "
      "tiers\n"
      "are onboarded, the rest is fetched from the best other node or computed. The node's load "
      "is\n"
      "not in it. All nodes get the same credentials.\n"
      "Examples:\n"
      "  pagodactl route --token-file prompt.txt --node a=10.0.0.1:7070 --node b=10.0.0.2:7070\n"
      "  pagodactl route --tokens 1,2,3,4 --node unix:/run/pagoda.sock -o json\n"
      "  pagodactl route --token-file prompt.txt --node a=node-a:7070,node-a:7075 --node "
      "b=node-b:7070\n"
      "    --peer-rate 3GiB --recompute 25000");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunRoute(globals, *options); };
  });
}

}  // namespace pagoda
