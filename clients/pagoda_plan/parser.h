// The parser of pagoda-plan, with the commands of all rooms.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_PARSER_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_PARSER_H_

#include "clients/command_line/command.h"

namespace pagoda {

// Adds every option and command of pagoda-plan.
void BuildPlanParser(CLI::App& app, GlobalOptions& globals, Action& chosen);

// Parses the arguments and runs. Prints errors to standard error. Returns the exit code.
int RunPagodaPlan(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_PARSER_H_
