// The command `route`.
#ifndef PAGODA_CLIENTS_PAGODACTL_ROUTER_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODACTL_ROUTER_COMMANDS_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Adds the command to the parser. The parser puts the given command's action into `chosen`.
// `globals` and `chosen` must outlive the parser.
void AddRouteCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_ROUTER_COMMANDS_H_
