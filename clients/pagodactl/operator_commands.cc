// pagodactl end-session, quarantine, drain: what an operator does to clients and to the daemon.
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
#include "base/error.h"
#include "clients/pagodactl/admin_client.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/interrupt.h"
#include "nlohmann/json.hpp"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;
using Stub = AdminClient::Stub;

// Between two looks whether the daemon is still there.
constexpr absl::Duration kDrainPollInterval = absl::Milliseconds(100);

absl::Status RunEndSession(const GlobalOptions& globals, uint64_t session) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::EndSessionRequest request;
  request.set_session_id(session);
  const auto ended = admin->Call(&Stub::EndSession, request);
  if (!ended.ok()) return ended.status();
  PrintResult(globals, absl::StrCat("session ", session, " is ended"), {{"session_id", session}});
  return absl::OkStatus();
}

// --- Quarantine ---

Json QuarantineJson(const v1::QuarantineInfo& quarantine) {
  Json json = {{"session_id", quarantine.session_id()},
               {"client_name", quarantine.client_name()},
               {"tenant", quarantine.tenant()},
               {"since", absl::FormatTime(absl::RFC3339_sec, TimeFromProto(quarantine.since()),
                                          absl::UTCTimeZone())},
               {"blocks", quarantine.blocks()},
               {"writer_pids", Json::array()}};
  for (const uint32_t pid : quarantine.writer_pids()) json["writer_pids"].push_back(pid);
  return json;
}

void PrintQuarantines(const v1::ListQuarantinesResponse& list) {
  absl::PrintF("%10s  %-20s  %-12s  %-12s  %8s  %s\n", "SESSION", "CLIENT", "TENANT", "FOR",
               "BLOCKS", "WRITERS ALIVE");
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  const absl::Time now = absl::Now();
  for (const v1::QuarantineInfo& quarantine : list.quarantines()) {
    const absl::Duration age =
        std::max(absl::ZeroDuration(), now - TimeFromProto(quarantine.since()));
    absl::PrintF("%10d  %-20s  %-12s  %-12s  %8s  %s\n", quarantine.session_id(),
                 or_dash(quarantine.client_name()), or_dash(quarantine.tenant()),
                 FormatElapsed(age), FormatCount(quarantine.blocks()),
                 or_dash(absl::StrJoin(quarantine.writer_pids(), ",")));
  }
  if (list.quarantines().empty()) absl::PrintF("nothing is quarantined\n");
  std::fflush(stdout);
}

absl::Status RunQuarantineList(const GlobalOptions& globals) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto list = admin->Call(&Stub::ListQuarantines, v1::ListQuarantinesRequest());
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kTable) {
    PrintQuarantines(*list);
    return absl::OkStatus();
  }
  Json rows = Json::array();
  for (const v1::QuarantineInfo& row : list->quarantines()) rows.push_back(QuarantineJson(row));
  std::cout << Json({{"quarantines", rows}}).dump() << std::endl;
  return absl::OkStatus();
}

struct ReleaseOptions {
  uint64_t session = 0;
  bool force = false;
};

absl::Status RunQuarantineRelease(const GlobalOptions& globals, const ReleaseOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::ReleaseQuarantineRequest request;
  request.set_session_id(options.session);
  request.set_force(options.force);
  const auto released = admin->Call(&Stub::ReleaseQuarantine, request);
  if (ReasonOf(released.status()) == Reason::kWriterAlive) {
    return MakeError(Reason::kWriterAlive,
                     absl::StrCat(std::string(released.status().message()),
                                  "\nEnd that process; or, if it surely writes no more, --force."));
  }
  if (!released.ok()) return released.status();
  const uint32_t blocks = released->released_blocks();
  PrintResult(
      globals,
      absl::StrCat(FormatCounted(blocks, "block"), " of session ", options.session, " released"),
      {{"session_id", options.session}, {"released_blocks", blocks}});
  return absl::OkStatus();
}

// --- Drain ---

bool IsGone(const absl::Status& status) {
  return absl::IsUnavailable(status) && ReasonOf(status) == Reason::kNone;
}

// Every cache's status says when the daemon started.
absl::Time StartOf(const std::vector<v1::GetStatusResponse>& statuses) {
  return TimeFromProto(statuses.front().start_time());
}

// Until nobody answers, or another daemon does: a supervisor may start the next one at once.
absl::Status WaitForTheEnd(AdminClient& admin, absl::Time start, const InterruptScope& interrupt) {
  while (!interrupt.interrupted()) {
    const auto statuses = admin.Statuses();
    if (IsGone(statuses.status()) || (statuses.ok() && StartOf(*statuses) != start)) {
      return absl::OkStatus();
    }
    absl::SleepFor(kDrainPollInterval);
  }
  return absl::CancelledError("interrupted; the daemon goes on draining");
}

absl::Status RunDrain(const GlobalOptions& globals, bool wait) {
  const InterruptScope interrupt([] {});
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto statuses = admin->Statuses();
  if (!statuses.ok()) return statuses.status();
  const absl::Time begin = absl::Now();
  const auto begun = admin->Call(&Stub::Drain, v1::DrainRequest());
  if (!begun.ok()) return begun.status();
  if (!wait) {
    PrintResult(globals, "draining: new work is refused, what runs goes on until drain_timeout",
                {{"draining", true}, {"ended", false}});
    return absl::OkStatus();
  }
  const absl::Status end = WaitForTheEnd(*admin, StartOf(*statuses), interrupt);
  if (!end.ok()) return end;
  const absl::Duration elapsed = absl::Now() - begin;
  PrintResult(
      globals, absl::StrCat("drained in ", FormatElapsed(elapsed), ": the daemon serves no more"),
      {{"draining", true}, {"ended", true}, {"elapsed_seconds", absl::ToDoubleSeconds(elapsed)}});
  return absl::OkStatus();
}

void AddQuarantineCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "quarantine", "Lists, or releases, slots that a session that is over could still write");
  command->require_subcommand(0, 1);
  CLI::App* list = command->add_subcommand("list", "Lists them; what quarantine alone does, too");
  list->callback([&] { chosen = [&] { return RunQuarantineList(globals); }; });
  CLI::App* release = command->add_subcommand("release", "Lets the slots of one session go");
  const auto options = std::make_shared<ReleaseOptions>();
  release->add_option("SESSION", options->session, "The session's id, as list prints it")
      ->required();
  release->add_flag("--force", options->force,
                    "Also where a process that could write them lives and has not acknowledged");
  release->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunQuarantineRelease(globals, *options); };
  });
  command->callback([&globals, &chosen, command] {
    if (!command->get_subcommands().empty()) return;
    chosen = [&globals] { return RunQuarantineList(globals); };
  });
  const char* footer =
      "A client whose session ended without it may not have noticed, and write on: its slots go to "
      "nobody\n"
      "until its process is dead, or it has closed the session. --force is for when you know "
      "better.\n"
      "Examples:\n"
      "  pagodactl quarantine\n"
      "  pagodactl quarantine release 3\n"
      "  pagodactl quarantine release 3 --force";
  command->footer(footer);
}

}  // namespace

void AddOperatorCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* end =
      app.add_subcommand("end-session", "Ends a session at once, as if its lease had run out");
  const auto session = std::make_shared<uint64_t>();
  end->add_option("SESSION", *session, "The session's id, as sessions prints it")->required();
  end->footer(
      "Its sequences are freed; what they committed stays cached. Its client is refused from then "
      "on.\n"
      "Examples:\n  pagodactl end-session 3");
  end->callback([&globals, &chosen, session] {
    chosen = [&globals, session] { return RunEndSession(globals, *session); };
  });

  AddQuarantineCommand(app, globals, chosen);

  CLI::App* drain = app.add_subcommand("drain", "Lets the daemon end what runs, and then itself");
  const auto wait = std::make_shared<bool>(false);
  drain->add_flag("--wait", *wait, "Return when the daemon has ended");
  drain->footer(
      "Does what SIGTERM does, and like it ends calls that run longer than the daemon's "
      "drain_timeout.\n"
      "A SIGTERM that comes behind it is a second one, which ends the daemon at once.\n"
      "Examples:\n  pagodactl drain --wait");
  drain->callback([&globals, &chosen, wait] {
    chosen = [&globals, wait] { return RunDrain(globals, *wait); };
  });
}

}  // namespace pagoda
