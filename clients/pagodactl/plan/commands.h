// The command `plan`.
#ifndef PAGODA_CLIENTS_PAGODACTL_PLAN_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODACTL_PLAN_COMMANDS_H_

#include "clients/pagodactl/command/command.h"

namespace pagoda {

// Adds the command to the parser. If it is given, the parser puts its action into `chosen`.
// `globals` and `chosen` must outlive the parser.
void AddPlanCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PLAN_COMMANDS_H_
