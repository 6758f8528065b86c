// pagoda-plan workload: runs a seeded chat workload through the Session stream and shows its
// progress.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/progress_bar.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/pagoda_plan/workload/chat_workload.h"
#include "clients/pagoda_plan/workload/commands.h"
#include "grpcpp/client_context.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.grpc.pb.h"

namespace pagoda {
namespace {

constexpr absl::Duration kStatusInterval = absl::Milliseconds(250);

// The progress bar with the daemon's occupancy next to it.
class LiveView {
 public:
  // `cache` is the name of the daemon's cache; empty: its only one.
  LiveView(const std::shared_ptr<grpc::Channel>& channel, const std::string& cache, uint64_t turns)
      : admin_(v1::AdminService::NewStub(channel)),
        cache_(cache),
        bar_("turns", turns, DetectTerminal(STDERR_FILENO), std::cerr, absl::Now()) {}
  ~LiveView() { bar_.Clear(); }

  void Show(const ChatWorkloadReport& report) {
    const absl::Time now = absl::Now();
    if (!bar_.Due(now)) return;
    if (now - occupancy_time_ >= kStatusInterval) {
      occupancy_ = Occupancy();
      occupancy_time_ = now;
    }
    bar_.Update(report.turns_done,
                absl::StrFormat("hit rate %.1f %%  %s  deferrals %d", report.hit_rate() * 100,
                                occupancy_, report.deferrals),
                now);
  }

 private:
  // The occupancy of the largest window's primary tier. A question mark if the daemon does not
  // answer: the workload must not fail because of its progress bar.
  std::string Occupancy() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
    v1::GetStatusRequest request;
    request.set_cache(cache_);
    v1::GetStatusResponse status;
    if (!admin_->GetStatus(&context, request, &status).ok() || status.windows().empty() ||
        status.windows().rbegin()->tiers().empty()) {
      return "blocks ?";
    }
    const v1::TierStatus& tier = status.windows().rbegin()->tiers(0);
    const auto percent = [&tier](uint32_t blocks) {
      return 100 * Share(blocks, tier.capacity_blocks());
    };
    return absl::StrFormat("active %.0f %% cached %.0f %% free %.0f %%",
                           percent(tier.active_blocks()), percent(tier.cached_blocks()),
                           percent(tier.free_blocks()));
  }

  const std::unique_ptr<v1::AdminService::Stub> admin_;
  const std::string cache_;
  ProgressBar bar_;
  std::string occupancy_;
  absl::Time occupancy_time_ = absl::InfinitePast();
};

void PrintReport(const ChatWorkloadReport& report) {
  Print("turns                  %s of %s\n", FormatCount(report.turns_done),
        FormatCount(report.turns_total));
  Print("prompt tokens          %s, %s found in the cache\n", FormatCount(report.prompt_tokens),
        FormatCount(report.matched_tokens));
  Print("reply tokens           %s\n", FormatCount(report.reply_tokens));
  Print("hit rate               %s\n", FormatShare(report.hit_rate()));
  Print("deferrals              %s\n", FormatCount(report.deferrals));
  Print("losses                 %s shortened, %s restarted, %s refused\n",
        FormatCounted(report.shortened, "sequence"), FormatCount(report.lost),
        FormatCounted(report.refused, "operation"));
  Print("operations             %s in %s and %s\n", FormatCount(report.operations),
        FormatCounted(report.batches, "batch"), FormatElapsed(report.elapsed));
  Print("operations per second  %s\n",
        FormatCount(static_cast<uint64_t>(report.operations_per_second())));
  Print("batch latency          p50 %s, p99 %s\n", FormatElapsed(report.batch_latency_p50),
        FormatElapsed(report.batch_latency_p99));
  std::cout.flush();
}

void PrintJson(const ChatWorkloadReport& report) {
  const nlohmann::ordered_json json = {
      {"turns", report.turns_done},
      {"turns_total", report.turns_total},
      {"prompt_tokens", report.prompt_tokens},
      {"matched_tokens", report.matched_tokens},
      {"reply_tokens", report.reply_tokens},
      {"hit_rate", report.hit_rate()},
      {"deferrals", report.deferrals},
      {"sequences_shortened", report.shortened},
      {"sequences_lost", report.lost},
      {"operations_refused", report.refused},
      {"operations", report.operations},
      {"batches", report.batches},
      {"elapsed_seconds", absl::ToDoubleSeconds(report.elapsed)},
      {"operations_per_second", report.operations_per_second()},
      {"batch_latency_p50_seconds", absl::ToDoubleSeconds(report.batch_latency_p50)},
      {"batch_latency_p99_seconds", absl::ToDoubleSeconds(report.batch_latency_p99)}};
  std::cout << json.dump() << std::endl;
}

absl::StatusOr<ChatWorkloadReport> RunWatched(const GlobalOptions& globals,
                                              const ChatWorkloadOptions& options,
                                              const InterruptScope& interrupt) {
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();
  const auto credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  const auto client = OpenGrpcCacheClient({.endpoint = globals.endpoint,
                                           .client_name = "pagoda-plan",
                                           .lease = absl::ZeroDuration(),
                                           .timeout = globals.timeout(),
                                           .credentials = *credentials,
                                           .cache = globals.cache});
  if (!client.ok()) return client.status();
  LiveView view(*channel, globals.cache, uint64_t{options.conversations} * options.turns);
  return RunChatWorkload(**client, options, [&](const ChatWorkloadReport& report) {
    view.Show(report);
    return interrupt.interrupted() ? Next::kStop : Next::kContinue;
  });
}

absl::Status RunWorkload(const GlobalOptions& globals, const ChatWorkloadOptions& options) {
  const InterruptScope interrupt([] {});
  const absl::StatusOr<ChatWorkloadReport> report = RunWatched(globals, options, interrupt);
  if (!report.ok()) return report.status();
  if (globals.output == OutputFormat::kJson) {
    PrintJson(*report);
  } else {
    PrintReport(*report);
  }
  if (report->turns_done == report->turns_total) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat("interrupted after ", report->turns_done, " turns of ", report->turns_total));
}

}  // namespace

void AddWorkloadCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "workload", "Runs a seeded multi-turn chat workload through the Session stream");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<ChatWorkloadOptions>();
  const auto add = [command](const char* name, uint32_t& value, const char* text,
                             const CLI::Validator& check) {
    command->add_option(name, value, text)->check(check)->capture_default_str();
  };
  const CLI::Range count(1U, 1U << 20);
  add("--conversations", options->conversations, "The number of conversations", count);
  add("--turns", options->turns, "Turns of each conversation", count);
  add("--concurrency", options->concurrency, "Conversations that run at once",
      CLI::Range(1U, kMaxConcurrency));
  add("--system-tokens", options->system_tokens, "Tokens of the system prompt that all share",
      CLI::Range(0U, 1U << 20));
  add("--user-tokens", options->user_tokens, "New tokens of the user in each turn", count);
  add("--reply-tokens", options->reply_tokens, "Tokens of the reply in each turn", count);
  command->add_option("--seed", options->seed, "The seed of all tokens")->capture_default_str();
  command->footer(
      "The workload needs no model: it writes no KV bytes, and its sequences have their own cache\n"
      "salt. A deferral means that a conversation got no blocks and waited for others.\n"
      "Examples:\n"
      "  pagoda-plan workload\n"
      "  pagoda-plan workload --conversations 200 --turns 6 --concurrency 32 --seed 7\n"
      "  pagoda-plan workload -o json");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunWorkload(globals, *options); };
  });
}

}  // namespace pagoda
