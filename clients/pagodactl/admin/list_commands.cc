// pagodactl sessions, sequences, tenants: lists the clients, the running sequences and the tenants.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

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
#include "nlohmann/json.hpp"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;
using Stub = AdminClient::Stub;

struct ListOptions {
  uint64_t limit = 0;  // 0: all.
  uint64_t session = 0;
};

// Fetches the rows of a paged list: all of them, or the first `limit`. `rows` returns the rows of a
// page.
template <class Row, class Request, class Response, class Rows>
absl::StatusOr<std::vector<Row>> FetchRows(AdminClient& admin,
                                           grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                                           Request request, uint64_t limit, Rows rows) {
  constexpr uint64_t kPageSize = 1000;
  std::vector<Row> all;
  do {
    request.set_page_size(
        static_cast<uint32_t>(limit == 0 ? kPageSize : std::min(limit - all.size(), kPageSize)));
    const absl::StatusOr<Response> page = admin.Call(method, request);
    if (!page.ok()) return page.status();
    for (const Row& row : rows(*page)) {
      all.push_back(row);
      if (all.size() == limit) return all;
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return all;
}

void PrintRows(const char* name, const Json& rows) {
  std::cout << Json({{name, rows}}).dump() << std::endl;
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

Json SessionJson(const v1::SessionInfo& session) {
  Json json = {{"session_id", session.session_id()},
               {"client_name", session.client_name()},
               {"tenant", session.tenant()},
               {"open_time", absl::FormatTime(absl::RFC3339_sec, TimeFromProto(session.open_time()),
                                              absl::UTCTimeZone())},
               {"lease_seconds", nullptr},
               {"lease_left_seconds", nullptr},
               {"streams", session.streams()},
               {"sequences", session.sequences()},
               {"raw_blocks", session.raw_blocks()},
               {"deferred_blocks", session.deferred_blocks()},
               {"step", session.step()},
               {"completed_step", session.completed_step()},
               {"transport", TransportText(session)},
               {"writer_pids", Json::array()}};
  if (session.has_lease()) {
    json["lease_seconds"] = absl::ToDoubleSeconds(DurationFromProto(session.lease()));
  }
  if (session.has_lease_left()) {
    json["lease_left_seconds"] = absl::ToDoubleSeconds(DurationFromProto(session.lease_left()));
  }
  for (const uint32_t pid : session.writer_pids()) json["writer_pids"].push_back(pid);
  return json;
}

void PrintSessions(const std::vector<v1::SessionInfo>& sessions) {
  Print("%10s  %-20s  %-12s  %-12s  %-10s  %-10s  %7s  %9s  %8s  %8s  %10s  %-5s  %s\n", "SESSION",
        "CLIENT", "TENANT", "OPEN FOR", "LEASE", "LEFT", "STREAMS", "SEQUENCES", "RAW", "DEFERRED",
        "STEP", "VIA", "WRITERS");
  const absl::Time now = absl::Now();
  for (const v1::SessionInfo& session : sessions) {
    const absl::Duration age =
        std::max(absl::ZeroDuration(), now - TimeFromProto(session.open_time()));
    Print("%10d  %-20s  %-12s  %-12s  %-10s  %-10s  %7d  %9s  %8s  %8s  %10s  %-5s  %s\n",
          session.session_id(), OrDash(session.client_name()), OrDash(session.tenant()),
          FormatElapsed(age), LeaseText(session), LeaseLeftText(session), session.streams(),
          FormatCount(session.sequences()), FormatCount(session.raw_blocks()),
          FormatCount(session.deferred_blocks()), FormatCount(session.step()),
          TransportText(session), OrDash(absl::StrJoin(session.writer_pids(), ",")));
  }
  Print("%s\n", FormatCounted(sessions.size(), "session"));
  std::cout.flush();
}

absl::Status RunSessions(const GlobalOptions& globals, const ListOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto sessions = FetchRows<v1::SessionInfo>(
      *admin, &Stub::ListSessions, v1::ListSessionsRequest(), options.limit,
      [](const v1::ListSessionsResponse& page) { return page.sessions(); });
  if (!sessions.ok()) return sessions.status();
  if (globals.output == OutputFormat::kTable) {
    PrintSessions(*sessions);
    return absl::OkStatus();
  }
  Json rows = Json::array();
  for (const v1::SessionInfo& session : *sessions) rows.push_back(SessionJson(session));
  PrintRows("sessions", rows);
  return absl::OkStatus();
}

// --- Sequences ---

Json SequenceJson(const v1::SequenceInfo& sequence) {
  return {{"session_id", sequence.session_id()},
          {"sequence_id", sequence.sequence_id()},
          {"client_name", sequence.client_name()},
          {"tenant", sequence.tenant()},
          {"token_count", sequence.token_count()},
          {"computed_tokens", sequence.computed_tokens()},
          {"reserved_tokens", sequence.reserved_tokens()},
          {"matched_tokens", sequence.matched_tokens()},
          {"blocks", sequence.blocks()},
          {"losses", sequence.losses()}};
}

void PrintSequences(const std::vector<v1::SequenceInfo>& sequences) {
  Print("%10s  %20s  %-20s  %-12s  %10s  %10s  %10s  %10s  %8s  %6s\n", "SESSION", "SEQUENCE",
        "CLIENT", "TENANT", "TOKENS", "COMPUTED", "RESERVED", "MATCHED", "BLOCKS", "LOSSES");
  for (const v1::SequenceInfo& sequence : sequences) {
    Print("%10d  %20d  %-20s  %-12s  %10s  %10s  %10s  %10s  %8s  %6d\n", sequence.session_id(),
          sequence.sequence_id(), OrDash(sequence.client_name()), OrDash(sequence.tenant()),
          FormatCount(sequence.token_count()), FormatCount(sequence.computed_tokens()),
          FormatCount(sequence.reserved_tokens()), FormatCount(sequence.matched_tokens()),
          FormatCount(sequence.blocks()), sequence.losses());
  }
  Print("%s\n", FormatCounted(sequences.size(), "sequence"));
  std::cout.flush();
}

absl::Status RunSequences(const GlobalOptions& globals, const ListOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::ListSequencesRequest request;
  request.set_session_id(options.session);
  const auto sequences = FetchRows<v1::SequenceInfo>(
      *admin, &Stub::ListSequences, std::move(request), options.limit,
      [](const v1::ListSequencesResponse& page) { return page.sequences(); });
  if (!sequences.ok()) return sequences.status();
  if (globals.output == OutputFormat::kTable) {
    PrintSequences(*sequences);
    return absl::OkStatus();
  }
  Json rows = Json::array();
  for (const v1::SequenceInfo& sequence : *sequences) rows.push_back(SequenceJson(sequence));
  PrintRows("sequences", rows);
  return absl::OkStatus();
}

// --- Tenants ---

Json TenantJson(const v1::TenantInfo& tenant) {
  Json uses = Json::array();
  for (const v1::TenantUse& use : tenant.use()) {
    Json json = {{"window", WindowName(WindowFromProto(use.window_size()))},
                 {"tier", TierText(use.tier(), use.tier_name())},
                 {"used_blocks", use.used_blocks()},
                 {"cached_blocks", use.cached_blocks()},
                 {"quota_blocks", nullptr}};
    if (use.has_quota_blocks()) json["quota_blocks"] = use.quota_blocks();
    uses.push_back(json);
  }
  return {{"name", tenant.name()},
          {"shares", tenant.shares()},
          {"share", tenant.share()},
          {"sessions", tenant.sessions()},
          {"sequences", tenant.sequences()},
          {"max_sequences", tenant.max_sequences()},
          {"sequence_bytes", tenant.sequence_bytes()},
          {"max_sequence_bytes", tenant.max_sequence_bytes()},
          {"use", uses}};
}

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
  if (globals.output == OutputFormat::kTable) {
    PrintTenants(*list);
    return absl::OkStatus();
  }
  Json rows = Json::array();
  for (const v1::TenantInfo& tenant : list->tenants()) rows.push_back(TenantJson(tenant));
  PrintRows("tenants", rows);
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
