// pagoda-run: chats or generates with a model in one process, without a daemon.
#ifndef PAGODA_CLIENTS_PAGODA_RUN_PROGRAM_H_
#define PAGODA_CLIENTS_PAGODA_RUN_PROGRAM_H_

namespace pagoda {

// Parses the arguments and runs. Prints errors to standard error. Returns the exit code: 0 success,
// 1 failure, 2 bad usage, 130 if a signal ended it.
int RunPagodaRun(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_RUN_PROGRAM_H_
