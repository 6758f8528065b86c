// pagodactl end-session, quarantine, drain: an operator's commands for clients and the daemon.
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
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/admin_client.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Stub = AdminClient::Stub;

// The interval of the checks whether the daemon is still there.
constexpr absl::Duration kDrainPollInterval = absl::Milliseconds(100);

absl::Status RunEndSession(const GlobalOptions& globals, uint64_t session) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  v1::EndSessionRequest request;
  request.set_session_id(session);
  const auto ended = admin->Call(&Stub::EndSession, request);
  if (!ended.ok()) return ended.status();
  return PrintResult(globals, absl::StrCat("session ", session, " is ended"), *ended);
}

// --- Quarantine ---

void PrintQuarantines(const v1::ListQuarantinesResponse& list) {
  Print("%10s  %-20s  %-12s  %-12s  %8s  %s\n", "SESSION", "CLIENT", "TENANT", "FOR", "BLOCKS",
        "WRITERS ALIVE");
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  const absl::Time now = absl::Now();
  for (const v1::QuarantineInfo& quarantine : list.quarantines()) {
    const absl::Duration age =
        std::max(absl::ZeroDuration(), now - TimeFromProto(quarantine.since()));
    Print("%10d  %-20s  %-12s  %-12s  %8s  %s\n", quarantine.session_id(),
          or_dash(quarantine.client_name()), or_dash(quarantine.tenant()), FormatElapsed(age),
          FormatCount(quarantine.blocks()), or_dash(absl::StrJoin(quarantine.writer_pids(), ",")));
  }
  if (list.quarantines().empty()) Print("nothing is quarantined\n");
  std::cout.flush();
}

absl::Status RunQuarantineList(const GlobalOptions& globals) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto list = admin->Call(&Stub::ListQuarantines, v1::ListQuarantinesRequest());
  if (!list.ok()) return list.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*list);
  PrintQuarantines(*list);
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
                                  "\nEnd that process first. If you are sure that it writes no "
                                  "more, use --force."));
  }
  if (!released.ok()) return released.status();
  return PrintResult(globals,
                     absl::StrCat(FormatCounted(released->released_blocks(), "block"),
                                  " of session ", options.session, " released"),
                     *released);
}

// --- Drain ---

bool IsGone(const absl::Status& status) {
  return absl::IsUnavailable(status) && ReasonOf(status) == Reason::kNone;
}

// The status of every cache has the daemon's start time.
absl::Time StartOf(const std::vector<v1::GetStatusResponse>& statuses) {
  return TimeFromProto(statuses.front().start_time());
}

// Waits until no daemon answers or another one does: a supervisor may start the next one at once.
absl::Status WaitForTheEnd(AdminClient& admin, absl::Time start, const InterruptScope& interrupt) {
  while (!interrupt.interrupted()) {
    const auto statuses = admin.Statuses();
    if (IsGone(statuses.status()) || (statuses.ok() && StartOf(*statuses) != start)) {
      return absl::OkStatus();
    }
    absl::SleepFor(kDrainPollInterval);
  }
  return absl::CancelledError("interrupted; the daemon continues to drain");
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
    return PrintResult(globals,
                       "draining: new work is refused, running work continues until drain_timeout",
                       *begun);
  }
  const absl::Status end = WaitForTheEnd(*admin, StartOf(*statuses), interrupt);
  if (!end.ok()) return end;
  return PrintResult(
      globals,
      absl::StrCat("drained in ", FormatElapsed(absl::Now() - begin), ": the daemon has ended"),
      *begun);
}

void AddQuarantineCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "quarantine", "Lists or releases slots that an ended session could still write");
  command->require_subcommand(0, 1);
  CLI::App* list = command->add_subcommand("list", "Lists the quarantines; also the default");
  list->callback([&] { chosen = [&] { return RunQuarantineList(globals); }; });
  CLI::App* release = command->add_subcommand("release", "Releases the slots of one session");
  const auto options = std::make_shared<ReleaseOptions>();
  release->add_option("SESSION", options->session, "The session's id, as list prints it")
      ->required();
  release->add_flag("--force", options->force,
                    "Release them even if a process that could write them is still alive");
  release->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunQuarantineRelease(globals, *options); };
  });
  command->callback([&globals, &chosen, command] {
    if (!command->get_subcommands().empty()) return;
    chosen = [&globals] { return RunQuarantineList(globals); };
  });
  const char* footer =
      "If the daemon ends a session, its client may not notice and may still write. Its slots are\n"
      "therefore not reused until the client's process is dead or has closed the session. Use\n"
      "--force only if you are sure that the process writes no more.\n"
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
      "Its sequences are freed; the blocks that they committed stay cached. Later calls of its\n"
      "client are refused.\n"
      "Examples:\n  pagodactl end-session 3");
  end->callback([&globals, &chosen, session] {
    chosen = [&globals, session] { return RunEndSession(globals, *session); };
  });

  AddQuarantineCommand(app, globals, chosen);

  CLI::App* drain = app.add_subcommand("drain", "Shuts the daemon down after its running work");
  const auto wait = std::make_shared<bool>(false);
  drain->add_flag("--wait", *wait, "Return when the daemon has ended");
  drain->footer(
      "Works like SIGTERM: new work is refused, and calls that run longer than the daemon's\n"
      "drain_timeout are ended. A later SIGTERM counts as the second one and ends the daemon at\n"
      "once.\n"
      "Examples:\n  pagodactl drain --wait");
  drain->callback([&globals, &chosen, wait] {
    chosen = [&globals, wait] { return RunDrain(globals, *wait); };
  });
}

}  // namespace pagoda
