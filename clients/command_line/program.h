// What every program of commands does with its arguments.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_PROGRAM_H_
#define PAGODA_CLIENTS_COMMAND_LINE_PROGRAM_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Adds the options that name the daemon and the cache, and say how the caller connects.
void AddConnectionOptions(CLI::App& app, GlobalOptions& globals);

// Adds -o.
void AddOutputOption(CLI::App& app, GlobalOptions& globals);

// Parses the arguments and runs the action that the given command put into `chosen`. Prints errors
// to standard error, after the name of `app`. Returns the exit code.
int RunCommandLine(CLI::App& app, const Action& chosen, int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_PROGRAM_H_
