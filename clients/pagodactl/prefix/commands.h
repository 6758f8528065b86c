// The commands about a prompt's cached prefix.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_COMMANDS_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Each function adds one command to the parser. The parser puts the given command's action into
// `chosen`. `globals` and `chosen` must outlive the parser.
// pin, unpin, pins, offload, prefetch, invalidate and retain.
void AddPrefixCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddFetchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddInspectCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_COMMANDS_H_
