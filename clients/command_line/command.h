// The parts that all commands share.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_COMMAND_H_
#define PAGODA_CLIENTS_COMMAND_LINE_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "google/protobuf/message.h"
#include "grpcpp/channel.h"

namespace CLI {
class App;
}

namespace pagoda {

enum class OutputFormat { kTable, kJson };

// The files of the caller's credentials and of the CA that it trusts. Empty: none.
struct CredentialFiles {
  std::string token_file;
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};
// Adds the options for these files. Each option also reads an environment variable.
void AddCredentialOptions(CLI::App& app, CredentialFiles& files);

// Options of every command.
struct GlobalOptions {
  std::string endpoint = "127.0.0.1:7070";
  std::string cache;  // The name of the daemon's cache; empty: its only one.
  OutputFormat output = OutputFormat::kTable;
  double timeout_seconds = 10;
  CredentialFiles credentials;

  absl::Duration timeout() const { return absl::Seconds(timeout_seconds); }
};

// Writes a message of the daemon to standard output, as JSON on one line: see wire/message_json.h.
// Error: INTERNAL.
absl::Status PrintJson(const google::protobuf::Message& message);
// Writes a command's result to standard output: `message` as PrintJson with -o json, else `text`.
absl::Status PrintResult(const GlobalOptions& globals, const std::string& text,
                         const google::protobuf::Message& message);

// The process's exit codes.
enum ExitCode : int { kExitOk = 0, kExitFailed = 1, kExitBadUsage = 2, kExitUnreachable = 3 };

// The action of the command that the parser found. It prints results to standard output.
// The program prints its error.
using Action = std::function<absl::Status()>;

// Reads the token's file and returns the credentials. Errors: INVALID_ARGUMENT (the token's file).
absl::StatusOr<ClientCredentials> CredentialsOf(const CredentialFiles& files);
// Connects to the daemon that the options name. Errors: UNAVAILABLE, without a reason;
// INVALID_ARGUMENT for the files that they name.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToDaemon(const GlobalOptions& globals);

// An error for an engine that is away while its daemon answers. UNAVAILABLE, without a reason.
absl::Status EngineUnavailable(const std::string& message);

// Prints an error to standard error, after the name of `program`. `endpoint_option` is the option
// that names the daemon's endpoint; a hint mentions it if no daemon answers. Returns the exit code.
int ReportOutcome(const std::string& program, const std::string& endpoint_option,
                  const absl::Status& status);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_COMMAND_H_
