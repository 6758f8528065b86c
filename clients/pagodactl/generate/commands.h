// The commands `generate`, `chat` and `bench`.
#ifndef PAGODA_CLIENTS_PAGODACTL_GENERATE_COMMANDS_H_
#define PAGODA_CLIENTS_PAGODACTL_GENERATE_COMMANDS_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Each function adds one command to the parser. The parser puts the given command's action into
// `chosen`. `globals` and `chosen` must outlive the parser.
void AddGenerateCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddChatCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);
void AddBenchCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_GENERATE_COMMANDS_H_
