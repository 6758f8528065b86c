// pagodactl inspect: shows which blocks of a prompt are cached, and where.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "CLI/CLI.hpp"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/prefix/commands.h"
#include "clients/pagodactl/prefix/inspect_text.h"
#include "clients/pagodactl/prefix/prefix_options.h"
#include "wire/operations.h"

namespace pagoda {
namespace {

absl::Status RunInspect(const GlobalOptions& globals, const PrefixOptions& options) {
  const absl::StatusOr<Prefix> prefix = PrefixOf(options);
  if (!prefix.ok()) return prefix.status();
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const v1::InspectPrefixRequest request = InspectRequestOf(Prefix(*prefix).Named<MatchPrefix>());
  const auto inspected = admin->Call(&AdminClient::Stub::InspectPrefix, request);
  if (!inspected.ok()) return inspected.status();
  if (globals.output == OutputFormat::kJson) return PrintJson(*inspected);
  const auto status = admin->Call(&AdminClient::Stub::GetStatus, v1::GetStatusRequest());
  if (!status.ok()) return status.status();
  const auto token_count = static_cast<uint32_t>(prefix->size(status->cache().tokens_per_block()));
  std::cout << InspectText(*inspected, status->cache(), token_count, DetectTerminal(STDOUT_FILENO))
            << std::flush;
  return absl::OkStatus();
}

}  // namespace

void AddInspectCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("inspect", "Shows which blocks of a prefix are cached, and where");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<PrefixOptions>();
  AddPrefixOptions(*command, *options, Tokens::kNeeded);
  command->footer(
      "HOLDERS are the sequences, pins and deferred releases that keep a block. With -o json each\n"
      "block is listed with its id, slot and hash. Blocks that are only on disk are cached, but "
      "do\n"
      "not match until \"pagodactl prefetch\" has brought them to memory.\n"
      "Examples:\n"
      "  pagodactl inspect --token-file system_prompt.txt\n"
      "  pagodactl inspect --tokens 1,2,3,4 --salt team-a -o json\n"
      "  pagodactl inspect --keys 0a1b2c3d,4e5f6071");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunInspect(globals, *options); };
  });
}

}  // namespace pagoda
