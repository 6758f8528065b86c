// pagodactl sessions, sequences, tenants: lists the clients, the running sequences and the tenants.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/admin_client.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Stub = AdminClient::Stub;

struct ListOptions {
  uint64_t limit = 0;  // 0: all.
  uint64_t session = 0;
};

// Fetches a paged list: all of its rows, or the first `limit`. `rows` gives the rows of a message.
// If there are more, next_page_token is that of the next one.
template <class Request, class Response, class Rows>
absl::StatusOr<Response> FetchList(AdminClient& admin,
                                   grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                                   Request request, uint64_t limit, Rows rows) {
  constexpr uint64_t kPageSize = 1000;
  Response all;
  do {
    const auto have = static_cast<uint64_t>(rows(&all)->size());
    request.set_page_size(
        static_cast<uint32_t>(limit == 0 ? kPageSize : std::min(limit - have, kPageSize)));
    absl::StatusOr<Response> page = admin.Call(method, request);
    if (!page.ok()) return page.status();
    for (auto& row : *rows(&*page)) rows(&all)->Add(std::move(row));
    all.set_next_page_token(page->next_page_token());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() &&
           (limit == 0 || static_cast<uint64_t>(rows(&all)->size()) < limit));
  return all;
}

// --- Sessions ---

std::string LeaseText(const v1::SessionInfo& session) {
  if (!session.has_lease()) return "none";
  return FormatElapsed(DurationFromProto(session.lease()));
}

// "held" if the lease does not run, because a stream or a waiting batch keeps the session alive.
std::string LeaseLeftText(const v1::SessionInfo& session) {
  if (!session.has_lease_left()) return "held";
  return FormatElapsed(DurationFromProto(session.lease_left()));
}

std::string TransportText(const v1::SessionInfo& session) {
  switch (session.transport()) {
    case v1::SESSION_TRANSPORT_GRPC:
      return "grpc";
    case v1::SESSION_TRANSPORT_RINGS:
      return "rings";
    default:
      return "-";
  }
}

void PrintSessions(const v1::ListSessionsResponse& list) {
  Print("%10s  %-20s  %-12s  %-12s  %-10s  %-10s  %7s  %9s  %8s  %8s  %10s  %-5s  %s\n", "SESSION",
        "CLIENT", "TENANT", "OPEN FOR", "LEASE", "LEFT", "STREAMS", "SEQUENCES", "RAW", "DEFERRED",
        "STEP", "VIA", "WRITERS");
  const absl::Time now = absl::Now();
  for (const v1::SessionInfo& session : list.sessions()) {
    const absl::Duration age =
        std::max(absl::ZeroDuration(), now - TimeFromProto(session.open_time()));
    Print("%10d  %-20s  %-12s  %-12s  %-10s  %-10s  %7d  %9s  %8s  %8s  %10s  %-5s  %s\n",
          session.session_id(), OrDash(session.client_name()), OrDash(session.tenant()),
          FormatElapsed(age), LeaseText(session), LeaseLeftText(session), session.streams(),
          FormatCount(session.sequences()), FormatCount(session.raw_blocks()),
          FormatCount(session.deferred_blocks()), FormatCount(session.step()),
          TransportText(session), OrDash(absl::StrJoin(session.writer_pids(), ",")));
  }
  Print("%s\n", FormatCounted(static_cast<uint64_t>(list.sessions_size()), "session"));
  std::cout.flush();
}

absl::Status RunSessions(const GlobalOptions& globals, const ListOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto list =
      FetchList(*admin, &Stub::ListSessions, v1::ListSessionsRequest(), options.limit,
                [](v1::ListSessionsResponse* page) { return page->mutable_sessions(); });
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*list);
  PrintSessions(*list);
  return absl::OkStatus();
}

// --- Sequences ---

void PrintSequences(const v1::ListSequencesResponse& list) {
  Print("%10s  %20s  %-20s  %-12s  %10s  %10s  %10s  %10s  %8s  %6s\n", "SESSION", "SEQUENCE",
        "CLIENT", "TENANT", "TOKENS", "COMPUTED", "RESERVED", "MATCHED", "BLOCKS", "LOSSES");
  for (const v1::SequenceInfo& sequence : list.sequences()) {
    Print("%10d  %20d  %-20s  %-12s  %10s  %10s  %10s  %10s  %8s  %6d\n", sequence.session_id(),
          sequence.sequence_id(), OrDash(sequence.client_name()), OrDash(sequence.tenant()),
          FormatCount(sequence.token_count()), FormatCount(sequence.computed_tokens()),
          FormatCount(sequence.reserved_tokens()), FormatCount(sequence.matched_tokens()),
          FormatCount(sequence.blocks()), sequence.losses());
  }
  Print("%s\n", FormatCounted(static_cast<uint64_t>(list.sequences_size()), "sequence"));
  std::cout.flush();
}

absl::Status RunSequences(const GlobalOptions& globals, const ListOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::ListSequencesRequest request;
  request.set_session_id(options.session);
  const auto list =
      FetchList(*admin, &Stub::ListSequences, std::move(request), options.limit,
                [](v1::ListSequencesResponse* page) { return page->mutable_sequences(); });
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*list);
  PrintSequences(*list);
  return absl::OkStatus();
}

// --- Tenants ---

void PrintTenants(const v1::ListTenantsResponse& list) {
  Print("%-20s  %8s  %9s  %10s  %6s  %-10s  %-10s  %10s  %10s  %10s\n", "TENANT", "SESSIONS",
        "SEQUENCES", "BYTES KEPT", "SHARE", "WINDOW", "TIER", "USED", "CACHED", "QUOTA");
  for (const v1::TenantInfo& tenant : list.tenants()) {
    // The tenant's own columns are printed only before its first window and tier.
    std::string left = absl::StrFormat(
        "%-20s  %8s  %9s  %10s  %6s",
        tenant.name().empty() ? "(default tenant)"
                              : absl::StrCat(tenant.name(), tenant.shares() ? ", shares" : ""),
        FormatCount(tenant.sessions()), FormatCount(tenant.sequences()),
        FormatBytes(tenant.sequence_bytes()),
        tenant.name().empty() ? "-" : absl::StrCat(tenant.share()));
    for (const v1::TenantUse& use : tenant.use()) {
      Print("%s  %-10s  %-10s  %10s  %10s  %10s\n", left,
            WindowName(WindowFromProto(use.window_size())), TierText(use.tier(), use.tier_name()),
            FormatCount(use.used_blocks()), FormatCount(use.cached_blocks()),
            use.has_quota_blocks() ? FormatCount(use.quota_blocks()) : "none");
      left.assign(left.size(), ' ');
    }
    if (tenant.use().empty()) Print("%s\n", left);
  }
  std::cout.flush();
}

absl::Status RunTenants(const GlobalOptions& globals, const ListOptions&) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto list = admin->Call(&Stub::ListTenants, v1::ListTenantsRequest());
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*list);
  PrintTenants(*list);
  return absl::OkStatus();
}

// Adds a command whose action is `run`. The parser's callback and the action share the ownership of
// the options.
template <class Run>
std::pair<CLI::App*, std::shared_ptr<ListOptions>> AddCommand(CLI::App& app, const char* name,
                                                              const char* text,
                                                              const GlobalOptions& globals,
                                                              Action& chosen, Run run) {
  CLI::App* command = app.add_subcommand(name, text);
  const auto options = std::make_shared<ListOptions>();
  command->callback([&globals, &chosen, options, run] {
    chosen = [&globals, options, run] { return run(globals, *options); };
  });
  return {command, options};
}

void AddLimit(CLI::App& command, ListOptions& options) {
  command.add_option("--limit", options.limit, "Print only this many rows; default: all")
      ->check(AboveZero());
}

}  // namespace

void AddListCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  const auto [sessions, sessions_options] =
      AddCommand(app, "sessions", "Lists the sessions: clients, leases, sequences and blocks",
                 globals, chosen, RunSessions);
  AddLimit(*sessions, *sessions_options);
  sessions->footer(
      "LEFT is the rest of the lease; \"held\" means that a stream or a waiting batch keeps the\n"
      "session alive. RAW blocks were allocated without a sequence. DEFERRED blocks are released\n"
      "when the client completes its step.\n"
      "Examples:\n"
      "  pagodactl sessions\n"
      "  pagodactl sessions -o json | jq '.sessions[] | select(.streams == 0).client_name'");

  const auto [sequences, sequences_options] =
      AddCommand(app, "sequences", "Lists the running sequences: tokens, reserved capacity, blocks",
                 globals, chosen, RunSequences);
  sequences
      ->add_option("--session", sequences_options->session,
                   "Only the sequences of the session with this id")
      ->check(AboveZero());
  AddLimit(*sequences, *sequences_options);
  sequences->footer(
      "RESERVED tokens, counted from the start, are those that capacity is reserved for. MATCHED\n"
      "tokens were cached when the sequence was added. LOSSES counts how often a failed copy\n"
      "shortened it.\n"
      "Examples:\n"
      "  pagodactl sequences --session 3\n"
      "  pagodactl sequences --limit 20 -o json");

  const auto [tenants, tenants_options] =
      AddCommand(app, "tenants", "Lists the tenants: blocks by window and tier, quotas, shares",
                 globals, chosen, RunTenants);
  tenants->footer(
      "The default tenant owns the blocks of all tenants that share prefixes.\n"
      "Examples:\n  pagodactl tenants\n  pagodactl tenants -o json");
}

}  // namespace pagoda
