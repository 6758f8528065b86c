// pagodactl pin, unpin, pins, offload, prefetch, invalidate, retain: an operator's commands for
// cached prefixes.
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/pagodactl/prefix/commands.h"
#include "clients/pagodactl/prefix/prefetch.h"
#include "clients/pagodactl/prefix/prefix_options.h"
#include "clients/pagodactl/prefix/ticket_wait.h"
#include "manager/words/retention.h"
#include "wire/answer_writer.h"

namespace pagoda {
namespace {

struct PrefixCommandOptions {
  PrefixOptions prefix;
  uint64_t pin = 0;
  std::optional<double> lease_seconds;
  uint32_t priority = 0;
  std::optional<double> duration_seconds;
  uint32_t from_token = 0;
  std::optional<uint32_t> to_token;
  PrefetchTarget target = PrefetchTarget::kPrimary;
  std::optional<double> deadline_seconds;
  bool no_wait = false;
};

absl::Duration DurationFromSeconds(const std::optional<double>& seconds) {
  return seconds.has_value() ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

absl::StatusOr<std::unique_ptr<CacheClient>> OpenClient(const GlobalOptions& globals) {
  absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  return OpenGrpcCacheClient({.endpoint = globals.endpoint,
                              .client_name = "pagodactl",
                              .lease = absl::ZeroDuration(),
                              .timeout = globals.timeout(),
                              .credentials = *std::move(credentials),
                              .cache = globals.cache});
}

// Runs one operation in its own session.
template <class Result>
absl::StatusOr<Result> RunAlone(const GlobalOptions& globals, const Operation& operation) {
  const auto client = OpenClient(globals);
  if (!client.ok()) return client.status();
  return RunOne<Result>(**client, operation);
}

// --- Pins ---

absl::Status RunPin(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  PinPrefix pin = (*std::move(prefix)).Named<PinPrefix>();
  pin.lease = DurationFromSeconds(options.lease_seconds);
  const auto pinned = RunAlone<PinnedPrefix>(globals, std::move(pin));
  if (!pinned.ok()) return pinned.status();
  if (pinned->pin == PinId{}) {
    return absl::NotFoundError("no block of this prefix is cached, so there is no pin");
  }
  return PrintResult(globals,
                     absl::StrCat("pin ", pinned->pin.value(), " holds ",
                                  FormatCounted(pinned->pinned_tokens, "token"), " in ",
                                  FormatBlocks(pinned->blocks)),
                     OperationResultToProto(*pinned).pin_prefix());
}

absl::Status RunUnpin(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  const auto unpinned = RunAlone<UnpinnedPrefix>(globals, UnpinPrefix{PinId(options.pin)});
  if (!unpinned.ok()) return unpinned.status();
  return PrintResult(globals, absl::StrCat("pin ", options.pin, " is ended"),
                     OperationResultToProto(*unpinned).unpin_prefix());
}

std::string NamespaceText(const NamespaceKey& key) {
  std::string text;
  if (key.lora_id.has_value()) absl::StrAppend(&text, " LoRA ", *key.lora_id);
  if (!key.cache_salt.empty()) absl::StrAppend(&text, " salt \"", key.cache_salt, "\"");
  if (!key.tenant.empty()) absl::StrAppend(&text, " tenant \"", key.tenant, "\"");
  if (key.keyed) absl::StrAppend(&text, " keyed");
  return text.empty() ? "-" : text.substr(1);
}

void PrintPins(const ListedPins& listed) {
  Print("%10s  %10s  %8s  %-12s  %-20s  %s\n", "PIN", "TOKENS", "BLOCKS", "ENDS IN", "CLIENT",
        "NAMESPACE");
  const absl::Time now = absl::Now();
  for (const PinInfo& pin : listed.pins) {
    const bool ends = pin.expires != absl::InfiniteFuture();
    Print("%10d  %10s  %8s  %-12s  %-20s  %s\n", pin.pin.value(), FormatCount(pin.pinned_tokens),
          FormatCount(pin.blocks),
          ends ? FormatElapsed(std::max(absl::ZeroDuration(), pin.expires - now)) : "never",
          pin.client_name, NamespaceText(pin.name_space));
  }
  Print("%s pinned of %s allowed\n", FormatBlocks(listed.pinned_blocks),
        FormatCount(listed.budget_blocks));
  std::cout.flush();
}

absl::Status RunPins(const GlobalOptions& globals, const PrefixCommandOptions&) {
  const auto listed = RunAlone<ListedPins>(globals, ListPins{});
  if (!listed.ok()) return listed.status();
  if (globals.output == OutputFormat::kJson) {
    return PrintJson(OperationResultToProto(*listed).list_pins());
  }
  PrintPins(*listed);
  return absl::OkStatus();
}

// --- Tiers ---

absl::Status RunOffload(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  const auto client = OpenClient(globals);
  if (!client.ok()) return client.status();
  if (!(*client)->info().has_lower_tiers()) {
    return absl::FailedPreconditionError(
        "the cache has only one tier, so there is no tier to offload to (cache.tiers in the "
        "daemon's configuration)");
  }
  const auto offloaded =
      RunOne<OffloadedPrefix>(**client, (*std::move(prefix)).Named<OffloadPrefix>());
  if (!offloaded.ok()) return offloaded.status();
  const absl::Status waited =
      AwaitTicket(**client, offloaded->ready, Lane::kMemory, globals.timeout());
  if (!waited.ok()) return waited;
  const CacheInfo& cache = (*client)->info();
  const std::optional<std::string> disk = DiskName(cache);
  return PrintResult(
      globals,
      disk.has_value()
          ? absl::StrCat(FormatBlocks(offloaded->blocks), " offloaded from the ",
                         cache.TierName(kPrimaryTier), " tier; blocks without a copy on the ",
                         *disk, " tier are written there before other blocks")
          : absl::StrCat(FormatBlocks(offloaded->blocks), " offloaded to the ",
                         cache.TierName(Tier(1)), " tier"),
      OperationResultToProto(*offloaded).offload_prefix());
}

absl::Status RunPrefetchCommand(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  const auto client = OpenClient(globals);
  if (!client.ok()) return client.status();
  const CacheInfo& cache = (*client)->info();
  PrefetchPrefix prefetch = (*std::move(prefix)).Named<PrefetchPrefix>();
  prefetch.target = options.target;
  prefetch.deadline = DurationFromSeconds(options.deadline_seconds);
  const auto report = options.no_wait ? OrderPrefetch(**client, prefetch)
                                      : RunPrefetch(**client, prefetch, globals.timeout());
  if (!report.ok()) return report.status();
  const absl::Status printed = PrintResult(
      globals, options.no_wait ? OrderedPrefetchText(*report, cache) : PrefetchText(*report, cache),
      OperationResultToProto(report->sum).prefetch_prefix());
  if (!printed.ok() || !report->end.has_value() || globals.output == OutputFormat::kTable) {
    return printed;
  }
  return PrintJson(OperationResultToProto(*report->end).match_prefix());
}

// --- Retention ---

absl::Status RunInvalidate(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  // An empty token file must not mean the whole namespace.
  if (prefix->empty() && !options.prefix.whole_namespace) {
    return MakeError(Reason::kInvalidCount, "no tokens; --all invalidates the whole namespace");
  }
  const auto client = OpenClient(globals);
  if (!client.ok()) return client.status();
  const auto invalidated =
      RunOne<InvalidatedPrefix>(**client, (*std::move(prefix)).Named<InvalidatePrefix>());
  if (!invalidated.ok()) return invalidated.status();
  const std::string removed =
      absl::StrCat(FormatBlocks(invalidated->removed_blocks), " left the cache");
  const absl::Status durable =
      AwaitTicket(**client, invalidated->durable, Lane::kBackup, globals.timeout());
  if (ReasonOf(durable) == Reason::kWaitTimeout) {
    return MakeError(Reason::kWaitTimeout,
                     absl::StrCat(removed,
                                  ", but their copies on disk are not erased yet; until then they "
                                  "can come back after a restart"));
  }
  if (!durable.ok()) return durable;
  return PrintResult(globals,
                     DiskName((*client)->info()).has_value()
                         ? absl::StrCat(removed, ", and none of them comes back after a restart")
                         : removed,
                     OperationResultToProto(*invalidated).invalidate_prefix());
}

absl::Status RunRetain(const GlobalOptions& globals, const PrefixCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  const RetentionRange range{
      .token_start = options.from_token,
      .token_end = options.to_token,
      .retention = {.priority = Priority(static_cast<uint8_t>(options.priority)),
                    .duration = DurationFromSeconds(options.duration_seconds)}};
  SetRetention retain = (*std::move(prefix)).Named<SetRetention>();
  retain.retention.ranges = {range};
  const auto set = RunAlone<RetentionSet>(globals, std::move(retain));
  if (!set.ok()) return set.status();
  return PrintResult(
      globals, absl::StrCat(FormatBlocks(set->blocks), " kept at priority ", options.priority),
      OperationResultToProto(*set).set_retention());
}

// --- Options ---

// The daemon's clock cannot count more than about 290 years.
const CLI::Range kSeconds(0.001, 9e9);

// Adds a command whose action is `run`. The parser's callback and the action share the ownership of
// the options.
template <class Run>
std::pair<CLI::App*, std::shared_ptr<PrefixCommandOptions>> AddPrefixCommand(
    CLI::App& app, const char* name, const char* text, const GlobalOptions& globals, Action& chosen,
    Run run) {
  CLI::App* command = app.add_subcommand(name, text);
  const auto options = std::make_shared<PrefixCommandOptions>();
  command->callback([&globals, &chosen, options, run] {
    chosen = [&globals, options, run] { return run(globals, *options); };
  });
  return {command, options};
}

void AddPinCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  const auto [pin, pin_options] = AddPrefixCommand(
      app, "pin", "Protects a cached prefix from eviction", globals, chosen, RunPin);
  AddPrefixOptions(*pin, pin_options->prefix, Tokens::kNeeded);
  pin->add_option("--lease", pin_options->lease_seconds,
                  "Seconds until the pin ends; without a lease, it stays until unpin")
      ->check(kSeconds);
  pin->footer(
      "Prints the pin's id, for unpin. The pin outlives this command. It also ends when its "
      "prefix\n"
      "leaves the cache.\n"
      "Examples:\n"
      "  pagodactl pin --tokens 1,2,3,4 --lease 3600\n"
      "  pagodactl pin --token-file system_prompt.txt --salt team-a");

  const auto [unpin, unpin_options] = AddPrefixCommand(
      app, "unpin", "Ends a pin; a tenant can end only its own pins", globals, chosen, RunUnpin);
  unpin->add_option("PIN", unpin_options->pin, "The pin's id, as pin and pins print it")
      ->required();
  unpin->footer("Examples:\n  pagodactl unpin 3");

  const auto [pins, pins_options] = AddPrefixCommand(
      app, "pins", "Lists the pins of all clients; a tenant sees only its own pins", globals,
      chosen, RunPins);
  pins->footer("Examples:\n  pagodactl pins\n  pagodactl pins -o json");
}

void AddTierCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  const auto [offload, offload_options] = AddPrefixCommand(
      app, "offload", "Moves a cached prefix to the next lower tier", globals, chosen, RunOffload);
  AddPrefixOptions(*offload, offload_options->prefix, Tokens::kNeeded);
  offload->footer(
      "Blocks that sequences hold stay. Returns when the copies are done. A disk tier is written\n"
      "in the background: a block leaves memory when its copy is on disk. Fails if the cache has\n"
      "only one tier.\n"
      "Examples:\n  pagodactl offload --token-file yesterday.txt");

  const auto [prefetch, prefetch_options] =
      AddPrefixCommand(app, "prefetch", "Onboards a cached prefix from lower tiers and from disk",
                       globals, chosen, RunPrefetchCommand);
  AddPrefixOptions(*prefetch, prefetch_options->prefix, Tokens::kNeeded);
  const std::map<std::string, PrefetchTarget> targets = {{"primary", PrefetchTarget::kPrimary},
                                                         {"memory", PrefetchTarget::kMemory}};
  prefetch
      ->add_option("--to", prefetch_options->target,
                   "primary: onboard the whole prefix to the first tier; memory: only fetch blocks "
                   "that are on disk alone, into the last memory tier")
      ->transform(CLI::CheckedTransformer(targets))
      ->option_text("primary|memory [primary]");
  prefetch
      ->add_option("--deadline", prefetch_options->deadline_seconds,
                   "Seconds after which no more blocks are fetched from disk; fetched blocks stay")
      ->check(kSeconds);
  prefetch->add_flag("--no-wait", prefetch_options->no_wait,
                     "Return at once; of a long prefix on disk, only the first part is fetched");
  prefetch->footer(
      "Onboards as many blocks as the target tier can hold. Returns when all copies and fetches\n"
      "have ended, and prints where the tokens are then. Fails if nothing arrives from disk for\n"
      "--timeout.\n"
      "Examples:\n"
      "  pagodactl prefetch --token-file system_prompt.txt\n"
      "  pagodactl prefetch --token-file document.txt --to memory --deadline 2");
}

void AddRetentionCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  const auto [invalidate, invalidate_options] =
      AddPrefixCommand(app, "invalidate", "Removes all cached content that begins with a prefix",
                       globals, chosen, RunInvalidate);
  AddPrefixOptions(*invalidate, invalidate_options->prefix, Tokens::kOrAll);
  invalidate->footer(
      "Sequences keep the blocks that they hold. If the cache has a disk tier, the command "
      "returns\n"
      "when the copies there are erased. Then the content cannot come back after a restart.\n"
      "Examples:\n"
      "  pagodactl invalidate --tokens 1,2,3,4\n"
      "  pagodactl invalidate --all --lora 7");

  const auto [retain, retain_options] = AddPrefixCommand(
      app, "retain", "Sets the eviction priority of a cached prefix", globals, chosen, RunRetain);
  AddPrefixOptions(*retain, retain_options->prefix, Tokens::kNeeded);
  retain
      ->add_option("--priority", retain_options->priority,
                   "0 is evicted first, 100 last; the default priority of blocks is 35")
      ->required()
      ->check(CLI::Range(uint32_t{0}, uint32_t{kMaxPriority}));
  retain
      ->add_option("--duration", retain_options->duration_seconds,
                   "Seconds until the priority is 35 again, counted while the block is not in use")
      ->check(kSeconds);
  retain->add_option("--from", retain_options->from_token, "The first token of the range")
      ->capture_default_str();
  retain
      ->add_option("--to", retain_options->to_token,
                   "The token after the range; default: the end of the prefix")
      ->check(AboveZero());
  retain->footer(
      "Examples:\n"
      "  pagodactl retain --token-file system_prompt.txt --priority 90\n"
      "  pagodactl retain --tokens 1,2,3,4 --priority 80 --duration 600");
}

}  // namespace

void AddPrefixCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  AddPinCommands(app, globals, chosen);
  AddTierCommands(app, globals, chosen);
  AddRetentionCommands(app, globals, chosen);
}

}  // namespace pagoda
