// Shell completion. It is generated from the parser, so it always matches the program.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_COMPLETION_COMPLETION_H_
#define PAGODA_CLIENTS_COMMAND_LINE_COMPLETION_COMPLETION_H_

#include <string>

namespace CLI {
class App;
}

namespace pagoda {

// Returns a bash script. It completes commands, options, the choices of an option, and file names
// for options that take a file. It does not quote names: those of the parser are plain words.
std::string BashCompletion(const CLI::App& app);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_COMPLETION_COMPLETION_H_
