// pagoda-engine: the bundled engine as a separate process. Its KV is in a daemon's cache.
#ifndef PAGODA_ENGINE_SERVE_PROGRAM_H_
#define PAGODA_ENGINE_SERVE_PROGRAM_H_

namespace pagoda {

// Parses the arguments and runs. Prints errors to standard error. Returns the exit code, one of
// pagodactl's ExitCode.
int RunPagodaEngine(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROGRAM_H_
