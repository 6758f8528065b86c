// The commands about the daemon, its caches, sessions and tenants.
#ifndef PAGODA_CLIENTS_PAGODACTL_ADMIN_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODACTL_ADMIN_COMMANDS_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Each function adds one command to the parser. The parser puts the given command's action into
// `chosen`. `globals` and `chosen` must outlive the parser.
void AddStatusCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddAdviseCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// sessions, sequences and tenants.
void AddListCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// caches, with open, show and drop.
void AddCachesCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
// end-session, quarantine and drain.
void AddOperatorCommands(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_ADMIN_COMMANDS_H_
