// What the commands of pagodactl share.
#ifndef PAGODA_CLIENTS_PAGODACTL_COMMAND_H_
#define PAGODA_CLIENTS_PAGODACTL_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "grpcpp/channel.h"
#include "nlohmann/json_fwd.hpp"

namespace CLI {
class App;
}

namespace pagoda {

enum class OutputFormat { kTable, kJson };

// Where a program finds who calls, and whom it trusts. Empty: nowhere.
struct CredentialFiles {
  std::string token_file;
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};
// The options of those names, and the environment variables behind them.
void AddCredentialOptions(CLI::App& app, CredentialFiles& files);

// Options of every command.
struct GlobalOptions {
  std::string endpoint = "127.0.0.1:7070";
  std::string cache;  // Which of the daemon's caches; empty: the only one.
  OutputFormat output = OutputFormat::kTable;
  double timeout_seconds = 10;
  CredentialFiles credentials;

  absl::Duration timeout() const { return absl::Seconds(timeout_seconds); }
};

// Writes a command's result to standard output: `json` on one line with -o json, else `text`.
void PrintResult(const GlobalOptions& globals, const std::string& text,
                 const nlohmann::ordered_json& json);

// The process's exit codes.
enum ExitCode : int { kExitOk = 0, kExitFailed = 1, kExitBadUsage = 2, kExitUnreachable = 3 };

// What the parser found to do. A command's results go to standard output; its error is printed by
// RunPagodactl.
using Action = std::function<absl::Status()>;

// Each adds one command to the parser. When the command is given, its action is put into `chosen`;
// `globals` and `chosen` outlive it.
void AddStatusCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddWatchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddGenerateCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddChatCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddWorkloadCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddPlanCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// pin, unpin, pins, offload, prefetch, invalidate and retain.
void AddPrefixCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddReplayCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddTopCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// sessions, sequences and tenants.
void AddListCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// caches, with open, show and drop.
void AddCachesCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddInspectCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// end-session, quarantine and drain.
void AddOperatorCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddBenchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddCompletionCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

// What the options say of the caller. Errors: INVALID_ARGUMENT (the token's file).
absl::StatusOr<ClientCredentials> CredentialsOf(const CredentialFiles& files);
// Connects to the daemon that the options name. Errors: UNAVAILABLE, without a reason;
// INVALID_ARGUMENT for the files that they name.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToDaemon(const GlobalOptions& globals);

// Every option and command.
void BuildParser(CLI::App& app, GlobalOptions& globals, Action& chosen);
// Says on standard error what went wrong, in the name of `program`; `endpoint_option` is how it is
// told where the daemon is. Returns the exit code.
int ReportOutcome(const std::string& program, const std::string& endpoint_option,
                  const absl::Status& status);

// Parses, runs, and says on standard error what went wrong. Returns the exit code.
int RunPagodactl(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_COMMAND_H_
