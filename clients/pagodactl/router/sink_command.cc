// pagodactl sink: keeps in Redis or Valkey which daemons have which prefixes.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "clients/pagodactl/command/number_check.h"
#include "clients/pagodactl/router/commands.h"
#include "clients/pagodactl/router/node_option.h"
#include "clients/pagodactl/terminal/format.h"
#include "clients/pagodactl/terminal/interrupt.h"
#include "clients/router/prefix_router.h"
#include "clients/router/valkey_sink.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

struct SinkOptions {
  std::vector<std::string> nodes;
  std::string store;
  std::string user, password_file, tls_ca;
  ValkeySink::Options sink;
  double interval_seconds = 10;
};

// The first line of the file, in the form of a token's file.
absl::StatusOr<StoreLink::Options> StoreOf(const SinkOptions& options) {
  const absl::StatusOr<RedisAddress> address = ParseRedisAddress(options.store);
  if (!address.ok()) return InvalidArgument(std::string(address.status().message()));
  StoreLink::Options store = {.address = *address,
                              .tls = {.is_on = !options.tls_ca.empty(),
                                      .ca_file = options.tls_ca,
                                      .certificate_file = {},
                                      .key_file = {}},
                              .username = options.user,
                              .password = {}};
  if (options.password_file.empty()) return store;
  absl::StatusOr<std::string> password = ReadBearerToken(options.password_file);
  if (!password.ok()) return password.status();
  store.password = *std::move(password);
  return store;
}

void PrintFigures(OutputFormat format, const PrefixRouter& router, const ValkeySink& sink) {
  const std::vector<PrefixRouter::NodeRow> nodes = router.Nodes();
  const auto alive = static_cast<uint64_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.alive(); }));
  uint64_t records = 0;
  for (const PrefixRouter::NodeRow& node : nodes) records += node.records;
  const ValkeySink::Figures figures = sink.figures();
  const std::string error(figures.connected ? "" : figures.error.message());
  if (format == OutputFormat::kJson) {
    const nlohmann::ordered_json json = {{"nodes", nodes.size()},
                                         {"alive", alive},
                                         {"records", records},
                                         {"connected", figures.connected},
                                         {"written", figures.written},
                                         {"waiting", figures.waiting},
                                         {"purged", figures.purged},
                                         {"refreshes", figures.refreshes},
                                         {"error", error}};
    std::cout << json.dump() << std::endl;
    return;
  }
  std::cout << alive << " of " << FormatCounted(nodes.size(), "node") << " alive, "
            << FormatCounted(records, "record") << ", " << FormatCount(figures.written)
            << " written, " << FormatCount(figures.waiting) << " waiting, "
            << FormatCount(figures.purged) << " purged"
            << (figures.connected ? "" : absl::StrCat("; the store is away: ", error)) << std::endl;
}

absl::Status RunSink(const GlobalOptions& globals, const SinkOptions& options) {
  absl::Notification interrupted;
  const InterruptScope interrupt([&interrupted] { interrupted.Notify(); });
  const absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  absl::StatusOr<StoreLink::Options> store = StoreOf(options);
  if (!store.ok()) return store.status();
  ValkeySink::Options sink_options = options.sink;
  sink_options.store = *std::move(store);
  const auto sink = ValkeySink::Create(sink_options);
  if (!sink.ok()) return sink.status();
  const auto router = PrefixRouter::Create({.cache = globals.cache,
                                            .chunk_tokens = sink_options.chunk_tokens,
                                            .lease = sink_options.lease,
                                            .sink = sink->get()});
  if (!router.ok()) return router.status();
  std::vector<std::string> nodes = options.nodes;
  if (nodes.empty()) nodes.push_back(globals.endpoint);
  for (const std::string& text : nodes) {
    RouterNode node = ParseNode(text);
    node.credentials = *credentials;
    if (absl::Status added = (*router)->AddNode(std::move(node)); !added.ok()) return added;
  }
  absl::Status started = (*sink)->Start([&router](NodeId id) { (*router)->Refresh(id); });
  if (!started.ok()) return started;
  while (!interrupted.WaitForNotificationWithTimeout(absl::Seconds(options.interval_seconds))) {
    PrintFigures(globals.output, **router, **sink);
  }
  (*sink)->Stop();
  return absl::OkStatus();
}

}  // namespace

void AddSinkCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "sink", "Keeps in Redis or Valkey which daemons have which prefixes, until Ctrl-C");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<SinkOptions>();
  AddNodeOption(*command, options->nodes);
  command->add_option("--store", options->store, "The Redis or Valkey server; not a cluster")
      ->type_name("HOST:PORT")
      ->required();
  command->add_option("--store-user", options->user,
                      "The user of the server; default: its default");
  command
      ->add_option("--store-password-file", options->password_file,
                   "A file whose first line is the user's password")
      ->type_name("FILE");
  command
      ->add_option("--store-ca", options->tls_ca,
                   "The CA of the server's certificate (PEM); the connection then uses TLS")
      ->type_name("FILE");
  command->add_option("--prefix", options->sink.prefix, "The first part of all keys")
      ->capture_default_str();
  command
      ->add_option("--buckets", options->sink.buckets,
                   "Hashes that hold the records: about one for 32 expected records")
      ->check(AboveZero())
      ->capture_default_str();
  command
      ->add_option("--chunk-tokens", options->sink.chunk_tokens,
                   "Prefixes are kept in steps of this many tokens")
      ->check(AboveZero())
      ->capture_default_str();
  command
      ->add_option("--interval", options->interval_seconds, "Seconds between two lines of figures")
      ->check(AboveZero())
      ->capture_default_str();
  command->footer(
      "Several sinks can share a server, but each daemon belongs to one sink. Sinks of one prefix\n"
      "need the same --buckets and --chunk-tokens. clients/router/store_layout.h describes the "
      "keys.\n"
      "Examples:\n"
      "  pagodactl sink --store 127.0.0.1:6379 --node a=10.0.0.1:7070 --node b=10.0.0.2:7070\n"
      "  pagodactl sink --store cache:6379 --store-user router --store-password-file secret");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunSink(globals, *options); };
  });
}

}  // namespace pagoda
