// pagodactl advise: what more memory would bring.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/admin/advice_text.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/admin_client.h"

namespace pagoda {
namespace {

using Stub = AdminClient::Stub;

// The rows of the table.
constexpr double kFactors[] = {0.5, 1, 1.5, 2, 3, 4, 8, 16};
// The daemon answers 64 factors.
constexpr size_t kMaxQuestions = 16;

struct AdviseOptions {
  std::vector<std::string> host_memory;
  std::vector<std::string> disk;
  double watch_seconds = 0;  // Between two answers. 0: there is one.
};

absl::StatusOr<std::vector<AdviceQuestion>> QuestionsOf(const v1::GetStatusResponse& status,
                                                        const AdviseOptions& options) {
  std::vector<AdviceQuestion> questions;
  for (const std::string& size : options.host_memory) {
    absl::StatusOr<AdviceQuestion> question = AskHostMemory(status, size);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  for (const std::string& size : options.disk) {
    absl::StatusOr<AdviceQuestion> question = AskDisk(status, size);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  if (questions.empty()) questions.push_back(DefaultQuestion(status));
  return questions;
}

absl::StatusOr<Advice> AdviceFor(AdminClient& admin, const v1::GetStatusResponse& status,
                                 const AdviseOptions& options) {
  absl::StatusOr<std::vector<AdviceQuestion>> questions = QuestionsOf(status, options);
  if (!questions.ok()) return questions.status();
  v1::GetHitRateCurveRequest request;
  request.set_cache(status.cache().name());
  for (const double factor : kFactors) request.add_capacity_factors(factor);
  for (const AdviceQuestion& question : *questions) request.add_capacity_factors(question.factor);
  absl::StatusOr<v1::GetHitRateCurveResponse> curves =
      admin.Call(&Stub::GetHitRateCurve, std::move(request));
  if (!curves.ok()) return curves.status();
  return Advice{.curves = *std::move(curves), .questions = *std::move(questions)};
}

absl::StatusOr<std::vector<Advice>> AllAdvice(AdminClient& admin, const AdviseOptions& options) {
  const absl::StatusOr<std::vector<v1::GetStatusResponse>> statuses = admin.Statuses();
  if (!statuses.ok()) return statuses.status();
  std::vector<Advice> all;
  for (const v1::GetStatusResponse& status : *statuses) {
    if (!status.has_cache()) continue;
    absl::StatusOr<Advice> advice = AdviceFor(admin, status, options);
    if (!advice.ok()) return advice.status();
    all.push_back(*std::move(advice));
  }
  return all;
}

std::string TextOf(const std::vector<Advice>& all) {
  if (all.empty()) return "the daemon has no cache; it waits for clients that open one\n";
  std::string text;
  for (const Advice& advice : all)
    absl::StrAppend(&text, text.empty() ? "" : "\n", AdviceText(advice));
  return text;
}

absl::Status PrintCurves(const std::vector<Advice>& all) {
  for (const Advice& advice : all) {
    if (absl::Status printed = PrintJson(advice.curves); !printed.ok()) return printed;
  }
  return absl::OkStatus();
}

absl::Status RunOnce(const GlobalOptions& globals, const AdviseOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const absl::StatusOr<std::vector<Advice>> all = AllAdvice(*admin, options);
  if (!all.ok()) return all.status();
  if (globals.output == OutputFormat::kJson) return PrintCurves(*all);
  std::cout << TextOf(*all) << std::flush;
  return absl::OkStatus();
}

void PrintAt(absl::Time time, const Terminal& terminal, const std::vector<Advice>& all) {
  std::cout << (terminal.interactive ? kClearScreen : std::string_view())
            << absl::FormatTime("--- %Y-%m-%d %H:%M:%S ---", time, absl::LocalTimeZone()) << "\n\n"
            << TextOf(all) << (terminal.interactive ? "" : "\n") << std::flush;
}

// The first error ends the command. A later one is told, and the next answer can be better.
absl::Status RunWatch(const GlobalOptions& globals, const AdviseOptions& options) {
  absl::Notification ended;
  const InterruptScope interrupt([&ended] { ended.Notify(); });
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const Terminal terminal = DetectTerminal(STDOUT_FILENO);
  bool is_first = true;
  do {
    const absl::StatusOr<std::vector<Advice>> all = AllAdvice(*admin, options);
    if (ended.HasBeenNotified()) break;
    if (all.ok() && globals.output == OutputFormat::kJson) {
      if (absl::Status printed = PrintCurves(*all); !printed.ok()) return printed;
    } else if (all.ok()) {
      PrintAt(absl::Now(), terminal, *all);
    } else if (is_first) {
      return all.status();
    } else {
      std::cerr << all.status().message() << std::endl;
    }
    if (!std::cout) return absl::AbortedError("cannot write the output: its reader is gone");
    is_first = false;
  } while (!ended.WaitForNotificationWithTimeout(absl::Seconds(options.watch_seconds)));
  return absl::OkStatus();
}

}  // namespace

void AddAdviseCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* advise =
      app.add_subcommand("advise", "Tells the hit rate that more or less memory would bring");
  const auto options = std::make_shared<AdviseOptions>();
  advise
      ->add_option("--host-memory", options->host_memory,
                   "Host memory instead of today's: a size, or a multiple such as 2x")
      ->type_name("SIZE")
      ->expected(1, static_cast<int>(kMaxQuestions));
  advise
      ->add_option("--disk", options->disk,
                   "A disk tier instead of today's, or a new one: a size, or a multiple")
      ->type_name("SIZE")
      ->expected(1, static_cast<int>(kMaxQuestions));
  advise
      ->add_option("--watch", options->watch_seconds,
                   "Answers again and again until Ctrl-C, after so many seconds")
      ->type_name("SECONDS")
      ->expected(0, 1)
      ->default_str("10")
      ->check(CLI::Range(0.1, 3600.0));
  advise->footer(
      "The daemon follows a sample of the blocks, also after their eviction. Each number has the\n"
      "error of the sample. It is about the requests so far: those that come later can differ.\n"
      "Hit rates count whole blocks of prompts. The capacity is that of all tiers together. A "
      "disk\n"
      "gives its hits only to clients that prefetch prefixes.\n"
      "With --watch, a terminal shows the latest answer, and other output has each one below its\n"
      "time. With -o json each cache is an object on a line of its own. The last points of a "
      "window\n"
      "answer the options, sizes of host memory first.\n"
      "Examples:\n"
      "  pagodactl advise\n"
      "  pagodactl advise --host-memory 256GiB 512GiB\n"
      "  pagodactl advise --disk 500GiB -o json | jq '.windows[0].points[-1]'\n"
      "  pagodactl advise --watch 60");
  advise->callback([&globals, &chosen, options] {
    chosen = [&globals, options] {
      return options->watch_seconds > 0 ? RunWatch(globals, *options) : RunOnce(globals, *options);
    };
  });
}

}  // namespace pagoda
