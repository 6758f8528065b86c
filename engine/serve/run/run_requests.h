#ifndef PAGODA_ENGINE_SERVE_RUN_RUN_REQUESTS_H_
#define PAGODA_ENGINE_SERVE_RUN_RUN_REQUESTS_H_

#include "absl/status/status.h"
#include "engine/serve/run/program_options.h"

namespace pagoda {

// Answers --requests, several at a time, until there are no more. A signal ends it: the running
// requests are answered with CANCELLED. Errors: those of ChosenEngine; INVALID_ARGUMENT if the
// requests cannot be read; CANCELLED; UNAVAILABLE if the daemon went away for good; ABORTED if
// requests failed, or an answer could not be written.
absl::Status RunRequests(const ProgramOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_RUN_REQUESTS_H_
