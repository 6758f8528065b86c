// pagodactl fetch: brings a prefix into the daemon's memory, from its store or from another daemon.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/prefix/commands.h"
#include "clients/pagodactl/prefix/prefix_options.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/errors.h"
#include "wire/prefix_fields.h"

namespace pagoda {
namespace {

struct FetchCommandOptions {
  PrefixOptions prefix;
  std::string source;  // Empty: the daemon's store.
  std::optional<double> deadline_seconds;
};

// A session for one call. The destructor closes it. If the process is killed, the daemon ends the
// session with its lease.
class OneCallSession {
 public:
  static absl::StatusOr<std::unique_ptr<OneCallSession>> Open(const GlobalOptions& globals) {
    const auto channel = ConnectToDaemon(globals);
    if (!channel.ok()) return channel.status();
    auto session = std::unique_ptr<OneCallSession>(new OneCallSession(*channel, globals.timeout()));
    v1::OpenSessionRequest request;
    request.set_client_name("pagodactl");
    request.set_cache(globals.cache);
    v1::OpenSessionResponse response;
    grpc::ClientContext context;
    session->SetDeadline(absl::ZeroDuration(), context);
    const grpc::Status opened = session->stub_->OpenSession(&context, request, &response);
    if (!opened.ok()) return StatusFromGrpc(opened);
    session->ref_ = response.session();
    return session;
  }
  ~OneCallSession() {
    if (!ref_.has_value()) return;
    v1::CloseSessionRequest request;
    *request.mutable_session() = *ref_;
    v1::CloseSessionResponse response;
    grpc::ClientContext context;
    SetDeadline(absl::ZeroDuration(), context);
    stub_->CloseSession(&context, request, &response);
  }
  OneCallSession(const OneCallSession&) = delete;
  OneCallSession& operator=(const OneCallSession&) = delete;

  // The call may take `longer` than the timeout.
  absl::StatusOr<v1::FetchPrefixResponse> Fetch(v1::FetchPrefixRequest request,
                                                absl::Duration longer) {
    *request.mutable_session() = *ref_;
    grpc::ClientContext context;
    SetDeadline(longer, context);
    v1::FetchPrefixResponse response;
    const grpc::Status fetched = stub_->FetchPrefix(&context, request, &response);
    if (!fetched.ok()) return StatusFromGrpc(fetched);
    return response;
  }

 private:
  OneCallSession(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout)
      : stub_(v1::CacheService::NewStub(channel)), timeout_(timeout) {}

  void SetDeadline(absl::Duration longer, grpc::ClientContext& context) const {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_ + longer));
  }

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const absl::Duration timeout_;
  std::optional<v1::SessionRef> ref_;  // Set by Open.
};

// Why no more tokens came.
std::string OutcomeText(const v1::FetchPrefixResponse& fetched, const std::string& from) {
  switch (fetched.outcome()) {
    case v1::FETCH_OUTCOME_FETCHED:
      return absl::StrCat("all that ", from, " has is cached now");
    case v1::FETCH_OUTCOME_CACHED:
      return fetched.matched_tokens() == 0
                 ? "there was nothing to fetch: the tokens fill no block that a sequence can match"
                 : "the daemon had all of it";
    case v1::FETCH_OUTCOME_MISSING:
      return absl::StrCat(from, " does not have the next block");
    case v1::FETCH_OUTCOME_PARTLY:
      return "the next block was invalid, or it was late";
    case v1::FETCH_OUTCOME_FAILED:
      return absl::StrCat(from, " is away, too slow, or sent bad values");
    case v1::FETCH_OUTCOME_SLOWER:
      return "not begun, because computing the tokens is predicted to be faster";
    case v1::FETCH_OUTCOME_NO_ROOM:
      return "the cache, or the tenant's quota, has no room for more blocks";
    case v1::FETCH_OUTCOME_REFUSED:
      return "too many fetches wait already";
    case v1::FETCH_OUTCOME_CANCELLED:
      return "the daemon shuts down";
    default:
      return absl::StrCat("outcome ", static_cast<int>(fetched.outcome()));
  }
}

absl::Status RunFetch(const GlobalOptions& globals, const FetchCommandOptions& options) {
  absl::StatusOr<Prefix> prefix = PrefixOf(options.prefix);
  if (!prefix.ok()) return prefix.status();
  v1::FetchPrefixRequest request;
  PrefixToProto(*prefix, &request);
  if (!options.source.empty()) request.mutable_source()->set_address(options.source);
  absl::Duration longer = absl::ZeroDuration();
  if (options.deadline_seconds.has_value()) {
    longer = absl::Seconds(*options.deadline_seconds);
    request.set_deadline_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(longer)));
  }

  const auto session = OneCallSession::Open(globals);
  if (!session.ok()) return session.status();
  const absl::Time start = absl::Now();
  const auto fetched = (*session)->Fetch(std::move(request), longer);
  if (!fetched.ok()) return fetched.status();
  const absl::Duration elapsed = absl::Now() - start;
  if (fetched->outcome() == v1::FETCH_OUTCOME_NO_SOURCE) {
    return absl::FailedPreconditionError(
        "there is nothing to fetch from: the daemon has no store and no --source is given, or this "
        "cache is not exchanged with other machines (the daemon's log says why)");
  }
  const std::string from = options.source.empty() ? "the store" : options.source;
  return PrintResult(globals,
                     absl::StrCat(FormatCounted(fetched->fetched_tokens(), "token"),
                                  " fetched from ", from, " in ", FormatElapsed(elapsed), "; ",
                                  FormatCounted(fetched->matched_tokens(), "token"), " match now\n",
                                  OutcomeText(*fetched, from)),
                     *fetched);
}

}  // namespace

void AddFetchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "fetch", "Brings a prefix into memory from the daemon's store or from another daemon");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<FetchCommandOptions>();
  AddPrefixOptions(*command, options->prefix, Tokens::kNeeded);
  command
      ->add_option("--source", options->source,
                   "The other daemon's address for daemons (peers.address in its configuration); "
                   "default: the store")
      ->type_name("HOST:PORT")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
  command
      ->add_option("--deadline", options->deadline_seconds,
                   "Seconds after which no more blocks are fetched; fetched blocks stay. The "
                   "daemon's own limit (section fetch) holds too")
      ->check(CLI::Range(0.001, 3600.0));
  command->footer(
      "Prints how many tokens came, how many a sequence would match now, and why no more came.\n"
      "Blocks that do not come are no failure, because an engine computes them. The command fails\n"
      "if there is nothing to fetch from.\n"
      "Examples:\n"
      "  pagodactl fetch --token-file system_prompt.txt\n"
      "  pagodactl fetch --token-file prompt.txt --source 10.0.0.2:7072 --deadline 2");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunFetch(globals, *options); };
  });
}

}  // namespace pagoda
