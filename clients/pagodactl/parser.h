// The parser of pagodactl, with the commands of all rooms.
#ifndef PAGODA_CLIENTS_PAGODACTL_PARSER_H_
#define PAGODA_CLIENTS_PAGODACTL_PARSER_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Adds every option and command.
void BuildParser(CLI::App& app, GlobalOptions& globals, Action& chosen);

// Parses the arguments and runs. Prints errors to standard error. Returns the exit code.
int RunPagodactl(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PARSER_H_
