#include "clients/command_line/command.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/cord.h"
#include "base/error.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/cpp/channel.h"
#include "wire/message_json.h"

namespace pagoda {
namespace {

// A status with this payload is about the engine. The payload is empty.
constexpr char kEnginePayloadUrl[] = "command_line/engine";

// Whether the transport failed. An UNAVAILABLE from the daemon itself has a reason.
bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) && ReasonOf(status) == Reason::kNone;
}

}  // namespace

void AddCredentialOptions(CLI::App& app, CredentialFiles& files) {
  app.add_option("--auth-token-file", files.token_file,
                 "A file whose first line is the caller's token")
      ->envname("PAGODA_TOKEN_FILE")
      ->type_name("FILE");
  app.add_option("--ca", files.ca_file,
                 "The CA of the daemon's certificate (PEM); TCP then uses TLS")
      ->envname("PAGODA_CA")
      ->type_name("FILE");
  app.add_option("--certificate", files.certificate_file,
                 "The caller's certificate (PEM), if the daemon asks for one")
      ->envname("PAGODA_CERTIFICATE")
      ->type_name("FILE");
  app.add_option("--key", files.key_file, "The key of the caller's certificate (PEM)")
      ->envname("PAGODA_KEY")
      ->type_name("FILE");
}

absl::StatusOr<ClientCredentials> CredentialsOf(const CredentialFiles& files) {
  ClientCredentials credentials = {.ca_file = files.ca_file,
                                   .certificate_file = files.certificate_file,
                                   .key_file = files.key_file};
  if (files.token_file.empty()) return credentials;
  absl::StatusOr<std::string> token = ReadBearerToken(files.token_file);
  if (!token.ok()) return token.status();
  credentials.token = *std::move(token);
  return credentials;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToDaemon(const GlobalOptions& globals) {
  const absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  return Connect(globals.endpoint, globals.timeout(), *credentials);
}

absl::Status EngineUnavailable(const std::string& message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kEnginePayloadUrl, absl::Cord());
  return status;
}

int ReportOutcome(const std::string& program, const std::string& endpoint_option,
                  const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const Terminal terminal = DetectTerminal(STDERR_FILENO);
  const Reason reason = ReasonOf(status);
  const std::string name = reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                                   : std::string(ReasonName(reason));
  std::cerr << program << ": " << Paint(terminal, Style::kRed, name) << ": " << status.message()
            << std::endl;
  if (!IsUnreachable(status)) return kExitFailed;
  if (status.GetPayload(kEnginePayloadUrl).has_value()) return kExitUnreachable;
  std::cerr << "Start a daemon with deploy/run.sh, or name another one with " << endpoint_option
            << " or PAGODA_ENDPOINT." << std::endl;
  return kExitUnreachable;
}

absl::Status PrintJson(const google::protobuf::Message& message) {
  const absl::StatusOr<std::string> json = JsonOf(message);
  if (!json.ok()) return json.status();
  std::cout << *json << std::endl;
  return absl::OkStatus();
}

absl::Status PrintResult(const GlobalOptions& globals, const std::string& text,
                         const google::protobuf::Message& message) {
  if (globals.output == OutputFormat::kJson) return PrintJson(message);
  std::cout << text << std::endl;
  return absl::OkStatus();
}

}  // namespace pagoda
