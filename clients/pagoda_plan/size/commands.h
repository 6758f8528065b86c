// The command `size`.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_COMMANDS_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Adds the command to the parser. If it is given, the parser puts its action into `chosen`.
// `globals` and `chosen` must outlive the parser.
void AddSizeCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_COMMANDS_H_
