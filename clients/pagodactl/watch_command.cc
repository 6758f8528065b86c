// pagodactl watch: the cache's events as they happen.
#include <unistd.h>

#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/errors.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/event_text.h"
#include "clients/pagodactl/interrupt.h"
#include "clients/pagodactl/stream_position.h"
#include "clients/pagodactl/terminal.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "pools/error.h"

namespace pagoda {
namespace {

struct WatchOptions {
  uint64_t from_revision = 0;  // 0: from now.
  uint64_t count = 0;          // 0: until Ctrl-C.
};

class EventPrinter {
 public:
  explicit EventPrinter(OutputFormat format)
      : format_(format), terminal_(DetectTerminal(STDOUT_FILENO)) {}

  // Called with the stream's first message.
  void PrintStart(const v1::WatchResponse& message) const {
    if (format_ == OutputFormat::kJson) return;
    std::cerr << absl::StrFormat("cache %s, epoch %016x, after revision %d; Ctrl-C ends\n",
                                 message.cache(), message.epoch(), message.previous_revision());
    std::cout << Paint(terminal_, Style::kBold, EventHeader()) << std::endl;
  }

  // Ends the line and writes it out at once: a reader at the other end of a pipe waits for it.
  void Print(const v1::Event& event) {
    ++printed_;
    if (format_ == OutputFormat::kJson) {
      std::cout << EventJson(event).dump() << std::endl;
    } else {
      std::cout << EventLine(event, terminal_) << std::endl;
    }
  }

  uint64_t printed() const { return printed_; }

 private:
  const OutputFormat format_;
  const Terminal terminal_;
  uint64_t printed_ = 0;
};

// Says in the message what to do about a refused start.
absl::Status Explain(const grpc::Status& status, const WatchOptions& options) {
  const absl::Status error = StatusFromGrpc(status);
  const std::map<std::string, std::string> metadata = ErrorMetadata(status);
  const auto value = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string("unknown") : found->second;
  };
  const std::string message(error.message());
  switch (ReasonOf(error)) {
    case Reason::kRevisionCompacted:
      return MakeError(
          Reason::kRevisionCompacted,
          absl::StrCat(message, "\nThe daemon keeps only its last events, and those from revision ",
                       options.from_revision, " on are partly gone. The oldest one left is ",
                       value("oldest_revision"),
                       ": start there with --from-revision, or leave it out to start from now."));
    case Reason::kRevisionInFuture:
      return MakeError(
          Reason::kRevisionInFuture,
          absl::StrCat(message, "\nThe next event will have the revision ", value("next_revision"),
                       ". A daemon that was restarted counts from 1 again."));
    default:
      return error;
  }
}

// Reads until the stream ends (OK: its own status says why), a gap shows, or the wanted number of
// events is printed.
absl::Status PrintEvents(grpc::ClientReader<v1::WatchResponse>& stream, const WatchOptions& options,
                         EventPrinter& printer) {
  StreamPosition position(options.from_revision);
  bool first = true;
  v1::WatchResponse message;
  while (stream.Read(&message)) {
    if (absl::Status status = position.Advance(message); !status.ok()) return status;
    if (std::exchange(first, false)) printer.PrintStart(message);
    for (const v1::Event& event : message.events()) {
      printer.Print(event);
      if (printer.printed() == options.count) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status RunWatch(const GlobalOptions& globals, const WatchOptions& options) {
  grpc::ClientContext context;
  const InterruptScope interrupt([&context] { context.TryCancel(); });
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();

  v1::WatchRequest request;
  if (options.from_revision != 0) request.set_from_revision(options.from_revision);
  const auto stub = v1::EventService::NewStub(*channel);
  const auto stream = stub->Watch(&context, request);
  EventPrinter printer(globals.output);
  const absl::Status printed = PrintEvents(*stream, options, printer);

  const bool enough = options.count != 0 && printer.printed() == options.count;
  if (enough || !printed.ok()) {
    context.TryCancel();
    static_cast<void>(stream->Finish());
    return printed;
  }
  const grpc::Status end = stream->Finish();
  if (interrupt.interrupted()) return absl::OkStatus();
  if (end.ok()) return absl::UnavailableError("the daemon ended the stream");
  return Explain(end, options);
}

}  // namespace

void AddWatchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("watch", "Prints the cache's events as they happen, until Ctrl-C");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<WatchOptions>();
  command
      ->add_option("--from-revision", options->from_revision,
                   "The first revision wanted; without it, the stream starts from now")
      ->check(CLI::PositiveNumber);
  command->add_option("--count", options->count, "End after this many events")
      ->check(CLI::PositiveNumber);
  command->footer(
      "A gap in the stream ends it with exit code 1.\n"
      "Examples:\n"
      "  pagodactl watch\n"
      "  pagodactl watch --from-revision 1 --count 10\n"
      "  pagodactl watch -o json | jq 'select(.type == \"stored\") | .blocks[].block_id'");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunWatch(globals, *options); };
  });
}

}  // namespace pagoda
