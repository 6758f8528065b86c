// Shell completion, made from the parser itself, so that it knows what the program knows.
#ifndef PAGODA_CLIENTS_PAGODACTL_COMPLETION_H_
#define PAGODA_CLIENTS_PAGODACTL_COMPLETION_H_

#include <string>

namespace CLI {
class App;
}

namespace pagoda {

// A bash script that completes commands, options, values that the options are limited to, and file
// names where a file is wanted. Names are plain words: the parser's author chose them.
std::string BashCompletion(const CLI::App& app);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_COMPLETION_H_
