// pagodactl watch: prints the cache's events as they happen.
#include <unistd.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/events/commands.h"
#include "clients/pagodactl/events/event_text.h"
#include "clients/pagodactl/events/stream_position.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

struct WatchOptions {
  StreamPosition::Start start;
  bool resnapshot = false;
  uint64_t count = 0;  // 0: until Ctrl-C.
  // Filters; an empty list is everything. Names are as given.
  std::vector<std::string> types;
  std::vector<std::string> tiers;
  std::vector<uint32_t> windows;  // 0: full attention.
  std::string tenant;
  bool hashes = false;
  uint32_t chunk_tokens = 0;  // With `hashes`; 0: each whole block.

  v1::EventContent content() const {
    return hashes ? v1::EVENT_CONTENT_HASHES : v1::EVENT_CONTENT_TOKENS;
  }
};

// The tier of `cache` with the name: its own, or a default name that no tier of it has.
absl::StatusOr<v1::Tier> TierNamed(const std::string& name, const v1::CacheInfo& cache) {
  std::vector<std::string> names;
  for (const v1::TierInfo& tier : cache.tiers()) {
    if (tier.name() == name) return tier.tier();
    names.push_back(tier.name());
  }
  v1::Tier tier = v1::TIER_UNSPECIFIED;
  v1::Tier_Parse(absl::StrCat("TIER_", absl::AsciiStrToUpper(name)), &tier);
  if (tier != v1::TIER_UNSPECIFIED) return tier;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("--tier: the cache has no tier '", name, "'; its tiers: ",
                                names.empty() ? "unknown" : absl::StrJoin(names, ", ")));
}

// Errors: INVALID_ARGUMENT.
absl::StatusOr<v1::WatchRequest> RequestOf(const GlobalOptions& globals,
                                           const WatchOptions& options,
                                           const v1::CacheInfo& cache) {
  v1::WatchRequest request;
  request.set_cache(globals.cache);
  if (options.start.from_revision != 0) request.set_from_revision(options.start.from_revision);
  request.set_snapshot(options.start.snapshot);
  request.set_resnapshot_when_behind(options.resnapshot);
  for (const std::string& name : options.types) {
    v1::EventType type = v1::EVENT_TYPE_UNSPECIFIED;
    v1::EventType_Parse(absl::StrCat("EVENT_TYPE_", absl::AsciiStrToUpper(name)), &type);
    request.add_types(type);
  }
  for (const std::string& name : options.tiers) {
    const absl::StatusOr<v1::Tier> tier = TierNamed(name, cache);
    if (!tier.ok()) return tier.status();
    request.add_tiers(*tier);
  }
  for (const uint32_t window : options.windows) request.add_window_sizes(window);
  request.set_tenant(options.tenant);
  if (options.hashes) request.set_content(options.content());
  request.set_chunk_tokens(options.chunk_tokens);
  return request;
}

class EventPrinter {
 public:
  // `cache` names the tiers: see Summarize.
  EventPrinter(OutputFormat format, v1::EventContent content, v1::CacheInfo cache)
      : format_(format),
        content_(content),
        cache_(std::move(cache)),
        terminal_(DetectTerminal(STDOUT_FILENO)) {}

  // Called with the stream's first message.
  void PrintStart(const v1::WatchResponse& message) const {
    if (format_ == OutputFormat::kJson) return;
    const std::string start = message.snapshot_begin()
                                  ? "with a snapshot"
                                  : absl::StrCat("after revision ", message.previous_revision());
    std::cerr << absl::StrFormat("cache %s, epoch %016x, %s; Ctrl-C quits\n", message.cache(),
                                 message.epoch(), start);
    std::cout << Paint(terminal_, Style::kBold, EventHeader()) << std::endl;
  }

  // Errors: those of PrintJson.
  absl::Status Print(const v1::Event& event) {
    ++printed_;
    if (format_ == OutputFormat::kJson) return PrintJson(event);
    return PrintLine(EventLine(event, terminal_, content_, cache_));
  }
  absl::Status PrintSnapshotBegin(const v1::WatchResponse& message) const {
    if (format_ == OutputFormat::kTable) return PrintLine(SnapshotBeginLine(terminal_));
    v1::WatchResponse mark = PositionOf(message);
    mark.set_snapshot_begin(true);
    return PrintJson(mark);
  }
  absl::Status PrintSnapshotEnd(const v1::WatchResponse& message) const {
    if (format_ == OutputFormat::kTable) return PrintLine(SnapshotEndLine(message, terminal_));
    v1::WatchResponse mark = PositionOf(message);
    mark.set_snapshot_end(true);
    return PrintJson(mark);
  }

  uint64_t printed() const { return printed_; }

 private:
  // Flushes each line: a reader at the other end of a pipe waits for it.
  static absl::Status PrintLine(const std::string& line) {
    std::cout << line << std::endl;
    return absl::OkStatus();
  }
  // The message without its events and marks.
  static v1::WatchResponse PositionOf(const v1::WatchResponse& message) {
    v1::WatchResponse position;
    position.set_epoch(message.epoch());
    position.set_cache(message.cache());
    position.set_previous_revision(message.previous_revision());
    position.set_revision(message.revision());
    return position;
  }

  const OutputFormat format_;
  const v1::EventContent content_;
  const v1::CacheInfo cache_;
  const Terminal terminal_;
  uint64_t printed_ = 0;
};

// Adds a hint to the error of a stream that was refused, or that fell behind the daemon's log.
absl::Status Explain(const grpc::Status& status, const WatchOptions& options,
                     const StreamPosition& position) {
  const absl::Status error = StatusFromGrpc(status);
  const std::map<std::string, std::string> metadata = MetadataOf(status);
  const auto value = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string("unknown") : found->second;
  };
  const std::string message(error.message());
  switch (ReasonOf(error)) {
    case Reason::kRevisionCompacted:
      if (position.started()) {
        return MakeError(
            Reason::kRevisionCompacted,
            absl::StrCat(message,
                         "\nThis reader is further behind than the daemon keeps events. With "
                         "--resnapshot the stream continues with a snapshot instead."));
      }
      return MakeError(
          Reason::kRevisionCompacted,
          absl::StrCat(message, "\nThe daemon keeps only its last events. Those since revision ",
                       options.start.from_revision, " are partly gone; the oldest one left is ",
                       value("oldest_revision"),
                       ". Start there with --from-revision, start with the cached state with "
                       "--snapshot, or leave both out to start from now."));
    case Reason::kRevisionInFuture:
      return MakeError(
          Reason::kRevisionInFuture,
          absl::StrCat(message, "\nThe next event will have the revision ", value("next_revision"),
                       ". A restarted daemon counts from 1 again."));
    default:
      return error;
  }
}

// Reads until the stream ends (returns OK; the stream's own status has the reason), there is a gap,
// or `options.count` events are printed.
absl::Status PrintEvents(grpc::ClientReader<v1::WatchResponse>& stream, const WatchOptions& options,
                         StreamPosition& position, EventPrinter& printer) {
  bool first = true;
  v1::WatchResponse message;
  while (stream.Read(&message)) {
    if (absl::Status status = position.Advance(message); !status.ok()) return status;
    if (std::exchange(first, false)) printer.PrintStart(message);
    absl::Status printed;
    if (message.snapshot_begin()) printed = printer.PrintSnapshotBegin(message);
    for (const v1::Event& event : message.events()) {
      if (printed.ok()) printed = printer.Print(event);
      if (!printed.ok() || printer.printed() == options.count) return printed;
    }
    if (printed.ok() && message.snapshot_end()) printed = printer.PrintSnapshotEnd(message);
    if (!printed.ok()) return printed;
  }
  return absl::OkStatus();
}

absl::Status RunWatch(const GlobalOptions& globals, const WatchOptions& options) {
  grpc::ClientContext context;
  const InterruptScope interrupt([&context] { context.TryCancel(); });
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();

  // Without the names, the events have the default ones.
  v1::CacheInfo cache;
  if (auto named = AdminClient(*channel, globals).Cache(); named.ok()) cache = *std::move(named);
  const absl::StatusOr<v1::WatchRequest> request = RequestOf(globals, options, cache);
  if (!request.ok()) return request.status();

  const auto stub = v1::EventService::NewStub(*channel);
  const auto stream = stub->Watch(&context, *request);
  StreamPosition position(options.start);
  EventPrinter printer(globals.output, options.content(), std::move(cache));
  const absl::Status printed = PrintEvents(*stream, options, position, printer);

  const bool enough = options.count != 0 && printer.printed() == options.count;
  if (enough || !printed.ok()) {
    context.TryCancel();
    static_cast<void>(stream->Finish());
    return printed;
  }
  const grpc::Status end = stream->Finish();
  if (interrupt.interrupted()) return absl::OkStatus();
  if (end.ok()) return absl::UnavailableError("the daemon ended the stream");
  return Explain(end, options, position);
}

// The options that filter the stream.
void AddFilterOptions(CLI::App& command, WatchOptions& options) {
  const std::vector<std::string> types = {"created", "stored", "updated", "removed"};
  command
      .add_option("--type", options.types, "Only events of this type; separate several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(types));
  command
      .add_option("--tier", options.tiers,
                  "Only blocks stored in this tier, and moves from or to it; removals are always "
                  "shown")
      ->type_name("NAME")
      ->delimiter(',');
  const auto parse_window = [](std::string& window) {
    if (window == "full") window = "0";
    uint32_t size = 0;
    return absl::SimpleAtoi(window, &size) ? "" : "a window is its size in tokens, or full";
  };
  command
      .add_option("--window", options.windows,
                  "Only the window of this many tokens, or full; separate several with commas")
      ->delimiter(',')
      ->transform(CLI::Validator(parse_window, "full|TOKENS"));
  command.add_option("--tenant", options.tenant, "Only this tenant's blocks");
  CLI::Option* hashes =
      command.add_flag("--hashes", options.hashes,
                       "Only the hashes and tiers of whole blocks, as a router reads them");
  command
      .add_option("--chunk-tokens", options.chunk_tokens,
                  "Only blocks that end a chunk of this many tokens, counted from the prompt's "
                  "start; default: each whole block")
      ->check(AboveZero())
      ->needs(hashes);
}

}  // namespace

void AddWatchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("watch", "Prints the cache's events as they happen, until Ctrl-C");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<WatchOptions>();
  CLI::Option* from_revision =
      command
          ->add_option("--from-revision", options->start.from_revision,
                       "The first revision to print; default: start from now")
          ->check(AboveZero());
  command
      ->add_flag("--snapshot", options->start.snapshot,
                 "Begin with all cached blocks, then continue with events")
      ->excludes(from_revision);
  command->add_flag("--resnapshot", options->resnapshot,
                    "Continue with a snapshot if the daemon no longer has the next event");
  command->add_option("--count", options->count, "End after this many events")->check(AboveZero());
  AddFilterOptions(*command, *options);
  command->footer(
      "A gap in the stream ends the command with exit code 1. A snapshot stands between a begin\n"
      "line and an end line, which has the revision of the complete snapshot. Blocks of the\n"
      "snapshot have no revision; events that happen meanwhile do. --count does not count the two\n"
      "lines.\n"
      "With -o json each line is an Event, and those two lines are a WatchResponse without "
      "events.\n"
      "Examples:\n"
      "  pagodactl watch\n"
      "  pagodactl watch --from-revision 1 --count 10\n"
      "  pagodactl watch --snapshot --type stored,removed --tier primary\n"
      "  pagodactl watch --snapshot --hashes --chunk-tokens 256\n"
      "  pagodactl watch -o json | jq 'select(.stored) | .stored.blocks[].block_id'");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunWatch(globals, *options); };
  });
}

}  // namespace pagoda
