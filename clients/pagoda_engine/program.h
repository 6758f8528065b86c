// pagoda-engine: the bundled engine in a process of its own, its KV in a daemon's cache.
#ifndef PAGODA_CLIENTS_PAGODA_ENGINE_PROGRAM_H_
#define PAGODA_CLIENTS_PAGODA_ENGINE_PROGRAM_H_

namespace pagoda {

// Parses, runs, and says on standard error what went wrong. Returns the exit code: an ExitCode of
// pagodactl's.
int RunPagodaEngine(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_ENGINE_PROGRAM_H_
